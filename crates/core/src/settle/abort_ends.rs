//! A run that is to stop ends its calls: those that have not begun at once, the others as soon as they come back.

use super::Scene;
use crate::{
    call::{self, Call, End, Executor, Phase as CallPhase},
    engine::{Branch, Context, Event, Fact, texts},
    message::StopReason,
    run::{self, Abort, Phase},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut Context) -> Option<Vec<Fact>> {
    // A message that was broken off wants nothing any more, whoever broke it off.
    let is_broken = matches!(scene.run.last, Some((_, StopReason::Aborted, _)));
    if scene.run.abort() != Abort::Asked && !is_broken {
        return None;
    }
    let mut branch = Branch::new(scene.session);
    match scene.run.phase() {
        Phase::Calling => {
            let works = |call: &&Call| {
                matches!(call.phase(), CallPhase::Started { .. }) && *call.executor() != Executor::Person
            };
            for call in scene.calls().filter(works).filter(|call| !call.aborting) {
                branch.push(Event::Call(call::Event::Aborting { call: call.id() }));
            }
            // What runs comes back first, so that results stand in the order in which they came about.
            if scene.calls().find(works).is_none() {
                for call in scene.calls().filter(|call| !call.is_over()) {
                    scene.end_call(&mut branch, call, End::Cancelled, texts::CANCELLED, context);
                }
            }
        }
        Phase::Opening => branch.push(Event::Run(run::Event::TurnClosed { run: scene.run.id() })),
        Phase::Thinking { .. } | Phase::Between | Phase::Backoff { .. } | Phase::Ended(_) => {}
    }
    let facts = branch.finish();
    (!facts.is_empty()).then_some(facts)
}
