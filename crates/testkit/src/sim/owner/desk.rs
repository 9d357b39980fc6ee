//! Keeps what is in flight in step with what is owed.

use countersign_core::{
    OwedWork,
    call::{self, CallProgress},
    engine::Command,
    owed_work, run,
    session::{self, CompactionOutcome},
    stopping_work,
};

use super::{From, Item, Owner};
use crate::sim::{
    Fault, words,
    world::{Doing, World},
};

impl Owner {
    pub(super) fn reconcile(&mut self) -> Result<(), String> {
        let owed = owed_work(self.engine.state());
        self.jobs.retain(|work, job| {
            let is_owed = owed.binary_search(work).is_ok();
            job.cancelled |= !is_owed;
            is_owed || job.doing != Doing::Told
        });
        for work in owed {
            if self.jobs.contains_key(&work) {
                continue;
            }
            let planted = (matches!(work, OwedWork::Call { .. }) && self.make(Fault::OtherArguments))
                .then_some(Fault::OtherArguments);
            let mut job = World::begin(&self.engine, &self.book, &self.audit, &work, planted)?;
            if matches!(work, OwedWork::Turn { .. }) && self.make(Fault::DropTurn) {
                job.doing = Doing::Told;
            }
            if matches!(work, OwedWork::Fire { .. }) && self.make(Fault::DropFiring) {
                job.doing = Doing::Told;
            }
            self.jobs.insert(work, job);
        }
        for work in stopping_work(self.engine.state()) {
            if !self.jobs.contains_key(&work)
                && let Some(command) = self.never_begun(work)
                && !self.line.iter().any(|item| item.from == From::Work && item.command_is(&command))
            {
                self.line.push_back(Item { command, from: From::Work });
            }
        }
        Ok(())
    }

    /// What is to stop and was never begun says so, for nobody else can.
    fn never_begun(&mut self, work: OwedWork) -> Option<Command> {
        Some(match work {
            OwedWork::Turn { run, epoch } => {
                let answer = Box::new(words::stopped(&mut self.dice));
                Command::Run(run::Command::Answered { run, epoch, answer })
            }
            OwedWork::Call { call, .. } => {
                let is_asking = self.engine.state().call(call).is_some_and(call::Call::is_asking);
                let progress = if is_asking {
                    CallProgress::Broke
                } else {
                    CallProgress::NotBegun("stopped before it began".into())
                };
                Command::Call(call::Command::Ended { call, progress })
            }
            OwedWork::Compact { session, epoch } => {
                Command::Session(session, session::Command::Compacted { epoch, outcome: CompactionOutcome::Aborted })
            }
            // Nobody stops a firing: its run is stopped.
            OwedWork::Fire { .. } => return None,
        })
    }
}

impl Item {
    fn command_is(&self, other: &Command) -> bool {
        match (&self.command, other) {
            (
                Command::Run(run::Command::Answered { run, epoch, .. }),
                Command::Run(run::Command::Answered { run: of, epoch: at, .. }),
            ) => run == of && epoch == at,
            (
                Command::Call(call::Command::Ended { call, .. }),
                Command::Call(call::Command::Ended { call: of, .. }),
            ) => call == of,
            (
                Command::Session(session, session::Command::Compacted { epoch, .. }),
                Command::Session(of, session::Command::Compacted { epoch: at, .. }),
            ) => session == of && epoch == at,
            _ => false,
        }
    }
}
