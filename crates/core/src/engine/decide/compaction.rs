//! Deciders for compactions: beginning one, stopping it, and what goes on afterwards.

use std::sync::Arc;

use crate::{
    engine::{Context, Decision, Event, Fact, Refusal, Reply, texts, tree::Branch},
    run::Trigger,
    session::{CompactRefusal, Compacted, Cut, Event as Happened, Kind, Queue, Reason, Session, Then},
    settle,
};

/// The fact that begins a compaction.
pub(crate) fn started(session: &Session, reason: Reason, cut: Cut, then: Then) -> Event {
    Event::Session(Happened::CompactionStarted {
        epoch: session.compactions + 1,
        reason,
        first_kept: cut.first_kept,
        split_from: cut.split_from,
        tokens_before: cut.tokens_before,
        then,
    })
}

pub(super) fn begin(session: &Session, instructions: Option<Arc<str>>) -> Result<Decision, Refusal> {
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
        return Decision { facts: Vec::new(), reply: Reply::Dropped };
    };
    let mut branch = Branch::new(session);
    let (ok, aborted) = match &outcome {
        Compacted::Done(_) => (true, false),
        Compacted::Failed { .. } => (false, false),
        Compacted::Aborted => (false, true),
    };
    let then = match (&compaction.then, ok) {
        (Then::Prompt, _) => Then::Prompt,
        (then, true) => then.clone(),
        (_, false) => Then::Rest,
    };
    // A prompt that was taken back leaves nothing to run; what was said meanwhile is not left lying.
    let then = match then {
        Then::Prompt if session.queue(Queue::Prompt).is_empty() => Then::Rest,
        other => other,
    };
    let is_waited_for = [Queue::Steering, Queue::FollowUp].iter().any(|queue| !session.queue(*queue).is_empty());
    let message = match outcome {
        Compacted::Done(said) => {
            let kind =
                Kind::Compaction { first_kept: compaction.first_kept.clone(), tokens_before: compaction.tokens_before };
            branch.say(kind, said, context);
            None
        }
        Compacted::Failed { message } => Some(message),
        Compacted::Aborted => None,
    };
    let ended = Happened::CompactionEnded { epoch, ok, aborted, then: then.clone() };
    branch.push_with(Event::Session(ended), message);
    let (trigger, opening) = match then {
        Then::Rest if is_waited_for && !aborted => (Trigger::Prompt, Vec::new()),
        Then::Rest => return Decision { facts: branch.finish(), reply: Reply::Done },
        Then::Continue => (Trigger::Continuation, vec![(Kind::Developer, texts::developer(texts::CONTINUE))]),
        Then::Again => (Trigger::Overflow, Vec::new()),
        Then::Prompt => (Trigger::Prompt, Vec::new()),
    };
    settle::continue_with(&mut branch, trigger, opening, context);
    Decision { facts: branch.finish(), reply: Reply::Done }
}
