//! Errors of lines that cannot be read, and the answers to them.
//!
//! It must not know how lines are read.

use super::OmpRequestId;
use crate::omp::response::OmpResponse;

/// Why a line is no command. [`OmpParseError::to_response`] is the documented answer; the stream goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OmpParseError {
    /// The line has more bytes than we read.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The most bytes that a line may have.
        limit: usize,
    },
    /// The line is not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// The line is not JSON.
    #[error("{reason}")]
    NotJson {
        /// Position and reason.
        reason: String,
    },
    /// The line is JSON, but no object.
    #[error("a command is an object")]
    NotAnObject,
    /// A known command lacks a field, or has a wrong one.
    #[error("{command}: `{field}` {fault}")]
    Field {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// The `type` of the frame.
        command: String,
        /// The name of the field.
        field: &'static str,
        /// Fault of the field.
        fault: FieldFault,
    },
    /// A known command has a value that it cannot have.
    #[error("{reason}")]
    Refused {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// The `type` of the frame.
        command: String,
        /// Description of the error.
        reason: String,
    },
    /// An answer to a dialog does not say exactly one thing.
    #[error("extension_ui_response: needs either `value`, `confirmed` or `cancelled`: true")]
    Answer,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// It is not there, or null.
    #[error("is required")]
    Missing,
    /// It is something else.
    #[error("must be {0}")]
    Expected(&'static str),
}

impl OmpParseError {
    /// Returns the answer: a failure of command `parse`, with the id of the request if the line was a command.
    pub fn to_response(&self) -> OmpResponse {
        let id = match self {
            Self::Field { id, .. } | Self::Refused { id, .. } => id.clone(),
            Self::TooLong { .. } | Self::NotUtf8 | Self::NotJson { .. } | Self::NotAnObject | Self::Answer => None,
        };
        OmpResponse::parse_failure(id, self)
    }
}
