//! Where the run began that works in a session, or that is to ask again.

use super::{event::AfterCompaction, state::Session};
use crate::{
    id::{EntryId, RunId},
    run::RunTrigger,
};

impl Session {
    /// A run begins to work in it. One that asks again what was too long is about what the one before was about.
    pub(crate) fn start_run(&mut self, run: RunId, trigger: RunTrigger) {
        self.run = Some(run);
        if let (RunTrigger::Overflow, Some((of, _))) = (trigger, &mut self.began) {
            *of = run;
        }
    }

    /// The first entry that the run which works in it has added, if it has and the entry is still there.
    pub fn run_began(&self) -> Option<&EntryId> {
        let (run, first) = self.began.as_ref()?;
        (self.run == Some(*run) && self.by_id.contains_key(first)).then_some(first)
    }

    /// The same of the run that was too long, while what came before it is summed up for another that asks again.
    pub(crate) fn asks_again_from(&self) -> Option<&EntryId> {
        let (_, first) = self
            .began
            .as_ref()
            .filter(|_| self.active_compaction().is_some_and(|it| it.then == AfterCompaction::Again))?;
        self.by_id.contains_key(first).then_some(first)
    }
}
