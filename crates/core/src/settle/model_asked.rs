//! An open turn asks the model.

use super::{Scene, contract};
use crate::{
    decision::{DecisionContext, Event, Fact},
    run::{End, Event as Happened, Phase},
    unattended::BreachPoint,
};

pub(super) fn rule(scene: Scene<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if scene.view.closing || !scene.may_begin() || *scene.run.phase() != Phase::Opening {
        return None;
    }
    let settings = scene.run.settings(scene.session.settings());
    let run = scene.run.id();
    let Some(model) = settings.model else {
        let ended = Happened::Ended { run, end: End::Failed, attempts: 0 };
        return Some(vec![scene.fact(Event::Run(ended))]);
    };
    let mut budget = (None, None);
    if let Some(contract) = scene.session.unattended() {
        match contract.check_request(run, scene.session.request_tokens(), &model, context.now) {
            Ok((amount, cap)) => budget = (Some(amount), cap),
            Err(breach) => {
                return contract::breached(scene.view, scene.session, breach, BreachPoint::Request, context);
            }
        }
    }
    let (reserved, cap) = budget;
    Some(vec![scene.fact(Event::Run(Happened::Asked {
        run,
        epoch: scene.run.epoch() + 1,
        boot: scene.view.state.boot_count(),
        model,
        thinking: settings.thinking,
        leaf: scene.session.leaf().cloned(),
        reserved,
        cap,
    }))])
}
