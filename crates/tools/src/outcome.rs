//! Result of a call, or the reason that it gave none.
//!
//! It must not know any tool.

use countersign_core::message::MessageBlock;
use serde_json::Value;

/// Output of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallOutput {
    /// Text and image blocks for the model.
    pub content: Vec<MessageBlock>,
    /// Facts for a program; the shape is the tool's own.
    pub details: Option<Value>,
    /// True if the tool ran and what it did went wrong, such as a command that exited with 1.
    pub is_error: bool,
}

impl CallOutput {
    /// Creates a result of one text block.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { content: vec![MessageBlock::from_text(text)], details: None, is_error: false }
    }

    /// Returns the same result with facts for a program.
    #[must_use]
    pub fn with_details(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }
}

/// Reason that a call gave no result. The text is for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The arguments do not fit; nothing was done.
    #[error("{0}")]
    Invalid(String),
    /// The call was not begun, for a reason that is not in the arguments.
    #[error("{0}")]
    NotBegun(String),
    /// The work could not be done, with known effects: none, or those in the text.
    #[error("{0}")]
    Failed(String),
    /// The work began, and it is not known whether it took effect.
    #[error("{0}")]
    InDoubt(String),
    /// The call was stopped; the text holds the output so far.
    #[error("{0}")]
    Cancelled(String),
}
