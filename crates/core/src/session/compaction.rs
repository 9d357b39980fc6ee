//! A summary that is being made of what is old.

use serde::{Deserialize, Serialize};

use super::{
    event::{AfterCompaction, CompactionCause},
    state::{MessageQueue, QueuedMessage, Session},
};
use crate::{
    id::{EntryId, Lsn, RunId},
    run::RunMetadata,
};

/// A compaction that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveCompaction {
    /// Counts compactions of this session.
    pub epoch: u32,
    /// Why.
    pub reason: CompactionCause,
    /// The oldest entry that is kept.
    pub first_kept: EntryId,
    /// The first entry of a turn that the cut goes through.
    pub split_from: Option<EntryId>,
    /// Tokens of the context before.
    pub tokens_before: u64,
    /// What goes on afterwards.
    pub then: AfterCompaction,
    /// True once somebody stopped it.
    pub aborting: bool,
    /// Where the instructions of whoever asked lie, if any.
    pub instructions: Lsn,
    /// The boot of the process that works on it.
    pub boot: u32,
    /// The run that the prompt which waits begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// What was noted of the run that asks again afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<Box<RunMetadata>>,
}

impl Session {
    /// The run that begins once a compaction is over: with the prompt that waits for it, or to ask again what was too long.
    pub fn awaited_run(&self) -> Option<RunId> {
        let compaction = self.active_compaction()?;
        let asks_again = compaction.then == AfterCompaction::Again && !compaction.aborting;
        compaction.run.filter(|_| self.awaited_prompt().is_some() || asks_again)
    }

    /// The message that gets a run of its own once the compaction under way is over, which was begun for it. None where that was
    /// taken back: what came since is not what it is made for.
    pub fn behind_compaction(&self) -> Option<&QueuedMessage> {
        let compaction = self.active_compaction()?;
        let is_for_next = compaction.reason == CompactionCause::Threshold && compaction.then == AfterCompaction::Rest;
        self.queue(MessageQueue::Next).front().filter(|next| is_for_next && next.content < compaction.instructions)
    }
}
