//! A gate whose deadline has passed is resolved by its fallback.

use super::Docket;
use crate::engine::{Context, Event, Fact};

pub(super) fn rule(docket: Docket<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let gates = docket.calls().filter_map(|call| docket.view.state.gate_of(call.id()));
    let facts: Vec<Fact> =
        gates.filter_map(|gate| gate.expire(context.now)).map(|event| docket.fact(Event::Gate(event))).collect();
    (!facts.is_empty()).then_some(facts)
}
