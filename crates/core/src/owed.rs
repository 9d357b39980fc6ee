//! Names every piece of work that is due. Whoever runs the engine starts what is owed and not in flight, and cancels
//! what is in flight and no longer owed.

use crate::{
    call::{CallPhase, Executor},
    decision::State,
    id::{CallId, RunId, SessionId},
    run::{AbortState, RunPhase},
    schedule::{FiringId, FiringStage},
};

/// What a firing of a job needs somebody for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FiringStep {
    /// Its message has to be said.
    Say,
    /// Its run is over, and people have to be told.
    Tell,
}

/// One piece of work, under a key that stays the same for as long as it is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwedWork {
    /// Ask the model.
    Turn {
        /// For this run.
        run: RunId,
        /// The attempt that the answer must name.
        epoch: u32,
    },
    /// Run a call.
    Call {
        /// Which.
        call: CallId,
        /// Which start of it, from 1.
        start: u32,
    },
    /// Summarise what is old.
    Compact {
        /// In this session.
        session: SessionId,
        /// The compaction that the outcome must name.
        epoch: u32,
    },
    /// See to a firing of a job.
    Fire {
        /// Which.
        firing: FiringId,
        /// What it needs.
        step: FiringStep,
    },
}

/// All work that is due, in order. What another process started is not due: it is in doubt.
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

/// Work of this process that is to stop, in order. Whoever has a piece of it in flight stops it; what was never begun
/// has nobody else to say so.
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
