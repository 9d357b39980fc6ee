//! Reconciles the work in flight with the owed work.

use countersign_core::{
    OwedWork,
    call::{self, CallProgress},
    engine::Command,
    owed_work, run,
    session::{self, CompactionOutcome},
    stopping_work,
};

use super::{ReplyTarget, SimCommand, SimOwner};
use crate::sim::{
    PlantedFault, messages,
    world::{SimWorld, WorkProgress},
};

impl SimOwner {
    pub(super) fn reconcile(&mut self) -> Result<(), String> {
        let owed = owed_work(self.engine.state());
        self.jobs.retain(|work, job| {
            let is_owed = owed.binary_search(work).is_ok();
            job.cancelled |= !is_owed;
            is_owed || job.doing != WorkProgress::Reported
        });
        for work in owed {
            if self.jobs.contains_key(&work) {
                continue;
            }
            let planted = (matches!(work, OwedWork::Call { .. }) && self.plant_fault(PlantedFault::OtherArguments))
                .then_some(PlantedFault::OtherArguments);
            let mut job = SimWorld::begin_work(&self.engine, &self.log, &self.audit, &work, planted)?;
            if matches!(work, OwedWork::Turn { .. }) && self.plant_fault(PlantedFault::DropTurn) {
                job.doing = WorkProgress::Reported;
            }
            if matches!(work, OwedWork::Fire { .. }) && self.plant_fault(PlantedFault::DropFiring) {
                job.doing = WorkProgress::Reported;
            }
            self.jobs.insert(work, job);
        }
        for work in stopping_work(self.engine.state()) {
            if !self.jobs.contains_key(&work)
                && let Some(command) = self.never_begun(work)
                && !self.line.iter().any(|item| item.from == ReplyTarget::Work && item.command_is(&command))
            {
                self.line.push_back(SimCommand { command, from: ReplyTarget::Work });
            }
        }
        Ok(())
    }

    /// Reports work that is to stop and was never begun, as no other party can.
    fn never_begun(&mut self, work: OwedWork) -> Option<Command> {
        Some(match work {
            OwedWork::Turn { run, epoch } => {
                let answer = Box::new(messages::stopped_answer(&mut self.rng));
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
            // A firing is not stopped: its run is.
            OwedWork::Fire { .. } => return None,
        })
    }
}

impl SimCommand {
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
