//! A gate whose deadline has passed is resolved by its fallback, or asks other approvers.

use super::OpenCalls;
use crate::{
    decision::{DecisionContext, Event, Fact},
    gate::{self, sign_off},
};

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    // Every decision comes by here, and an agent can have thousands of gates.
    if !docket.view.state.is_gate_due(context.now) {
        return None;
    }
    // One at a time: all of them may be more than fits into one batch.
    let otherwise = docket.session.settings().approval_timeout;
    let (gate, mut event) =
        docket.open_gates().find_map(|gate| Some((gate, gate.check_expiry(context.now, otherwise)?)))?;
    if let gate::Event::Resolved { resolution, decision, .. } = &mut event
        && let Some(shown) = docket.view.admitted.gate_content(gate.id())
    {
        *decision = sign_off::sign_off_outcome(gate.kind(), shown, resolution, &[]);
    }
    Some(vec![docket.session_fact(Event::Gate(event))])
}
