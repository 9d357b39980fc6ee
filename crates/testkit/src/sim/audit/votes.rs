//! Approvers of a gate who have allowed it.

use countersign_core::id::PrincipalId;

use super::{AuditedGate, ensure};
use crate::sim::rules;

impl AuditedGate {
    pub(super) fn record_vote(&mut self, person: Option<String>) -> Result<(), String> {
        ensure(!self.votes.contains(&person), "an approver may have voted twice")?;
        ensure(person.is_some() || self.votes.is_empty(), "an identity of no known approver is a further vote")?;
        let from = self.steps.get(self.step).and_then(|step| step.from.as_ref());
        let is_among = from.is_none_or(|from| person.as_ref().is_some_and(|person| from.contains(person)));
        self.votes.push(person);
        ensure(is_among, "an approver votes who is not in this step")
    }

    /// Enters a step, whose approvers have not voted yet.
    pub(super) fn enter_step(&mut self, step: usize) -> Result<(), String> {
        ensure(step < self.steps.len() && step >= self.step, "a gate enters a step that it does not have")?;
        if step > self.step {
            self.votes.clear();
        }
        self.step = step;
        Ok(())
    }

    /// Checks that enough approvers have allowed it.
    pub(super) fn is_allowed(&self, by: Option<&PrincipalId>) -> Result<(), String> {
        let Some(step) = self.steps.get(self.step) else { return Ok(()) };
        if step.approvals > 1 {
            let enough = u32::try_from(self.votes.len()).is_ok_and(|votes| votes >= step.approvals);
            return ensure(enough, "a gate is allowed with fewer votes than its rule requires");
        }
        let person = by.and_then(|by| rules::test_people().person_of(by).map(str::to_owned));
        let from = step.from.as_ref();
        let is_among = from.is_none_or(|from| person.is_some_and(|person| from.contains(&person)));
        ensure(is_among, "a gate is allowed by an approver that its rule does not name")
    }
}
