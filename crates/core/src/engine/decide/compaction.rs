//! Deciders for compactions: beginning one, stopping it, and what goes on afterwards.

use std::sync::Arc;

use crate::{
    engine::{Context, Decision, Event, Fact, Refusal, Reply, Resume, texts, tree::Branch},
    id::RunId,
    ledger::{Amount, Breach},
    run::{Event as OfRun, Marks, Trigger},
    session::{CompactRefusal, Compacted, Compaction, Cut, Event as Happened, Kind, Queue, Reason, Session, Then},
    settle,
    time::Millis,
    unattended::{self, Standing},
};

/// How many entries one fact names.
const PRUNED_AT_ONCE: usize = 500;

/// The fact that begins a compaction.
pub(crate) fn started(session: &Session, reason: Reason, cut: Cut, then: Then) -> Event {
    begun(session, reason, cut, then, None, None)
}

/// The fact that begins a compaction for a request that was too long: `run` asks again, and is what the one before was.
pub(crate) fn started_again(session: &Session, cut: Cut, run: RunId, marks: &Marks) -> Event {
    let marks = (!marks.is_empty()).then(|| Box::new(marks.clone()));
    begun(session, Reason::Overflow, cut, Then::Again, Some(run), marks)
}

/// The fact that begins a compaction which a prompt waits for: `run` begins with it, and is marked so.
pub(super) fn started_for(session: &Session, cut: Cut, run: RunId, marks: Option<Box<Marks>>) -> Event {
    begun(session, Reason::Threshold, cut, Then::Prompt, Some(run), marks)
}

fn begun(
    session: &Session,
    reason: Reason,
    cut: Cut,
    then: Then,
    run: Option<RunId>,
    marks: Option<Box<Marks>>,
) -> Event {
    Event::Session(Happened::CompactionStarted {
        epoch: session.compactions + 1,
        reason,
        first_kept: cut.first_kept,
        split_from: cut.split_from,
        tokens_before: cut.tokens_before,
        then,
        run,
        marks,
    })
}

/// Whether the budget of a session leaves enough for a compaction.
pub(crate) fn affordable(session: &Session, cut: &Cut, now: Millis) -> Result<(), Breach> {
    let Some(contract) = session.unattended() else { return Ok(()) };
    match contract.standing() {
        Standing::InForce => contract.compaction(cut.tokens_before, session.settings().model.as_ref(), now),
        Standing::Asked { breach, .. } | Standing::Over { breach } | Standing::Settled { breach } => Err(breach),
    }
}

pub(super) fn begin(session: &Session, instructions: Option<Arc<str>>, now: Millis) -> Result<Decision, Refusal> {
    if session.compaction().is_some() {
        return Err(CompactRefusal::UnderWay.into());
    }
    if session.run().is_some() {
        return Err(CompactRefusal::Busy.into());
    }
    if session.settings().model.is_none() {
        return Err(CompactRefusal::NoModel.into());
    }
    if session.path().last().is_some_and(|entry| matches!(entry.kind, Kind::Compaction { .. })) {
        return Err(CompactRefusal::Already.into());
    }
    let cut = session.cut().ok_or(CompactRefusal::Nothing)?;
    affordable(session, &cut, now).map_err(unattended::Refusal::Exceeds)?;
    let epoch = session.compactions + 1;
    let event = started(session, Reason::Manual, cut, Then::Rest);
    let fact = Fact { event, session: Some(session.id().clone()), content: instructions };
    Ok(Decision { facts: vec![fact], reply: Reply::Compacting { epoch } })
}

pub(super) fn abort(session: &Session) -> Decision {
    match session.compaction() {
        Some(compaction) if !compaction.aborting => Decision {
            facts: vec![Fact::plain(Event::Session(Happened::CompactionAborting), Some(session.id().clone()))],
            reply: Reply::Compacting { epoch: compaction.epoch },
        },
        Some(compaction) => Decision { facts: Vec::new(), reply: Reply::Compacting { epoch: compaction.epoch } },
        None => Decision { facts: Vec::new(), reply: Reply::Idle },
    }
}

pub(super) fn ended(session: &Session, epoch: u32, outcome: Compacted, context: &mut Context) -> Decision {
    let Some(compaction) = session.compaction().filter(|compaction| compaction.epoch == epoch) else {
        let content = match outcome {
            Compacted::Done { said, .. } => Some(said.content),
            Compacted::Failed { message } => Some(message),
            Compacted::Aborted => None,
        };
        let event = Event::Session(Happened::CompactionDropped { epoch });
        return Decision {
            facts: vec![Fact { event, session: Some(session.id().clone()), content }],
            reply: Reply::Dropped,
        };
    };
    if matches!(outcome, Compacted::Aborted) && !compaction.aborting && may_be_left(session, compaction) {
        // The process ends, and nobody stopped it: the next takes it up.
        return Decision { facts: Vec::new(), reply: Reply::Done };
    }
    let mut branch = Branch::new(session);
    let (end, message) = match outcome {
        Compacted::Done { said, spent } => {
            let kind =
                Kind::Compaction { first_kept: compaction.first_kept.clone(), tokens_before: compaction.tokens_before };
            branch.say(kind, said, context);
            (Ended::Done { spent }, None)
        }
        Compacted::Failed { message } => (Ended::Failed, Some(message)),
        Compacted::Aborted => (Ended::Aborted, None),
    };
    end_as(&mut branch, compaction, end, message, context);
    Decision { facts: branch.finish(), reply: Reply::Done }
}

/// Whether another process may take up a compaction for a request that was too long. The contract of a job ends with it.
fn may_be_left(session: &Session, compaction: &Compaction) -> bool {
    compaction.then == Then::Again && session.unattended().is_none_or(|contract| contract.firing().is_none())
}

