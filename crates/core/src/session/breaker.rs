//! After several denials in a row an agent is asked about no more, until a person lets it go on.

use serde::{Deserialize, Serialize};

use crate::{
    id::{GateId, Lsn, PrincipalId},
    policy::DENIAL_LASTS,
    time::Millis,
};

/// Denials in a row that trip it.
pub const TRIPS_AT: usize = 3;

/// Whether people are asked about what an agent requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    phase: BreakerPhase,
    /// Who denied, since one of them allowed something.
    denied_by: Vec<PrincipalId>,
    /// Where the last of these denials was recorded, and when.
    last: Lsn,
    last_at: Millis,
    /// A question that waits and whose answer nobody needs any more.
    obsolete: Option<GateId>,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerPhase {
    /// People are asked.
    #[default]
    Closed,
    /// They are asked one thing: whether it may go on.
    #[serde(rename = "asked")]
    Pending(GateId),
    /// Somebody said that it may not, until then.
    Held(Millis),
    /// Nobody answered. The next request asks again.
    Lapsed,
}

impl Breaker {
    /// How far it has come.
    pub const fn phase(&self) -> BreakerPhase {
        self.phase
    }

    /// The question that waits, whether or not its answer is needed.
    pub fn pending_gate(&self) -> Option<GateId> {
        match self.phase {
            BreakerPhase::Pending(gate) => Some(gate),
            BreakerPhase::Closed | BreakerPhase::Held(_) | BreakerPhase::Lapsed => self.obsolete,
        }
    }

    /// The question that waits and whose answer nobody needs any more.
    pub const fn obsolete_gate(&self) -> Option<GateId> {
        self.obsolete
    }

    /// Whether people are asked about nothing else.
    pub fn is_open(&self) -> bool {
        match self.phase {
            BreakerPhase::Closed => self.denied_by.len() >= TRIPS_AT,
            BreakerPhase::Pending(_) | BreakerPhase::Lapsed | BreakerPhase::Held(_) => true,
        }
    }

    /// Whether people have to be asked whether the agent may go on: because it tripped, or because it wants something
    /// again after nobody answered, or after the answer has lost its force.
    pub fn has_to_ask(&self, now: Millis, wants_more: bool) -> bool {
        match self.phase {
            BreakerPhase::Closed => self.denied_by.len() >= TRIPS_AT,
            BreakerPhase::Pending(_) => false,
            BreakerPhase::Held(until) => wants_more && until <= now,
            BreakerPhase::Lapsed => wants_more,
        }
    }

    /// Somebody denied at `at` what the agent had asked for at `asked`. Of what it asked for before it could know of the
    /// last denial no more counts: only who goes on asking is stopped.
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

    /// Somebody allowed something: that ends a row, and whose denials it were takes them back with it.
    pub(crate) fn record_approval(&mut self, by: &PrincipalId) {
        if !self.is_open() || self.denied_by.contains(by) {
            self.reset();
        }
    }

    /// Closes it, whatever was denied.
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

    /// What was answered to the question that it asked.
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

/// An answer to whether an agent may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerAnswer {
    /// It may.
    Yes,
    /// It may not.
    No,
    /// Nobody said anything.
    Nothing,
}
