//! Outcome of a command, or the reason why it had no effect.

use std::sync::Arc;

use countersign_core::engine::{self, CommandError};

/// Outcome of a command, and its position in the order of releases.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerReply {
    /// Outcome of the command.
    pub outcome: engine::EngineReply,
    /// The number of the first frame that was released after it.
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
    /// The log broke off while it was recorded, and its outcome is unknown. It may have happened.
    #[error("it is not known whether this was recorded: {0}")]
    Unsure(Arc<str>),
    /// The resulting facts are too long for a record. Nothing has happened.
    #[error("this is too long to be recorded")]
    TooLarge,
    /// The command needs records of the log, and the log cannot be read. Nothing has happened.
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

/// Result that the sender of a command gets.
pub(crate) type ReplyResult = Result<OwnerReply, OwnerError>;
