//! A run that is to stop ends its calls: those that have not begun at once, the others as soon as they come back.

use super::Scene;
use crate::{
    call::{self, End, Executor, Phase as CallPhase},
    engine::{Branch, Context, Event, Fact, texts},
    run::{self, Abort, Phase},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    if scene.run.abort() != Abort::Asked {
        return None;
    }
    let mut branch = Branch::new(scene.session);
    match scene.run.phase() {
        Phase::Calling => {
            for call in scene.calls() {
                let waits_for_person =
                    matches!(call.phase(), CallPhase::Started { .. }) && *call.executor() == Executor::Person;
                if call.is_before_start() || waits_for_person {
                    scene.end_call(&mut branch, call, End::Cancelled, texts::CANCELLED, context);
                } else if matches!(call.phase(), CallPhase::Started { .. }) && !call.aborting {
                    branch.push(Event::Call(call::Event::Aborting { call: call.id() }));
                }
            }
        }
        Phase::Opening => branch.push(Event::Run(run::Event::TurnClosed { run: scene.run.id() })),
        Phase::Thinking { .. } | Phase::Between | Phase::Backoff { .. } | Phase::Ended(_) => {}
    }
    let facts = branch.finish();
    (!facts.is_empty()).then_some(facts)
}
