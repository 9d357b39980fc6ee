//! A gate whose deadline has passed is resolved by its fallback.

use super::Scene;
use crate::engine::{Context, Event, Fact};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let gates = scene.calls().filter_map(|call| scene.view.state.gate_of(call.id()));
    let facts: Vec<Fact> =
        gates.filter_map(|gate| gate.expire(context.now)).map(|event| scene.fact(Event::Gate(event))).collect();
    (!facts.is_empty()).then_some(facts)
}
