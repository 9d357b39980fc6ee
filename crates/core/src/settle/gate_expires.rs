//! A gate whose deadline has passed is resolved by its fallback.

use super::Docket;
use crate::engine::{Context, Event, Fact};

pub(super) fn rule(docket: Docket<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let mut gates = docket.calls().filter_map(|call| docket.view.state.gate_of(call.id()));
    // One at a time: all of them may be more than fits into one batch.
    let event = gates.find_map(|gate| gate.expire(context.now))?;
    Some(vec![docket.fact(Event::Gate(event))])
}
