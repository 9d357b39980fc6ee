//! An open turn asks the model.

use super::{RunContext, contract};
use crate::{
    decision::{DecisionContext, Event, Fact},
    run::{Event as Happened, RunOutcome, RunPhase},
    unattended::BreachPoint,
};

pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if scene.view.closing || !scene.may_begin() || *scene.run.phase() != RunPhase::Opening {
        return None;
    }
    let settings = scene.run.effective_settings(scene.session.settings());
    let run = scene.run.id();
    let Some(model) = settings.model else {
        let ended = Happened::Ended { run, end: RunOutcome::Failed, attempts: 0 };
        return Some(vec![scene.session_fact(Event::Run(ended))]);
    };
    let mut budget = (None, None);
    if let Some(contract) = scene.session.unattended() {
        match contract.check_request(run, scene.session.request_tokens(), &model, context.now) {
            Ok((amount, cap)) => budget = (Some(amount), cap),
            Err(breach) => {
                return contract::breach_facts(scene.view, scene.session, breach, BreachPoint::Request, context);
            }
        }
    }
    let (reserved, cap) = budget;
    Some(vec![scene.session_fact(Event::Run(Happened::ModelRequested {
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
