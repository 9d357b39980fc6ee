//! Deciders for compactions: beginning one, stopping it, and what goes on afterwards.

use std::sync::Arc;

use crate::{
    decision::{Branch, Context, Decision, Event, Fact, Refusal, Reply, Resume, affordable, compaction_started, texts},
    ledger::Amount,
    run::{Event as OfRun, Trigger},
    session::{CompactRefusal, Compacted, Compaction, Event as Happened, Kind, Queue, Reason, Session, Then},
    settle,
    time::Millis,
    unattended,
};

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
    let event = compaction_started(session, Reason::Manual, cut, Then::Rest);
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
