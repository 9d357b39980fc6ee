//! Deciders for conversations that restart, and for messages that get a run of their own.

use std::sync::Arc;

use crate::{
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    id::{EntryId, Lsn, PrincipalId},
    policy::{self, GrantReach},
    run::RunMetadata,
    session::{Event as Happened, MessageContent, MessageQueue, PromptError, Session, SessionEntryKind},
    settle,
};

/// Begins a run with the message, or queues it. A context that is too long is compacted first, by the rule that begins it.
pub(super) fn submit_message(
    view: DecisionView<'_>,
    session: &Session,
    message: MessageContent,
    marks: Box<RunMetadata>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if session.settings().model.is_none() && marks.model.is_none() {
        return Err(PromptError::NoModel(session.id().clone()).into());
    }
    let mut branch = BranchBuilder::new(session);
    let waits = !session.is_at_rest() || !session.queue(MessageQueue::Next).is_empty();
    if waits || session.is_over_limit() || view.closing {
        let behind = session.behind_compaction().map(|begun| begun.content).filter(|_| marks.ahead);
        let marks = Some(marks).filter(|marks| !marks.is_empty());
        let queued = Happened::Queued {
            queue: MessageQueue::Next,
            tokens: message.tokens,
            kind: SessionEntryKind::User,
            marks,
            behind,
        };
        branch.push_with(Event::Session(queued), Some(message.content));
        return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued });
    }
    let run = settle::begin_own(&mut branch, Some(message), *marks, context);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Started(run) })
}

pub(super) fn renew_session(
    view: DecisionView<'_>,
    session: &Session,
    by: &PrincipalId,
    owed: Option<Arc<str>>,
) -> Result<DecisionResult, CommandError> {
    if !session.is_at_rest() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let fact = |event| Fact::without_content(Event::Session(event), Some(session.id().clone()));
    let cleared = (session.queued_count() > 0).then(|| fact(Happened::Cleared));
    // Grants for the session were for the one that is over.
    let grants = view.state.policy().grants().iter();
    let ends = grants.filter(|grant| matches!(&grant.scope, GrantReach::Session(of) if of == session.id()));
    let revoked = ends.map(|grant| policy::Event::Revoked { id: grant.id, by: by.clone() });
    let revoked = revoked.map(|event| Fact::without_content(Event::Policy(event), None));
    let renewed = Fact { content: owed, ..fact(Happened::Renewed) };
    let facts = cleared.into_iter().chain(revoked).chain([renewed]).collect();
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

pub(super) fn mark_remembered(session: &Session, renewed: Lsn) -> DecisionResult {
    let event = Event::Session(Happened::Remembered { renewed });
    DecisionResult { facts: vec![Fact::without_content(event, Some(session.id().clone()))], reply: EngineReply::Done }
}

pub(super) fn trim_session(session: &Session, first_kept: EntryId) -> Result<DecisionResult, CommandError> {
    if session.active_compaction().is_some() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let Some(kept) = session.entry(&first_kept) else {
        return Err(CommandError::NoEntry { session: session.id().clone(), entry: first_kept.to_string() });
    };
    let works_from = session.run_began().and_then(|began| session.entry(began));
    if works_from.is_some_and(|began| began.lsn < kept.lsn) {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let event = Event::Session(Happened::Trimmed { first_kept });
    Ok(DecisionResult {
        facts: vec![Fact::without_content(event, Some(session.id().clone()))],
        reply: EngineReply::Done,
    })
}
