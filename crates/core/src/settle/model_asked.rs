//! An open turn asks the model.

use super::Scene;
use crate::{
    engine::{Context, Event, Fact},
    run::{End, Event as Happened, Phase},
};

pub(super) fn rule(scene: Scene<'_>, _: &mut Context) -> Option<Vec<Fact>> {
    if scene.view.closing || *scene.run.phase() != Phase::Opening {
        return None;
    }
    let settings = scene.run.settings(scene.session.settings());
    let run = scene.run.id();
    let Some(model) = settings.model else {
        let ended = Happened::Ended { run, end: End::Failed, attempts: 0 };
        return Some(vec![scene.fact(Event::Run(ended))]);
    };
    Some(vec![scene.fact(Event::Run(Happened::Asked {
        run,
        epoch: scene.run.epoch() + 1,
        boot: scene.view.state.boot(),
        model,
        thinking: settings.thinking,
        leaf: scene.session.leaf().cloned(),
    }))])
}
