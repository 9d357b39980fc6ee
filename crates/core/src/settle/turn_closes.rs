//! A turn is over when the model has answered and every call of it has ended.

use super::RunContext;
use crate::{
    decision::{DecisionContext, Event, Fact},
    run::{Event as Happened, RunPhase},
};

pub(super) fn due_facts(scene: RunContext<'_>, _: &mut DecisionContext) -> Option<Vec<Fact>> {
    let closes = *scene.run.phase() == RunPhase::Calling && scene.open_calls().all(|call| call.is_over());
    closes.then(|| vec![scene.session_fact(Event::Run(Happened::TurnClosed { run: scene.run.id() }))])
}
