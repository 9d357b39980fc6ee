//! What a run does between two turns: it takes what was queued, goes on with results, tries again, or ends.

use std::time::Duration;

use super::{Scene, continue_with, wait_asked};
use crate::{
    decision::{
        BranchBuilder, DecisionContext, Event, Fact, check_compaction_budget, compaction_started,
        compaction_started_again, prune_entries, texts,
    },
    id::{GateId, RunId},
    message::StopReason,
    run::{Abort, End, Event as Happened, Failure, Phase, Trigger},
    session::{Event as InSession, Kind, Queue, Reason, Retry, Stopped, Sums, Then},
};

pub(super) fn rule(scene: Scene<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if *scene.run.phase() != Phase::Between {
        return None;
    }
    let run = scene.run.id();
    let mut branch = BranchBuilder::new(scene.session);
    if scene.run.abort() == Abort::Asked {
        end(scene, &mut branch, End::Aborted);
        return Some(branch.into_facts());
    }
    let modes = scene.session.settings().modes;
    let turn = scene.run.turn() + 1;
    let open = |branch: &mut BranchBuilder<'_>| branch.push_event(Event::Run(Happened::TurnOpened { run, turn }));
    match &scene.run.last {
        // It asks again: after a wait, or in another process.
        None => {
            open(&mut branch);
            branch.drain_queue(Queue::Steering, modes.steering, context);
        }
        Some((entry, _, Some(failure))) => failed(scene, &mut branch, entry.clone(), *failure, context),
        Some((_, StopReason::Aborted, None)) => end(scene, &mut branch, End::Aborted),
        // Whoever heard it did not say why it broke: that is no finished answer, and no reason to ask again.
        Some((_, StopReason::Error, None)) => end(scene, &mut branch, End::Failed),
        Some((_, _, None)) => {
            // What waits is no part of a run behind which nothing follows: what it answered would not be what was asked for.
            let waits = |queue| !scene.run.marks().last && !scene.session.queue(queue).is_empty();
            if waits(Queue::Steering) {
                open(&mut branch);
                branch.drain_queue(Queue::Steering, modes.steering, context);
            } else if scene.run.called {
                open(&mut branch);
            } else if waits(Queue::FollowUp) {
                open(&mut branch);
                branch.drain_queue(Queue::FollowUp, modes.follow_up, context);
            } else {
                end(scene, &mut branch, End::Completed);
                goes_on(scene, &mut branch, context);
            }
        }
    }
    Some(branch.into_facts())
}

fn end(scene: Scene<'_>, branch: &mut BranchBuilder<'_>, end: End) {
    if end == End::Aborted {
        forget(branch);
    }
    branch.push_event(Event::Run(Happened::Ended { run: scene.run.id(), end, attempts: scene.run.attempt }));
}

/// What a run that is stopped leaves to the model: whatever took effect, with all around it; and nothing of a run that called
/// nothing, where its session is set so.
pub(crate) fn forget(branch: &mut BranchBuilder<'_>) {
    let session = branch.session();
    // It may not have begun yet: it was to ask again what was too long.
    let first = session.run_began().or_else(|| session.asks_again_from());
    let Some(first) = first.filter(|_| session.settings().stopped == Stopped::IsForgotten) else {
        return;
    };
    let path = session.path();
    let of_run: Vec<_> = path.into_iter().skip_while(|entry| entry.id != *first).collect();
    let is_said = |kind: &Kind| matches!(kind, Kind::User | Kind::Custom | Kind::Developer | Kind::Assistant { .. });
    let is_summary = |kind: &Kind| matches!(kind, Kind::Compaction { .. });
    if of_run.iter().all(|entry| is_said(&entry.kind) || is_summary(&entry.kind)) {
        for entry in of_run.into_iter().filter(|entry| entry.shown && !is_summary(&entry.kind)) {
            branch.push_event(Event::Session(InSession::Dropped { entry: entry.id.clone() }));
        }
    }
}

/// After a failure of the provider: another attempt, a compaction, or the end.
fn failed(
    scene: Scene<'_>,
    branch: &mut BranchBuilder<'_>,
    entry: crate::id::EntryId,
    failure: Failure,
    context: &mut DecisionContext,
) {
    let settings = scene.session.settings();
    let attempt = scene.run.attempt + 1;
    let asks = wait_asked::is_due(scene, failure);
    if failure.overflow {
        let cut = (settings.thresholds.auto && !scene.session.overflow_tried && !scene.view.closing)
            .then(|| scene.session.cut_without(Some(&entry)))
            .flatten()
            .filter(|cut| check_compaction_budget(scene.session, cut, context.now).is_ok());
        match cut {
            Some(cut) => {
                branch.push_event(Event::Session(InSession::Dropped { entry }));
                end(scene, branch, End::Overflowed);
                let again = RunId::new(context.fresh.uuid(context.now));
                branch.push_event(compaction_started_again(scene.session, cut, again, scene.run.marks()));
            }
            None => end(scene, branch, End::Failed),
        }
    } else if let Some(delay) = wait(settings.retry, failure, attempt, asks) {
        branch.push_event(Event::Session(InSession::Dropped { entry }));
        let gate = asks.then(|| GateId::new(context.fresh.uuid(context.now)));
        let until = context.now + delay;
        let (run, max) = (scene.run.id(), settings.retry.max);
        branch.push_event(Event::Run(Happened::BackedOff { run, attempt, max, delay, until, gate }));
        if let Some(gate) = gate {
            wait_asked::open(scene, branch, gate, until, context.now);
        }
    } else {
        end(scene, branch, End::Failed);
    }
}

/// How long a run waits before this attempt; none where there is no further one. A wait that is cut short would only end in
/// the same refusal. The longest wait is for a run that cannot ask.
fn wait(retry: Retry, failure: Failure, attempt: u32, asks: bool) -> Option<Duration> {
    let asked = failure.after.unwrap_or_default();
    let may_wait = failure.retryable && retry.enabled && attempt <= retry.max && (asks || asked <= retry.longest);
    let backoff = retry.base.saturating_mul(2_u32.saturating_pow(attempt - 1));
    may_wait.then(|| backoff.min(retry.longest).max(asked))
}

/// What follows a run that was done: a compaction, or a reminder of open tasks.
fn goes_on(scene: Scene<'_>, branch: &mut BranchBuilder<'_>, context: &mut DecisionContext) {
    if scene.run.marks().last {
        return;
    }
    let session = scene.session;
    if session.settings().sums == Sums::AfterRuns && session.is_over_limit() {
        let is_enough = prune_entries(branch);
        // A continuation that did nothing is not continued again: a context that does not get small enough would go round for ever.
        let went_round = scene.run.trigger == Trigger::Continuation && scene.run.turn() == 1;
        let may_begin = !went_round && !scene.view.closing;
        if !is_enough
            && may_begin
            && let Some(cut) = session.cut().filter(|cut| check_compaction_budget(session, cut, context.now).is_ok())
        {
            branch.push_event(compaction_started(session, Reason::Threshold, cut, Then::Continue));
            return;
        }
    }
    if !scene.view.closing && session.open_tasks > 0 && session.reminded < session.settings().todo_reminders {
        let attempt = session.reminded + 1;
        branch.push_event(Event::Session(InSession::Reminded { attempt }));
        let text = format!(
            "{} of your tasks are still open. Finish them, or mark them as abandoned and say why.",
            session.open_tasks
        );
        continue_with(
            branch,
            None,
            Trigger::Reminder,
            vec![(Kind::Developer, texts::developer_message(&text))],
            context,
        );
    }
}
