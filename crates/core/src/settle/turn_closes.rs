//! A turn is over when the model has answered and every call of it has ended.

use super::Scene;
use crate::{
    decision::{DecisionContext, Event, Fact},
    run::{Event as Happened, Phase},
};

pub(super) fn rule(scene: Scene<'_>, _: &mut DecisionContext) -> Option<Vec<Fact>> {
    let closes = *scene.run.phase() == Phase::Calling && scene.calls().all(|call| call.is_over());
    closes.then(|| vec![scene.fact(Event::Run(Happened::TurnClosed { run: scene.run.id() }))])
}
