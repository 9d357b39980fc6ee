//! Says why a line cannot be read, and what it is answered.
//!
//! It must not know how lines are read.

use crate::omp::command::fields::CommandFields;
use crate::omp::{self, OmpRequestId, OmpResponse};

/// How much of the form of a command matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStrictness {
    /// What the original looks over on stdio is looked over.
    Stdio,
    /// Nothing is.
    Bridge,
}

/// Why a line is no command. [`Malformed::response`] is the documented answer; the stream goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GjcParseError {
    /// It is no command at all, or an answer that says nothing. Answered as `parse`, without an id.
    #[error("{0}")]
    Line(omp::OmpParseError),
    /// A known command lacks a field, or has one of another form. The bridge answers it with 400.
    #[error("{reason}")]
    Shape {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// Its `type`.
        command: String,
        /// What is wrong.
        reason: String,
    },
    /// A known command has a value that it cannot have.
    #[error("{reason}")]
    Refused {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// Its `type`.
        command: String,
        /// What is wrong, in the original's words.
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
