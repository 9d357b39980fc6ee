//! Steps of a run between two turns: it takes queued messages, continues with results, retries, or ends.

use std::time::Duration;

use super::{RunContext, continue_with, wait_question};
use crate::{
    decision::{
        BranchBuilder, DecisionContext, Event, Fact, check_compaction_budget, compaction_started,
        compaction_started_again, prune_entries, texts,
    },
    id::{GateId, RunId},
    message::StopReason,
    run::{AbortState, Event as Happened, ProviderFailure, RunOutcome, RunPhase, RunTrigger},
    session::{
        AfterCompaction, CompactionCause, CompactionTiming, Event as InSession, MessageQueue, RetryPolicy,
        SessionEntryKind, StoppedRun,
    },
};

pub(super) fn due_facts(scene: RunContext<'_>, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    if *scene.run.phase() != RunPhase::Between {
        return None;
    }
    let run = scene.run.id();
    let mut branch = BranchBuilder::new(scene.session);
    if scene.run.abort_state() == AbortState::Requested {
        end_run(scene, &mut branch, RunOutcome::Aborted);
        return Some(branch.into_facts());
    }
    let modes = scene.session.settings().modes;
    let turn = scene.run.turn() + 1;
    let open = |branch: &mut BranchBuilder<'_>| branch.push_event(Event::Run(Happened::TurnOpened { run, turn }));
    match &scene.run.last {
        // It repeats its request: after a wait, or in another process.
        None => {
            open(&mut branch);
            branch.drain_queue(MessageQueue::Steering, modes.steering, context);
        }
        Some((entry, _, Some(failure))) => handle_failure(scene, &mut branch, entry.clone(), *failure, context),
        Some((_, StopReason::Aborted, None)) => end_run(scene, &mut branch, RunOutcome::Aborted),
        // The client did not report why it broke: that is no finished answer, and no reason for a retry.
        Some((_, StopReason::Error, None)) => end_run(scene, &mut branch, RunOutcome::Failed),
        Some((_, _, None)) => {
            // Waiting messages are no part of a run after which nothing follows: it would not answer the right message.
            let waits = |queue| !scene.run.run_metadata().last && !scene.session.queue(queue).is_empty();
            if waits(MessageQueue::Steering) {
                open(&mut branch);
                branch.drain_queue(MessageQueue::Steering, modes.steering, context);
            } else if scene.run.called {
                open(&mut branch);
            } else if waits(MessageQueue::FollowUp) {
                open(&mut branch);
                branch.drain_queue(MessageQueue::FollowUp, modes.follow_up, context);
            } else {
                end_run(scene, &mut branch, RunOutcome::Completed);
                goes_on(scene, &mut branch, context);
            }
        }
    }
    Some(branch.into_facts())
}

fn end_run(scene: RunContext<'_>, branch: &mut BranchBuilder<'_>, end: RunOutcome) {
    if end == RunOutcome::Aborted {
        forget_run(branch);
    }
    branch.push_event(Event::Run(Happened::Ended { run: scene.run.id(), end, attempts: scene.run.attempt }));
}

/// Keeps the parts of a stopped run that the model sees: calls with an effect, with their context; and nothing of a run
/// without calls, if its session is set so.
pub(crate) fn forget_run(branch: &mut BranchBuilder<'_>) {
    let session = branch.session();
    // It may not have begun yet: it was to repeat a request that was too long.
    let first = session.run_began().or_else(|| session.asks_again_from());
    let Some(first) = first.filter(|_| session.settings().stopped == StoppedRun::IsForgotten) else {
        return;
    };
    let path = session.path_entries();
    let of_run: Vec<_> = path.into_iter().skip_while(|entry| entry.id != *first).collect();
    let is_said = |kind: &SessionEntryKind| {
        matches!(
            kind,
            SessionEntryKind::User
                | SessionEntryKind::Custom
                | SessionEntryKind::Developer
                | SessionEntryKind::Assistant { .. }
        )
    };
    let is_summary = |kind: &SessionEntryKind| matches!(kind, SessionEntryKind::Compaction { .. });
    if of_run.iter().all(|entry| is_said(&entry.kind) || is_summary(&entry.kind)) {
        for entry in of_run.into_iter().filter(|entry| entry.shown && !is_summary(&entry.kind)) {
            branch.push_event(Event::Session(InSession::Dropped { entry: entry.id.clone() }));
        }
    }
}

