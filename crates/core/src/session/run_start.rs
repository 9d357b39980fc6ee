//! First entry of the run that works in a session, or that is to repeat its request.

use super::{event::AfterCompaction, state::Session};
use crate::{
    id::{EntryId, RunId},
    run::RunTrigger,
};

impl Session {
    /// Records that a run begins to work in it. One that repeats a request that was too long has the subject of the one before.
    pub(crate) fn start_run(&mut self, run: RunId, trigger: RunTrigger) {
        self.run = Some(run);
        if let (RunTrigger::Overflow, Some((of, _))) = (trigger, &mut self.began) {
            *of = run;
        }
    }

    /// Returns the first entry that the run which works in it has added, if it has and the entry is still there.
    pub fn run_began(&self) -> Option<&EntryId> {
        let (run, first) = self.began.as_ref()?;
        (self.run == Some(*run) && self.by_id.contains_key(first)).then_some(first)
    }

    /// Returns that of the run that was too long, while the context before it is summarised for another that repeats the request.
    pub(crate) fn asks_again_from(&self) -> Option<&EntryId> {
        let (_, first) = self
            .began
            .as_ref()
            .filter(|_| self.active_compaction().is_some_and(|it| it.then == AfterCompaction::Again))?;
        self.by_id.contains_key(first).then_some(first)
    }
}
