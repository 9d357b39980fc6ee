//! A gate whose deadline has passed is resolved by its fallback, or asks others.

use super::Docket;
use crate::{
    decision::{DecisionContext, Event, Fact},
    gate::{self, sign_off},
};

pub(super) fn rule(docket: Docket<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    // One at a time: all of them may be more than fits into one batch.
    let otherwise = docket.session.settings().approval_timeout;
    let (gate, mut event) = docket.gates().find_map(|gate| Some((gate, gate.expire(context.now, otherwise)?)))?;
    if let gate::Event::Resolved { resolution, decision, .. } = &mut event
        && let Some(shown) = docket.view.admitted.gate_content(gate.id())
    {
        *decision = sign_off::outcome(gate.kind(), shown, resolution, &[]);
    }
    Some(vec![docket.fact(Event::Gate(event))])
}
