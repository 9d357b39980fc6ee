//! Messages as the content of records.

use std::sync::Arc;

/// A message as content: the JSON of a [`crate::message::StoredMessage`] and an estimate of its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageContent {
    /// The JSON text.
    pub content: Arc<str>,
    /// Estimated tokens.
    pub tokens: u64,
}
