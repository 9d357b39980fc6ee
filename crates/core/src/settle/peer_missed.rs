//! A call that waited for its peer until its deadline ends: nothing of it was sent, or its outcome is unknown.

use super::OpenCalls;
use crate::{
    call::{Call, CallEnd},
    decision::{BranchBuilder, DecisionContext, Fact, texts},
};

pub(super) fn due_facts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let call = docket.open_calls().find(|call| is_due(call, context))?;
    Some(give_up(docket, call, context))
}

/// Ends in the same way actions of peers that people started.
pub(super) fn of_acts(docket: OpenCalls<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let call = docket.peer_actions().find(|call| is_due(call, context))?;
    Some(give_up(docket, call, context))
}

fn is_due(call: &Call, context: &DecisionContext) -> bool {
    call.until.is_some_and(|until| until <= context.now)
}

fn give_up(docket: OpenCalls<'_>, call: &Call, context: &mut DecisionContext) -> Vec<Fact> {
    let mut branch = BranchBuilder::new(docket.session);
    let (end, text) =
        if call.may_be_asked() { (CallEnd::Unknown, texts::PEER_SILENT) } else { (CallEnd::Failed, texts::PEER_AWAY) };
    docket.end_call(&mut branch, call, end, text, context);
    branch.into_facts()
}