/// Handles a failure of the provider: another attempt, a compaction, or the end.
fn handle_failure(
    scene: RunContext<'_>,
    branch: &mut BranchBuilder<'_>,
    entry: crate::id::EntryId,
    failure: ProviderFailure,
    context: &mut DecisionContext,
) {
    let settings = scene.session.settings();
    let attempt = scene.run.attempt + 1;
    let asks = wait_question::is_due(scene, failure);
    if failure.overflow {
        let cut = (settings.thresholds.auto && !scene.session.overflow_tried && !scene.view.closing)
            .then(|| scene.session.cut_without(Some(&entry)))
            .flatten()
            .filter(|cut| check_compaction_budget(scene.session, cut, context.now).is_ok());
        match cut {
            Some(cut) => {
                branch.push_event(Event::Session(InSession::Dropped { entry }));
                end_run(scene, branch, RunOutcome::Overflowed);
                let again = RunId::new(context.fresh.next_uuid(context.now));
                branch.push_event(compaction_started_again(scene.session, cut, again, scene.run.run_metadata()));
            }
            None => end_run(scene, branch, RunOutcome::Failed),
        }
    } else if let Some(delay) = retry_delay(settings.retry, failure, attempt, asks) {
        branch.push_event(Event::Session(InSession::Dropped { entry }));
        let gate = asks.then(|| GateId::new(context.fresh.next_uuid(context.now)));
        let until = context.now + delay;
        let (run, max) = (scene.run.id(), settings.retry.max);
        branch.push_event(Event::Run(Happened::BackedOff { run, attempt, max, delay, until, gate }));
        if let Some(gate) = gate {
            wait_question::open_question(scene, branch, gate, until, context.now);
        }
    } else {
        end_run(scene, branch, RunOutcome::Failed);
    }
}

/// Returns the wait of a run before this attempt; none if there is no further one. A wait that is cut short would only end in
/// the same refusal. The longest wait is for a run that cannot ask.
fn retry_delay(retry: RetryPolicy, failure: ProviderFailure, attempt: u32, asks: bool) -> Option<Duration> {
    let requested_delay = failure.after.unwrap_or_default();
    let may_wait =
        failure.retryable && retry.enabled && attempt <= retry.max && (asks || requested_delay <= retry.longest);
    let backoff = retry.base.saturating_mul(2_u32.saturating_pow(attempt - 1));
    may_wait.then(|| backoff.min(retry.longest).max(requested_delay))
}

/// Returns the work that follows a finished run: a compaction, or a reminder of open tasks.
fn goes_on(scene: RunContext<'_>, branch: &mut BranchBuilder<'_>, context: &mut DecisionContext) {
    if scene.run.run_metadata().last {
        return;
    }
    let session = scene.session;
    if session.settings().sums == CompactionTiming::AfterRuns && session.is_over_limit() {
        let is_enough = prune_entries(branch);
        // A continuation that did nothing is not continued again: a context that does not get small enough would loop for ever.
        let went_round = scene.run.trigger == RunTrigger::Continuation && scene.run.turn() == 1;
        let may_begin = !went_round && !scene.view.closing;
        if !is_enough
            && may_begin
            && let Some(cut) =
                session.find_cut().filter(|cut| check_compaction_budget(session, cut, context.now).is_ok())
        {
            branch.push_event(compaction_started(session, CompactionCause::Threshold, cut, AfterCompaction::Continue));
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
            RunTrigger::Reminder,
            vec![(SessionEntryKind::Developer, texts::developer_message(&text))],
            context,
        );
    }
}
