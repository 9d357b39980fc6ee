//! A steering message makes the calls pointless that have not begun, once one of the turn has ended.

use super::Scene;
use crate::{
    call::End,
    decision::{BranchBuilder, DecisionContext, Fact, texts},
    run::{Abort, Phase},
    session::{Interrupt, Queue},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let polls = scene.run.interrupt == Interrupt::Immediate
        && *scene.run.phase() == Phase::Calling
        && scene.run.abort() == Abort::No
        && !scene.session.queue(Queue::Steering).is_empty();
    if !polls || !scene.calls().any(|call| call.is_over()) {
        return None;
    }
    let call = scene.calls().find(|call| call.is_before_start())?;
    let mut branch = BranchBuilder::new(scene.session);
    scene.end_call(&mut branch, call, End::Skipped, texts::SKIPPED, context);
    Some(branch.into_facts())
}
