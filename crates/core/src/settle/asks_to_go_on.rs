//! Asks approvers one question after several denials in a row: whether the agent may continue.

use super::OpenCalls;
use crate::{
    decision::{BranchBuilder, DecisionContext, Event, Fact},
    digest::Digest,
    gate::{ApprovalScope, Event as Happened, Fallback, GateContent, GateResolution, Kind},
    id::GateId,
};

/// Text for the agent meanwhile.
pub(super) const HELD: &str =
    "Denied: several requests in a row were denied. Nothing is asked for this agent until a person lets it go on.";

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let breaker = docket.session.agent_requests()?.breaker();
    if let Some(gate) = breaker.obsolete_gate() {
        let event = Happened::auto_resolved(gate, GateResolution::Withdrawn);
        return Some(vec![docket.session_fact(Event::Gate(event))]);
    }
    let mut branch = BranchBuilder::new(docket.session);
    open_question(docket, &mut branch, false, context);
    Some(branch.into_facts()).filter(|facts| !facts.is_empty())
}

/// Opens the question, if that is due; `wants_more` means that the agent has just requested a call.
pub(super) fn open_question(
    docket: OpenCalls<'_>,
    branch: &mut BranchBuilder<'_>,
    wants_more: bool,
    context: &mut DecisionContext,
) {
    let requester = docket.session.agent_requests();
    if docket.view.closing || !requester.is_some_and(|of| of.breaker().has_to_ask(context.now, wants_more)) {
        return;
    }
    let asker = docket.session.id().to_string();
    let question = format!("{asker} was denied several times in a row. May it go on asking?");
    let content =
        serde_json::to_string(&GateContent::GoOn { asker, question, why: None, about: serde_json::Map::new() })
            .expect("content is plain data with text keys");
    let (stage, number) = docket.session.next_place(Kind::Budget.stage());
    let opened = Happened::Opened {
        gate: GateId::new(context.fresh.next_uuid(context.now)),
        kind: Kind::Budget,
        ordinal: docket.view.state.next_ordinal(docket.session.id()),
        number,
        stage,
        run: None,
        call: None,
        subject: Digest::hash_bytes(content.as_bytes()),
        scopes: vec![ApprovalScope::Once],
        deadline: Some(context.now + docket.session.settings().approval_timeout),
        fallback: Fallback::Deny,
        remind_at: None,
        steps: Vec::new(),
    };
    branch.push_with(Event::Gate(opened), Some(content.into()));
}
