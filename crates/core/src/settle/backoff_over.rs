//! A run that waited long enough asks again, as does one that has got another model: the wait was for the one before.

use super::Scene;
use crate::{
    engine::{Context, Event, Fact},
    run::{Event as Happened, Phase},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let Phase::Backoff { until } = scene.run.phase() else { return None };
    let model = scene.run.settings(scene.session.settings()).model;
    let is_another = matches!((&scene.run.asked, &model), (Some(asked), Some(model)) if !asked.is_same(model));
    (*until <= context.now || is_another)
        .then(|| vec![scene.fact(Event::Run(Happened::Resumed { run: scene.run.id() }))])
}
