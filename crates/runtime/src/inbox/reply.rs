//! What a command came to, or why it had no effect.

use std::sync::Arc;

use countersign_core::engine::{self, CommandError};

/// What a command came to, and where in the order of releases that stands.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerReply {
    /// What it came to.
    pub outcome: engine::EngineReply,
    /// The number of the first frame that was released behind it.
    pub position: u64,
}

/// Why a command had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// The engine refused it.
    #[error(transparent)]
    Refusal(#[from] CommandError),
    /// The log could not record it. Nothing has happened.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    /// The log broke off while it was recorded, and cannot say what became of it. It may have happened.
    #[error("it is not known whether this was recorded: {0}")]
    Unsure(Arc<str>),
    /// What follows from it is too long for a record. Nothing has happened.
    #[error("this is too long to be recorded")]
    TooLarge,
    /// What it is about lies in the log, and the log cannot be read. Nothing has happened.
    #[error("the log cannot be read: {0}")]
    Unreadable(Arc<str>),
    /// Deciding it went wrong inside. Nothing has happened.
    #[error("internal error: this command could not be decided")]
    Panicked,
    /// The owner has ended.
    #[error("the session is closed")]
    Closed,
}

/// The log could not record it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not recorded: {0}")]
pub struct NotRecorded(pub Arc<str>);

/// What whoever asked is told.
pub(crate) type ReplyResult = Result<OwnerReply, OwnerError>;
