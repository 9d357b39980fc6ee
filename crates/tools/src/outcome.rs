//! What a call gave back, or why it gave nothing.
//!
//! It must not know any tool.

use countersign_core::message::MessageBlock;
use serde_json::Value;

/// What a call gave back.
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
    /// A result of one text block.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self { content: vec![MessageBlock::from_text(text)], details: None, is_error: false }
    }

    /// The same result with facts for a program.
    #[must_use]
    pub fn with_details(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }
}

/// Why a call gave nothing back. The text is for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The arguments do not fit; nothing was done.
    #[error("{0}")]
    Invalid(String),
    /// Nothing was begun, for a reason that is not in the arguments.
    #[error("{0}")]
    NotBegun(String),
    /// The work could not be done, and what that left is known: nothing, or what the text says.
    #[error("{0}")]
    Failed(String),
    /// It began, and it is not known whether it took effect.
    #[error("{0}")]
    InDoubt(String),
    /// Somebody stopped it; the text holds what was there so far.
    #[error("{0}")]
    Cancelled(String),
}
