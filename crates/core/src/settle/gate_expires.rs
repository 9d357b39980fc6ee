//! A gate whose deadline has passed is resolved by its fallback.

use super::Scene;
use crate::engine::{Context, Event, Fact};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let mut gates = scene.calls().filter_map(|call| scene.view.state.gate_of(call.id()));
    // One at a time: all of them may be more than fits into one batch.
    let event = gates.find_map(|gate| gate.expire(context.now))?;
    Some(vec![scene.fact(Event::Gate(event))])
}
