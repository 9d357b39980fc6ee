//! A run that waited long enough repeats its request, as does one that has got another model: the wait was for the one before.

use super::{RunContext, wait_question};
use crate::{
    decision::{DecisionContext, Event, Fact},
    run::{Event as Happened, RunPhase},
};

pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let RunPhase::Backoff { until } = scene.run.phase() else { return None };
    let model = scene.run.effective_settings(scene.session.settings()).model;
    let is_another =
        matches!((&scene.run.last_model, &model), (Some(last_model), Some(model)) if !last_model.is_same(model));
    if *until > context.now && !is_another {
        return None;
    }
    let withdrawn = wait_question::withdraw_question(scene.view, scene.run);
    let resumed = Event::Run(Happened::Resumed { run: scene.run.id() });
    Some(withdrawn.into_iter().chain([resumed]).map(|event| scene.session_fact(event)).collect())
}
