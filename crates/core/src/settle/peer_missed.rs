//! A call that waited for its peer for as long as it may is given up: nothing of it was sent, or nobody knows what became of
//! it.

use super::Docket;
use crate::{
    call::{Call, End},
    decision::{BranchBuilder, DecisionContext, Fact, texts},
};

pub(super) fn rule(docket: Docket<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let call = docket.calls().find(|call| is_due(call, context))?;
    Some(give_up(docket, call, context))
}

/// The same of what people have peers do.
pub(super) fn of_acts(docket: Docket<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let call = docket.acts().find(|call| is_due(call, context))?;
    Some(give_up(docket, call, context))
}

fn is_due(call: &Call, context: &DecisionContext) -> bool {
    call.until.is_some_and(|until| until <= context.now)
}

fn give_up(docket: Docket<'_>, call: &Call, context: &mut DecisionContext) -> Vec<Fact> {
    let mut branch = BranchBuilder::new(docket.session);
    let (end, text) =
        if call.may_be_asked() { (End::Unknown, texts::PEER_SILENT) } else { (End::Failed, texts::PEER_AWAY) };
    docket.end_call(&mut branch, call, end, text, context);
    branch.into_facts()
}
