//! A run that is to stop ends its calls: those that have not begun at once, the others as soon as they come back.

use super::{RunContext, withdraw_gate};
use crate::{
    call::{self, Call, CallEnd, CallPhase, Executor},
    decision::{BranchBuilder, DecisionContext, Event, Fact, texts},
    message::StopReason,
    run::{self, AbortState, RunPhase},
};

pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let mut branch = BranchBuilder::new(scene.session);
    // A message that the provider interrupted is not shown: the results of its calls are only in the record.
    if scene.run.is_broken() && *scene.run.phase() == RunPhase::Calling {
        let call = scene.open_calls().find(|call| !call.is_over())?;
        // An earlier version may have opened a gate for it.
        withdraw_gate(scene.view, &mut branch, call);
        let ended = call::Event::Ended { call: call.id(), end: CallEnd::Cancelled, entry: None };
        branch.push_with(Event::Call(ended), Some(texts::NOT_WHOLE.into()));
        return Some(branch.into_facts());
    }
    // An interrupted message has no more requests, for any cause of the interruption.
    let is_cut_off = matches!(scene.run.last, Some((_, StopReason::Aborted, _) | (_, _, Some(_))));
    if scene.run.abort_state() != AbortState::Requested && !is_cut_off {
        return None;
    }
    match scene.run.phase() {
        RunPhase::Calling => {
            let works = |call: &&Call| {
                matches!(call.phase(), CallPhase::Started { .. }) && *call.executor() != Executor::Person
            };
            // One call at a time: all of them may be more than fits into one batch.
            if let Some(call) = scene.open_calls().filter(works).find(|call| !call.aborting) {
                branch.push_event(Event::Call(call::Event::Aborting { call: call.id() }));
            } else if scene.open_calls().find(works).is_none() {
                // Running calls return first, so that results are in the order in which they came about.
                let call = scene.open_calls().find(|call| !call.is_over())?;
                // The run does not wait until the peer can be asked.
                let is_asking = matches!(call.phase(), CallPhase::Started { .. } | CallPhase::Gated);
                let (end, text) = match call.may_be_asked() {
                    true => (CallEnd::Unknown, texts::UNKNOWN),
                    false if is_asking && scene.is_over() => (CallEnd::Cancelled, texts::RUN_OVER),
                    false if *call.executor() == Executor::Person && is_asking => {
                        (CallEnd::Cancelled, texts::UNANSWERED)
                    }
                    false => (CallEnd::Cancelled, texts::CANCELLED),
                };
                scene.end_call(&mut branch, call, end, text, context);
            }
        }
        RunPhase::Opening => branch.push_event(Event::Run(run::Event::TurnClosed { run: scene.run.id() })),
        RunPhase::Thinking { .. } | RunPhase::Between | RunPhase::Backoff { .. } | RunPhase::Ended(_) => {}
    }
    let facts = branch.into_facts();
    (!facts.is_empty()).then_some(facts)
}
