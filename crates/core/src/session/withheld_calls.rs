//! Calls with an effect that a session holds back: a person did not approve a plan, and the agent continues all the same.

use serde::{Deserialize, Serialize};

use super::{
    event::{Event, SessionEntryKind},
    state::Session,
};
use crate::{
    gate::{self, Gate, GateStage, SignOffDecision},
    id::{GateId, Lsn},
};

/// A plan or an execution that was not approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithheldCalls {
    /// The gate of the last answer.
    pub gate: GateId,
    /// [`gate::Kind::Plan`] or [`gate::Kind::Execution`].
    pub kind: gate::Kind,
    /// Never [`SignOffDecision::Approve`].
    pub decision: SignOffDecision,
    /// The record of that answer: only a later message releases the calls.
    since: Lsn,
}

impl Session {
    /// Returns the reason for which calls with an effect are held back, if they are: until a plan is approved or the person sends a
    /// message.
    pub fn withheld_calls(&self) -> Option<&WithheldCalls> {
        self.withheld.as_ref()
    }

    /// Records a decision about a plan or an execution.
    pub(crate) fn record_decision(&mut self, gate: &Gate, decision: SignOffDecision, lsn: Lsn) {
        let kind = if gate.stage() == GateStage::Execution { gate::Kind::Execution } else { gate::Kind::Plan };
        // An execution that is signed off does not approve the plan that was refused before it.
        let is_of_plan = self.withheld.is_some_and(|withheld| withheld.kind == gate::Kind::Plan);
        if decision != SignOffDecision::Approve {
            let kind = if is_of_plan { gate::Kind::Plan } else { kind };
            self.withheld = Some(WithheldCalls { gate: gate.id(), kind, decision, since: lsn });
        } else if kind == gate::Kind::Plan || !is_of_plan {
            self.withheld = None;
        }
    }

    /// Releases the calls if `event` is a message of the person that came after the refusal. One that waited in a queue
    /// since before it does not count.
    pub(crate) fn record_message(&mut self, event: &Event, lsn: Lsn) {
        if let Event::Entry { kind: SessionEntryKind::User, content_at, .. } = event
            && self.withheld.is_some_and(|withheld| content_at.unwrap_or(lsn) > withheld.since)
        {
            self.withheld = None;
        }
    }
}