/// How a compaction ended, for what goes on afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done {
        /// What it took of a budget, where that is known.
        spent: Option<Amount>,
    },
    Failed,
    Aborted,
    /// The process ended that worked on it.
    Lost,
}

/// A new process finds a compaction under way. What was to follow it still waits for it, unless somebody stopped it.
pub(super) fn lost(branch: &mut Branch<'_>, compaction: &Compaction, resume: Resume, context: &mut Context) {
    let epoch = compaction.epoch;
    if resume == Resume::Go && compaction.aborting {
        return end_as(branch, compaction, Ended::Aborted, None, context);
    }
    let is_again = compaction.then == Then::Again;
    if resume == Resume::Go && (compaction.then == Then::Rest || is_again && !may_be_left(branch.session(), compaction))
    {
        return end_as(branch, compaction, Ended::Lost, None, context);
    }
    branch.push(Event::Session(Happened::CompactionEnded {
        epoch,
        ok: false,
        aborted: true,
        then: Then::Rest,
        spent: None,
    }));
    if resume == Resume::Go {
        branch.push(Event::Session(Happened::CompactionStarted {
            epoch: epoch + 1,
            reason: compaction.reason,
            first_kept: compaction.first_kept.clone(),
            split_from: compaction.split_from.clone(),
            tokens_before: compaction.tokens_before,
            then: compaction.then.clone(),
            run: compaction.run,
            marks: compaction.marks.clone(),
        }));
    }
}

/// Ends a compaction and begins what goes on afterwards.
fn end_as(
    branch: &mut Branch<'_>,
    compaction: &Compaction,
    end: Ended,
    message: Option<Arc<str>>,
    context: &mut Context,
) {
    if compaction.then == Then::Again && compaction.aborting {
        settle::forget(branch);
    } else if compaction.then == Then::Again && matches!(end, Ended::Aborted | Ended::Lost) {
        // Nobody takes it up: whoever waits for what asks again is told that it is stopped.
        branch.push(Event::Session(Happened::CompactionAborting));
    }
    let session = branch.session();
    let is_for_next = session.behind_compaction().is_some();
    let (is_done, spent) = match end {
        Ended::Done { spent } => (true, spent),
        Ended::Failed | Ended::Aborted | Ended::Lost => (false, None),
    };
    let then = match &compaction.then {
        // A prompt that was taken back leaves nothing to run.
        Then::Prompt if session.queue(Queue::Prompt).is_empty() => Then::Rest,
        Then::Prompt => Then::Prompt,
        // Somebody stopped it, however far it had come.
        _ if compaction.aborting => Then::Rest,
        then if is_done => then.clone(),
        _ => Then::Rest,
    };
    let awaited = compaction.run.filter(|_| matches!(then, Then::Prompt | Then::Again));
    branch.push_with(
        Event::Session(Happened::CompactionEnded {
            epoch: compaction.epoch,
            ok: is_done,
            aborted: matches!(end, Ended::Aborted | Ended::Lost),
            then: then.clone(),
            spent,
        }),
        message,
    );
    // What was said meanwhile is not left lying; what was queued before starts nothing.
    // Whoever steers a request that is asked again means what goes on with it.
    let is_for_again = |queue| compaction.then == Then::Again && queue == Queue::Steering;
    let is_waited_for = [Queue::Steering, Queue::FollowUp].into_iter().any(|queue| {
        let mut queued = session.queue(queue).iter();
        queued.any(|queued| is_for_again(queue) || queued.content > compaction.instructions)
    });
    let (trigger, opening) = match &then {
        Then::Rest if is_waited_for && end != Ended::Aborted && !compaction.aborting => (Trigger::Prompt, Vec::new()),
        Then::Rest => {
            // Whoever stopped it stopped what it was made for. What waits behind that goes on.
            let stopped = branch.session().queue(Queue::Next).front().filter(|_| compaction.aborting && is_for_next);
            if let Some(next) = stopped {
                let marks = next.marks.as_deref().cloned().unwrap_or_default();
                let run = settle::begin_own(branch, None, marks, context);
                branch.push(Event::Run(OfRun::Aborting { run }));
            }
            return;
        }
        Then::Continue => (Trigger::Continuation, vec![(Kind::Developer, texts::developer(texts::CONTINUE))]),
        Then::Again => (Trigger::Overflow, Vec::new()),
        Then::Prompt => (Trigger::Prompt, Vec::new()),
    };
    let run = settle::continue_with(branch, awaited, trigger, opening, context);
    let goes_on_as_before = trigger == Trigger::Overflow || awaited.is_some();
    if let Some(marks) = compaction.marks.clone().filter(|_| goes_on_as_before) {
        branch.push(Event::Run(OfRun::Marked { run, marks }));
    }
    // Whoever stopped the compaction stopped what waited for it: it has been said, and nobody is asked.
    if compaction.aborting && then == Then::Prompt {
        branch.push(Event::Run(OfRun::Aborting { run }));
    }
}

/// Replaces old results by notices where that saves enough to be worth it. True if no compaction is needed then.
pub(crate) fn prune(branch: &mut Branch<'_>) -> bool {
    let session = branch.session();
    let prunable = session.prunable();
    let saved: u64 = prunable.iter().filter_map(|entry| session.entry(entry)).map(|entry| entry.tokens).sum();
    let window = session.settings().model.as_ref().map_or(0, |model| model.context_window);
    for entries in prunable.chunks(PRUNED_AT_ONCE) {
        branch.push(Event::Session(Happened::Pruned { entries: entries.to_vec() }));
    }
    session.context_tokens().saturating_sub(saved) <= session.settings().thresholds.limit(window)
}
