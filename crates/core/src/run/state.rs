//! The state of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    command::ProviderFailure,
    event::{Event, RunOutcome, RunTrigger},
    interrupt::InterruptMode,
    run_metadata::RunMetadata,
};
use crate::{
    id::{CallId, EntryId, GateId, PrincipalId, RunId, SessionId},
    message::StopReason,
    model_ref::ModelRef,
    time::Millis,
};

/// Phase of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// A turn is open; queues are read before the model request.
    Opening,
    /// The model request is in flight.
    Thinking {
        /// The process that sent it.
        boot: u32,
    },
    /// The model has answered; its calls, if there are any, are judged, wait and run.
    Calling,
    /// The turn is closed; queues are read again.
    Between,
    /// Waiting before another attempt.
    Backoff {
        /// Time at which it continues.
        until: Millis,
    },
    /// Ended.
    Ended(RunOutcome),
}

/// State of a stop request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortState {
    /// Not stopped.
    No,
    /// Stopped; the work in flight ends first.
    #[serde(rename = "asked")]
    Requested,
}

/// An agent at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) session: SessionId,
    pub(crate) trigger: RunTrigger,
    pub(crate) phase: RunPhase,
    pub(crate) abort: AbortState,
    /// Number of the attempt whose result counts.
    pub(crate) epoch: u32,
    pub(crate) turn: u32,
    /// Retries since the provider last answered.
    pub(crate) attempt: u32,
    /// The calls of the open turn, in the order of the message.
    pub(crate) calls: Vec<CallId>,
    pub(crate) last: Option<(EntryId, StopReason, Option<ProviderFailure>)>,
    /// True if the last turn had calls.
    pub(crate) called: bool,
    /// Time of the last model request, which is the time of its message.
    #[serde(default)]
    pub(crate) asked_at: Millis,
    /// The model of the last request; absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "asked")]
    pub(crate) last_model: Option<ModelRef>,
    /// The question to approvers about its current wait, pending or answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gate: Option<GateId>,
    /// The models that people may choose to replace the one that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<ModelRef>,
    /// Maximum number of output tokens, if the budget leaves fewer than the model can write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cap: Option<u64>,
    /// Number of denials by persons in a row.
    pub(crate) denials: u32,
    /// Number of denials by person, as far as known.
    #[serde(default)]
    pub(crate) denied_by: BTreeMap<PrincipalId, u32>,
    /// Interrupt mode, as it was set when the run began.
    #[serde(default)]
    pub(crate) interrupt: InterruptMode,
    /// Metadata from its adapter.
    #[serde(default)]
    pub(crate) marks: Box<RunMetadata>,
}

impl Run {
    pub(crate) fn start(id: RunId, session: SessionId, trigger: RunTrigger, interrupt: InterruptMode) -> Self {
        Self {
            id,
            session,
            trigger,
            phase: RunPhase::Opening,
            abort: AbortState::No,
            epoch: 0,
            turn: 0,
            attempt: 0,
            calls: Vec::new(),
            last: None,
            called: false,
            asked_at: Millis(0),
            last_model: None,
            gate: None,
            others: Vec::new(),
            cap: None,
            denials: 0,
            denied_by: BTreeMap::new(),
            interrupt,
            marks: Box::default(),
        }
    }

    /// Returns its id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Returns the metadata from its adapter.
    pub fn run_metadata(&self) -> &RunMetadata {
        &self.marks
    }

    /// Returns the time of the last model request.
    pub fn asked_at(&self) -> Millis {
        self.asked_at
    }

    /// Returns the maximum number of output tokens, if that is fewer than the model can write.
    pub fn token_cap(&self) -> Option<u64> {
        self.cap
    }

    /// Returns the session that it works in.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns its phase.
    pub fn phase(&self) -> &RunPhase {
        &self.phase
    }

    /// Reports whether it was stopped.
    pub fn abort_state(&self) -> AbortState {
        self.abort
    }

    /// Returns the number of the attempt whose result counts.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the number of the open turn, from 1.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Returns the calls of the open turn.
    pub fn calls(&self) -> &[CallId] {
        &self.calls
    }

    /// Returns the entry of the last message of the model in the open turn.
    pub fn last_answer(&self) -> Option<&EntryId> {
        self.last.as_ref().map(|(entry, ..)| entry)
    }

    /// Returns the number of retries since the provider last answered.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the question to approvers about its current wait, pending or answered.
    pub fn wait_question(&self) -> Option<GateId> {
        self.gate
    }

    /// Reports whether another attempt is due, now or after a wait, and has not begun: resuming the run then sends nothing twice.
    pub(crate) fn awaits_attempt(&self) -> bool {
        match self.phase {
            RunPhase::Backoff { .. } => true,
            RunPhase::Between => self.last.is_none(),
            RunPhase::Opening | RunPhase::Thinking { .. } | RunPhase::Calling | RunPhase::Ended(_) => false,
        }
    }

    /// Reports whether its last message ended in an error. Such a message is not shown, so its calls can have no results.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.last, Some((_, StopReason::Error, _)))
    }

    /// Reports whether any of the denials in a row is the person's own, or may be.
    pub(crate) fn was_denied_by(&self, person: &PrincipalId) -> bool {
        self.denied_by.contains_key(person) || self.denials > self.denied_by.values().sum()
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Started { .. } | Event::ResultDropped { .. } => {}
            Event::Marked { marks, .. } => self.marks.clone_from(marks),
            Event::TurnOpened { turn, .. } => {
                self.turn = *turn;
                self.phase = RunPhase::Opening;
                self.calls.clear();
                self.last = None;
            }
            Event::ModelRequested { epoch, boot, model, cap, .. } => {
                self.last_model = Some(model.clone());
                self.cap = *cap;
                self.epoch = *epoch;
                self.phase = RunPhase::Thinking { boot: *boot };
            }
            Event::Answered { entry, stop, calls, failure, others, .. } => {
                self.others.clone_from(others);
                self.last = Some((entry.clone(), *stop, *failure));
                self.called = *calls > 0;
                if failure.is_none() {
                    self.attempt = 0;
                }
                self.phase = RunPhase::Calling;
            }
            Event::TurnClosed { .. } => self.phase = RunPhase::Between,
            Event::BackedOff { attempt, until, gate, .. } => {
                self.attempt = *attempt;
                self.gate = *gate;
                self.phase = RunPhase::Backoff { until: *until };
            }
            Event::Resumed { .. } | Event::Interrupted { .. } => {
                self.gate = None;
                self.phase = RunPhase::Between;
                self.last = None;
                self.called = false;
            }
            Event::Denied { in_a_row, by, .. } => {
                self.denials = *in_a_row;
                if let Some(by) = by {
                    *self.denied_by.entry(by.clone()).or_default() += 1;
                }
            }
            Event::DenialsForgiven { of, .. } => {
                match of {
                    Some(person) => drop(self.denied_by.remove(person)),
                    None => self.denied_by.clear(),
                }
                self.denials = self.denied_by.values().sum();
            }
            Event::Aborting { .. } => self.abort = AbortState::Requested,
            Event::Ended { end, .. } => self.phase = RunPhase::Ended(*end),
        }
    }
}
