//! A gate whose deadline has passed is resolved by its fallback, or asks others.

use super::Docket;
use crate::engine::{Context, Event, Fact};

pub(super) fn rule(docket: Docket<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    // One at a time: all of them may be more than fits into one batch.
    let event = docket.gates().find_map(|gate| gate.expire(context.now, docket.session.settings().approval_timeout))?;
    Some(vec![docket.fact(Event::Gate(event))])
}
