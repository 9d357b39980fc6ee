//! Stops approval requests of an agent after several denials in a row, until a person lets it continue.

use serde::{Deserialize, Serialize};

use crate::{
    id::{GateId, Lsn, PrincipalId},
    policy::DENIAL_LASTS,
    time::Millis,
};

/// Denials in a row that trip it.
pub const TRIPS_AT: usize = 3;

/// State of the breaker of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    phase: BreakerPhase,
    /// Persons who denied, since one of them allowed a call.
    denied_by: Vec<PrincipalId>,
    /// Position and time of the record of the last denial.
    last: Lsn,
    last_at: Millis,
    /// A pending question whose answer is no longer needed.
    obsolete: Option<GateId>,
}

/// Phase of a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerPhase {
    /// Approvers are asked about requests.
    #[default]
    Closed,
    /// Approvers are only asked whether it may continue.
    #[serde(rename = "asked")]
    Pending(GateId),
    /// A person decided that it may not, until then.
    Held(Millis),
    /// No answer came. The next request asks again.
    Lapsed,
}

impl Breaker {
    /// Returns its phase.
    pub const fn phase(&self) -> BreakerPhase {
        self.phase
    }

    /// Returns the pending question, whether or not its answer is needed.
    pub fn pending_gate(&self) -> Option<GateId> {
        match self.phase {
            BreakerPhase::Pending(gate) => Some(gate),
            BreakerPhase::Closed | BreakerPhase::Held(_) | BreakerPhase::Lapsed => self.obsolete,
        }
    }

    /// Returns the pending question whose answer is no longer needed.
    pub const fn obsolete_gate(&self) -> Option<GateId> {
        self.obsolete
    }

    /// Reports whether approvers are asked about nothing else.
    pub fn is_open(&self) -> bool {
        match self.phase {
            BreakerPhase::Closed => self.denied_by.len() >= TRIPS_AT,
            BreakerPhase::Pending(_) | BreakerPhase::Lapsed | BreakerPhase::Held(_) => true,
        }
    }

    /// Reports whether approvers have to be asked if the agent may continue: because it tripped, or because it requests a call
    /// again after no answer came, or after the answer has expired.
    pub fn has_to_ask(&self, now: Millis, wants_more: bool) -> bool {
        match self.phase {
            BreakerPhase::Closed => self.denied_by.len() >= TRIPS_AT,
            BreakerPhase::Pending(_) => false,
            BreakerPhase::Held(until) => wants_more && until <= now,
            BreakerPhase::Lapsed => wants_more,
        }
    }

    /// Records a denial at `at` of a request made at `asked`. Of requests that the agent made before it could know of the
    /// last denial no more counts: only an agent that continues to ask is stopped.
    pub(crate) fn record_denial(&mut self, by: PrincipalId, requested: Lsn, (lsn, at): (Lsn, Millis)) {
        if self.phase == BreakerPhase::Closed && requested > self.last {
            // A denial that no longer binds is not one of a row either.
            if self.last_at + DENIAL_LASTS <= at {
                self.denied_by.clear();
            }
            self.denied_by.push(by);
            (self.last, self.last_at) = (lsn, at);
        }
    }

    /// Records an approval: it ends a row, and revokes the approver's own denials.
    pub(crate) fn record_approval(&mut self, by: &PrincipalId) {
        if !self.is_open() || self.denied_by.contains(by) {
            self.reset();
        }
    }

    /// Closes it, after any denials.
    pub(crate) fn reset(&mut self) {
        let obsolete = match self.phase {
            BreakerPhase::Pending(gate) => Some(gate),
            BreakerPhase::Closed | BreakerPhase::Held(_) | BreakerPhase::Lapsed => self.obsolete,
        };
        *self = Self { obsolete, ..Self::default() };
    }

    pub(crate) fn open_question(&mut self, gate: GateId) {
        self.phase = BreakerPhase::Pending(gate);
    }

    /// Records the answer to its question.
    pub(crate) fn record_answer(&mut self, gate: GateId, answer: BreakerAnswer, at: Millis) {
        if self.obsolete == Some(gate) {
            self.obsolete = None;
        }
        if self.phase != BreakerPhase::Pending(gate) {
            return;
        }
        match answer {
            BreakerAnswer::Yes => *self = Self::default(),
            BreakerAnswer::No => self.phase = BreakerPhase::Held(at + DENIAL_LASTS),
            BreakerAnswer::Nothing => self.phase = BreakerPhase::Lapsed,
        }
    }
}

/// Answer to the question whether an agent may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerAnswer {
    /// The agent may continue.
    Yes,
    /// The agent may not continue.
    No,
    /// No answer came.
    Nothing,
}
