//! Lists every piece of work that is due. The owner of the engine starts work that is owed and not in flight, and cancels
//! work that is in flight and no longer owed.

use crate::{
    call::{CallPhase, Executor},
    decision::State,
    id::{CallId, RunId, SessionId},
    run::{AbortState, RunPhase},
    schedule::{FiringId, FiringStage},
};

/// Step of a firing that needs an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FiringStep {
    /// Its message has to be sent.
    Say,
    /// Its run is over, and people have to be notified.
    Tell,
}

/// One piece of work, under a key that stays the same for as long as it is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwedWork {
    /// Ask the model.
    Turn {
        /// The run.
        run: RunId,
        /// The attempt that the answer must name.
        epoch: u32,
    },
    /// Run a call.
    Call {
        /// The call.
        call: CallId,
        /// Number of the start, from 1.
        start: u32,
    },
    /// Summarise the older part of the conversation.
    Compact {
        /// The session.
        session: SessionId,
        /// The compaction that the outcome must name.
        epoch: u32,
    },
    /// Handle a firing of a job.
    Fire {
        /// The firing.
        firing: FiringId,
        /// The step.
        step: FiringStep,
    },
}

/// Returns all work that is due, in order. Work that another process started is not due: it is in doubt.
pub fn owed_work(state: &State) -> Vec<OwedWork> {
    let mut work = Vec::new();
    for run in state.runs() {
        if *run.phase() == (RunPhase::Thinking { boot: state.boot_count() }) && run.abort_state() == AbortState::No {
            work.push(OwedWork::Turn { run: run.id(), epoch: run.epoch() });
        }
    }
    for call in state.calls() {
        let runs = *call.phase() == CallPhase::Started { boot: state.boot_count() };
        if runs && !call.aborting && *call.executor() != Executor::Person {
            work.push(OwedWork::Call { call: call.id(), start: call.start_count() });
        }
    }
    for session in state.compacting_sessions() {
        if let Some(compaction) = session.active_compaction()
            && compaction.boot == state.boot_count()
            && !compaction.aborting
        {
            work.push(OwedWork::Compact { session: session.id().clone(), epoch: compaction.epoch });
        }
    }
    for (job, firing) in state.schedule().open_firings() {
        let step = match &firing.stage {
            FiringStage::Due => FiringStep::Say,
            FiringStage::Over(_) => FiringStep::Tell,
            FiringStage::MessageSent { .. } => continue,
        };
        work.push(OwedWork::Fire { firing: FiringId { job: job.id().clone(), number: firing.number }, step });
    }
    work.sort_unstable();
    work
}

/// Returns work of this process that is to stop, in order. The executor of a piece in flight stops it; work that was never begun
/// has no executor to report its end.
pub fn stopping_work(state: &State) -> Vec<OwedWork> {
    let mut work = Vec::new();
    for run in state.runs() {
        if *run.phase() == (RunPhase::Thinking { boot: state.boot_count() })
            && run.abort_state() == AbortState::Requested
        {
            work.push(OwedWork::Turn { run: run.id(), epoch: run.epoch() });
        }
    }
    for call in state.calls() {
        let runs = *call.phase() == CallPhase::Started { boot: state.boot_count() };
        if runs && call.aborting && *call.executor() != Executor::Person {
            work.push(OwedWork::Call { call: call.id(), start: call.start_count() });
        }
    }
    for session in state.compacting_sessions() {
        if let Some(compaction) = session.active_compaction()
            && compaction.boot == state.boot_count()
            && compaction.aborting
        {
            work.push(OwedWork::Compact { session: session.id().clone(), epoch: compaction.epoch });
        }
    }
    work.sort_unstable();
    work
}
