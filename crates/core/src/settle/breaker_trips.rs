//! After several denials in a row a run requests no more approvals: those that are pending are denied.

use super::RunContext;
use crate::{
    call::{CallEnd, CallPhase},
    decision::{BranchBuilder, DecisionContext, Fact},
};

/// Denials in a row that trip the breaker.
pub(crate) const LIMIT: u32 = 3;
/// Text for the model.
pub(super) const TRIPPED: &str =
    "Denied: three denials in a row. This run asks for nothing more until a person has spoken again.";

pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if scene.run.denials < LIMIT {
        return None;
    }
    let call = scene.open_calls().find(|call| *call.phase() == CallPhase::Gated)?;
    let mut branch = BranchBuilder::new(scene.session);
    scene.end_call(&mut branch, call, CallEnd::Denied, TRIPPED, context);
    Some(branch.into_facts())
}
