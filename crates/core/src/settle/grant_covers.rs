//! A pending approval that a grant covers is resolved by it.

use super::{OpenCalls, evaluate_policy};
use crate::{
    decision::{DecisionContext, Event, Fact},
    gate::{Event as Happened, GateResolution, Kind},
    policy::Verdict,
};

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    // Without grants, no call has to be checked.
    let grants = docket.view.state.policy().grants();
    grants.iter().next()?;
    let gate = docket.open_calls().find_map(|call| {
        let gate = docket.view.state.gate_of(call.id())?;
        (gate.is_pending() && gate.kind() == Kind::Approval && grants.may_cover(gate.subject)).then_some(())?;
        let subject = docket.policy_subject(call)?;
        grants.covering_grant(&subject, docket.view.rules.path_context.realm.as_deref(), context.now)?;
        // A floor and a denial are stronger than any grant.
        matches!(evaluate_policy(docket.view, docket.session, &subject, context.now), Verdict::Allow(_))
            .then_some(gate.id())
    })?;
    let event = Happened::auto_resolved(gate, GateResolution::Granted);
    Some(vec![docket.session_fact(Event::Gate(event))])
}
