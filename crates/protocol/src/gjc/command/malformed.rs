//! Errors of lines that cannot be read, and the answers to them.
//!
//! It must not know how lines are read.

use crate::omp::command::fields::CommandFields;
use crate::omp::{self, OmpRequestId, OmpResponse};

/// Strictness in checking the form of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStrictness {
    /// Ignores what the original ignores on stdio.
    Stdio,
    /// Ignores nothing.
    Bridge,
}

/// Reason that a line is no command. [`GjcParseError::to_response`] is the documented answer; the stream continues.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GjcParseError {
    /// No command at all, or an empty answer. Answered as `parse`, without an id.
    #[error("{0}")]
    Line(omp::OmpParseError),
    /// A known command lacks a field, or has one of another form. The bridge answers it with 400.
    #[error("{reason}")]
    Shape {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// Its `type`.
        command: String,
        /// Description of the error.
        reason: String,
    },
    /// A known command has a value that it cannot have.
    #[error("{reason}")]
    Refused {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// Its `type`.
        command: String,
        /// Description of the error, in the original's words.
        reason: String,
    },
}

impl GjcParseError {
    pub(super) fn from_omp(malformed: omp::OmpParseError) -> Self {
        let reason = malformed.to_string();
        match malformed {
            // Of an answer to a dialog: it has no request that could be answered.
            omp::OmpParseError::Field { ref command, .. } if command == "extension_ui_response" => {
                Self::Line(malformed)
            }
            omp::OmpParseError::Field { id, command, .. } => Self::Shape { id, command, reason },
            omp::OmpParseError::Refused { id, command, reason } => Self::Refused { id, command, reason },
            malformed @ (omp::OmpParseError::TooLong { .. }
            | omp::OmpParseError::NotUtf8
            | omp::OmpParseError::NotJson { .. }
            | omp::OmpParseError::NotAnObject
            | omp::OmpParseError::Answer) => Self::Line(malformed),
        }
    }

    pub(super) fn wrong_shape(fields: &CommandFields<'_>, reason: String) -> Self {
        Self::Shape { id: fields.id(), command: fields.type_name().unwrap_or_default().to_owned(), reason }
    }

    pub(super) fn refused_value(fields: &CommandFields<'_>, reason: String) -> Self {
        Self::Refused { id: fields.id(), command: fields.type_name().unwrap_or_default().to_owned(), reason }
    }

    /// Returns the answer: for a known command a failure of that command with its id, else one of `parse`.
    pub fn to_response(&self) -> OmpResponse {
        match self {
            Self::Line(malformed) => malformed.to_response(),
            Self::Shape { id, command, reason } | Self::Refused { id, command, reason } => {
                OmpResponse::failure(id.clone(), command.clone(), reason.clone())
            }
        }
    }
}
