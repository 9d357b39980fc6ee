//! The active compaction of a session.

use serde::{Deserialize, Serialize};

use super::{
    event::{AfterCompaction, CompactionCause},
    state::{MessageQueue, QueuedMessage, Session},
};
use crate::{
    id::{EntryId, Lsn, RunId},
    run::RunMetadata,
};

/// A compaction that is active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveCompaction {
    /// Number of the compaction in this session.
    pub epoch: u32,
    /// Cause.
    pub reason: CompactionCause,
    /// The oldest entry that is kept.
    pub first_kept: EntryId,
    /// The first entry of a turn that the cut goes through.
    pub split_from: Option<EntryId>,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// Work that continues afterwards.
    pub then: AfterCompaction,
    /// True once it was stopped.
    pub aborting: bool,
    /// Position of the instructions of the requester, if any.
    pub instructions: Lsn,
    /// The boot of the process that works on it.
    pub boot: u32,
    /// The run that the prompt which waits begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Metadata of the run that repeats its request afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<Box<RunMetadata>>,
}

impl Session {
    /// Returns the run that begins once a compaction is over: with the waiting prompt, or to repeat a request that was too long.
    pub fn awaited_run(&self) -> Option<RunId> {
        let compaction = self.active_compaction()?;
        let asks_again = compaction.then == AfterCompaction::Again && !compaction.aborting;
        compaction.run.filter(|_| self.awaited_prompt().is_some() || asks_again)
    }

    /// Returns the message that gets a run of its own after the compaction that was begun for it. None if the message was
    /// taken back: the compaction is not made for later messages.
    pub fn behind_compaction(&self) -> Option<&QueuedMessage> {
        let compaction = self.active_compaction()?;
        let is_for_next = compaction.reason == CompactionCause::Threshold && compaction.then == AfterCompaction::Rest;
        self.queue(MessageQueue::Next).front().filter(|next| is_for_next && next.content < compaction.instructions)
    }
}
