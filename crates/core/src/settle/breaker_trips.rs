//! After several denials in a row a run stops asking: what still waits for a person is denied.

use super::Scene;
use crate::{
    call::{End, Phase},
    decision::{BranchBuilder, DecisionContext, Fact},
};

/// Denials in a row that trip the breaker.
pub(crate) const LIMIT: u32 = 3;
/// What the model is told.
pub(super) const TRIPPED: &str =
    "Denied: three denials in a row. This run asks for nothing more until a person has spoken again.";

pub(super) fn rule(scene: Scene<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if scene.run.denials < LIMIT {
        return None;
    }
    let call = scene.calls().find(|call| *call.phase() == Phase::Gated)?;
    let mut branch = BranchBuilder::new(scene.session);
    scene.end_call(&mut branch, call, End::Denied, TRIPPED, context);
    Some(branch.into_facts())
}
