//! A pending approval that a grant covers is resolved by it.

use super::{Docket, evaluate};
use crate::{
    decision::{DecisionContext, Event, Fact},
    gate::{Event as Happened, Kind, Resolution},
    policy::Verdict,
};

pub(super) fn rule(docket: Docket<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    // Where nothing was granted, no call has to be looked at.
    let grants = docket.view.state.policy().grants();
    grants.iter().next()?;
    let gate = docket.calls().find_map(|call| {
        let gate = docket.view.state.gate_of(call.id())?;
        (gate.is_pending() && gate.kind() == Kind::Approval && grants.may_cover(gate.subject)).then_some(())?;
        let subject = docket.subject(call)?;
        grants.covering_grant(&subject, docket.view.rules.path_context.realm.as_deref(), context.now)?;
        // A floor and a denial are stronger than any grant.
        matches!(evaluate(docket.view, docket.session, &subject, context.now), Verdict::Allow(_)).then_some(gate.id())
    })?;
    let event = Happened::ended(gate, Resolution::Granted);
    Some(vec![docket.fact(Event::Gate(event))])
}
