//! A run that waited long enough asks again, as does one that has got another model: the wait was for the one before.

use super::{Scene, wait_asked};
use crate::{
    decision::{DecisionContext, Event, Fact},
    run::{Event as Happened, Phase},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let Phase::Backoff { until } = scene.run.phase() else { return None };
    let model = scene.run.settings(scene.session.settings()).model;
    let is_another = matches!((&scene.run.asked, &model), (Some(asked), Some(model)) if !asked.is_same(model));
    if *until > context.now && !is_another {
        return None;
    }
    let withdrawn = wait_asked::withdrawn(scene.view, scene.run);
    let resumed = Event::Run(Happened::Resumed { run: scene.run.id() });
    Some(withdrawn.into_iter().chain([resumed]).map(|event| scene.fact(event)).collect())
}
