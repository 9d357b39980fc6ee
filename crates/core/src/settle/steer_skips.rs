//! A steering message makes the calls pointless that have not begun, once one of the turn has ended.

use super::RunContext;
use crate::{
    call::CallEnd,
    decision::{BranchBuilder, DecisionContext, Fact, texts},
    run::{AbortState, RunPhase},
    session::{InterruptMode, MessageQueue},
};

pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let polls = scene.run.interrupt == InterruptMode::Immediate
        && *scene.run.phase() == RunPhase::Calling
        && scene.run.abort_state() == AbortState::No
        && !scene.session.queue(MessageQueue::Steering).is_empty();
    if !polls || !scene.open_calls().any(|call| call.is_over()) {
        return None;
    }
    let call = scene.open_calls().find(|call| call.is_before_start())?;
    let mut branch = BranchBuilder::new(scene.session);
    scene.end_call(&mut branch, call, CallEnd::Skipped, texts::SKIPPED, context);
    Some(branch.into_facts())
}
