//! A pending approval that a grant covers is resolved by it.

use super::{Scene, evaluate};
use crate::{
    engine::{Context, Event, Fact},
    gate::{Event as Happened, Kind, Resolution},
    policy::Verdict,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    // Where nothing was granted, no call has to be looked at.
    let grants = scene.view.state.policy().grants();
    grants.iter().next()?;
    let gate = scene.calls().find_map(|call| {
        let gate = scene.view.state.gate_of(call.id())?;
        (gate.is_pending() && gate.kind() == Kind::Approval && grants.may_cover(gate.subject)).then_some(())?;
        let subject = scene.subject(call)?;
        grants.covers(&subject, context.now)?;
        // A floor and a denial are stronger than any grant.
        matches!(evaluate(scene.view, &subject, context.now), Verdict::Allow(_)).then_some(gate.id())
    })?;
    let event = Happened::Resolved { gate, resolution: Resolution::Granted, by: None, key: None };
    Some(vec![scene.fact(Event::Gate(event))])
}
