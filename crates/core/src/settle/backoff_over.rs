//! A run that waited long enough asks again.

use super::Scene;
use crate::{
    engine::{Context, Event, Fact},
    run::{Event as Happened, Phase},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    let Phase::Backoff { until } = scene.run.phase() else { return None };
    (*until <= context.now).then(|| vec![scene.fact(Event::Run(Happened::Resumed { run: scene.run.id() }))])
}
