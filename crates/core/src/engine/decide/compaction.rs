//! Deciders for compactions: beginning one, stopping it, and continuing afterwards.

use std::sync::Arc;

use crate::{
    decision::{
        BranchBuilder, CommandError, DecisionContext, DecisionResult, EngineReply, Event, Fact, ResumeMode,
        check_compaction_budget, compaction_started, texts,
    },
    ledger::BudgetAmount,
    run::{Event as OfRun, RunTrigger},
    session::{
        ActiveCompaction, AfterCompaction, CompactError, CompactionCause, CompactionOutcome, Event as Happened,
        MessageQueue, Session, SessionEntryKind,
    },
    settle,
    time::Millis,
    unattended,
};

pub(super) fn begin_compaction(
    session: &Session,
    instructions: Option<Arc<str>>,
    now: Millis,
) -> Result<DecisionResult, CommandError> {
    if session.active_compaction().is_some() {
        return Err(CompactError::UnderWay.into());
    }
    if session.run().is_some() {
        return Err(CompactError::Busy.into());
    }
    if session.settings().model.is_none() {
        return Err(CompactError::NoModel.into());
    }
    if session.path_entries().last().is_some_and(|entry| matches!(entry.kind, SessionEntryKind::Compaction { .. })) {
        return Err(CompactError::Already.into());
    }
    let cut = session.find_cut().ok_or(CompactError::Nothing)?;
    check_compaction_budget(session, &cut, now).map_err(unattended::DeclareError::Exceeds)?;
    let epoch = session.compactions + 1;
    let event = compaction_started(session, CompactionCause::Manual, cut, AfterCompaction::Rest);
    let fact = Fact { event, session: Some(session.id().clone()), content: instructions };
    Ok(DecisionResult { facts: vec![fact], reply: EngineReply::Compacting { epoch } })
}

pub(super) fn abort_compaction(session: &Session) -> DecisionResult {
    match session.active_compaction() {
        Some(compaction) if !compaction.aborting => DecisionResult {
            facts: vec![Fact::without_content(
                Event::Session(Happened::CompactionAborting),
                Some(session.id().clone()),
            )],
            reply: EngineReply::Compacting { epoch: compaction.epoch },
        },
        Some(compaction) => {
            DecisionResult { facts: Vec::new(), reply: EngineReply::Compacting { epoch: compaction.epoch } }
        }
        None => DecisionResult { facts: Vec::new(), reply: EngineReply::Idle },
    }
}

pub(super) fn end_compaction(
    session: &Session,
    epoch: u32,
    outcome: CompactionOutcome,
    context: &mut DecisionContext,
) -> DecisionResult {
    let Some(compaction) = session.active_compaction().filter(|compaction| compaction.epoch == epoch) else {
        let content = match outcome {
            CompactionOutcome::Done { summary, .. } => Some(summary.content),
            CompactionOutcome::Failed { message } => Some(message),
            CompactionOutcome::Aborted => None,
        };
        let event = Event::Session(Happened::CompactionDropped { epoch });
        return DecisionResult {
            facts: vec![Fact { event, session: Some(session.id().clone()), content }],
            reply: EngineReply::Dropped,
        };
    };
    if matches!(outcome, CompactionOutcome::Aborted) && !compaction.aborting && may_be_left(session, compaction) {
        // The process ends, and the compaction was not stopped: the next process takes it up.
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Done };
    }
    let mut branch = BranchBuilder::new(session);
    let (end, message) = match outcome {
        CompactionOutcome::Done { summary, spent } => {
            let kind = SessionEntryKind::Compaction {
                first_kept: compaction.first_kept.clone(),
                tokens_before: compaction.tokens_before,
            };
            branch.push_message(kind, summary, context);
            (CompactionEnd::Done { spent }, None)
        }
        CompactionOutcome::Failed { message } => (CompactionEnd::Failed, Some(message)),
        CompactionOutcome::Aborted => (CompactionEnd::Aborted, None),
    };
    end_as(&mut branch, compaction, end, message, context);
    DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done }
}

/// Reports whether another process may take up a compaction for a request that was too long. The contract of a job ends with it.
fn may_be_left(session: &Session, compaction: &ActiveCompaction) -> bool {
    compaction.then == AfterCompaction::Again
        && session.unattended().is_none_or(|contract| contract.firing_id().is_none())
}

/// Outcome of a compaction, which decides how work continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompactionEnd {
    Done {
        /// Its use of a budget, if known.
        spent: Option<BudgetAmount>,
    },
    Failed,
    Aborted,
    /// The process that worked on it ended.
    Lost,
}

/// Recovers a compaction that a new process finds unfinished. The work after it still waits for it, unless it was stopped.
pub(super) fn recover_compaction(
    branch: &mut BranchBuilder<'_>,
    compaction: &ActiveCompaction,
    resume: ResumeMode,
    context: &mut DecisionContext,
) {
    let epoch = compaction.epoch;
    if resume == ResumeMode::Go && compaction.aborting {
        return end_as(branch, compaction, CompactionEnd::Aborted, None, context);
    }
    let is_again = compaction.then == AfterCompaction::Again;
    if resume == ResumeMode::Go
        && (compaction.then == AfterCompaction::Rest || is_again && !may_be_left(branch.session(), compaction))
    {
        return end_as(branch, compaction, CompactionEnd::Lost, None, context);
    }
    branch.push_event(Event::Session(Happened::CompactionEnded {
        epoch,
        ok: false,
        aborted: true,
        then: AfterCompaction::Rest,
        spent: None,
    }));
    if resume == ResumeMode::Go {
        branch.push_event(Event::Session(Happened::CompactionStarted {
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

/// Ends a compaction and begins the work after it.
fn end_as(
    branch: &mut BranchBuilder<'_>,
    compaction: &ActiveCompaction,
    end: CompactionEnd,
    message: Option<Arc<str>>,
    context: &mut DecisionContext,
) {
    if compaction.then == AfterCompaction::Again && compaction.aborting {
        settle::forget_run(branch);
    } else if compaction.then == AfterCompaction::Again && matches!(end, CompactionEnd::Aborted | CompactionEnd::Lost) {
        // The repeated request is not taken up: clients that wait for it get that it is stopped.
        branch.push_event(Event::Session(Happened::CompactionAborting));
    }
    let session = branch.session();
    let is_for_next = session.behind_compaction().is_some();
    let (is_done, spent) = match end {
        CompactionEnd::Done { spent } => (true, spent),
        CompactionEnd::Failed | CompactionEnd::Aborted | CompactionEnd::Lost => (false, None),
    };
    let then = match &compaction.then {
        // A prompt that was taken back leaves nothing to run.
        AfterCompaction::Prompt if session.queue(MessageQueue::Prompt).is_empty() => AfterCompaction::Rest,
        AfterCompaction::Prompt => AfterCompaction::Prompt,
        // It was stopped, at any progress.
        _ if compaction.aborting => AfterCompaction::Rest,
        then if is_done => then.clone(),
        _ => AfterCompaction::Rest,
    };
    let awaited = compaction.run.filter(|_| matches!(then, AfterCompaction::Prompt | AfterCompaction::Again));
    branch.push_with(
        Event::Session(Happened::CompactionEnded {
            epoch: compaction.epoch,
            ok: is_done,
            aborted: matches!(end, CompactionEnd::Aborted | CompactionEnd::Lost),
            then: then.clone(),
            spent,
        }),
        message,
    );
    // Messages from during the compaction are taken up; older queued messages start nothing.
    // A steering message for a repeated request is meant for its continuation.
    let is_for_again = |queue| compaction.then == AfterCompaction::Again && queue == MessageQueue::Steering;
    let is_waited_for = [MessageQueue::Steering, MessageQueue::FollowUp].into_iter().any(|queue| {
        let mut queued = session.queue(queue).iter();
        queued.any(|queued| is_for_again(queue) || queued.content > compaction.instructions)
    });
    let (trigger, opening) = match &then {
        AfterCompaction::Rest if is_waited_for && end != CompactionEnd::Aborted && !compaction.aborting => {
            (RunTrigger::Prompt, Vec::new())
        }
        AfterCompaction::Rest => {
            // The stop also applies to the prompt for which it was made. Messages that wait after it continue.
            let stopped =
                branch.session().queue(MessageQueue::Next).front().filter(|_| compaction.aborting && is_for_next);
            if let Some(next) = stopped {
                let marks = next.marks.as_deref().cloned().unwrap_or_default();
                let run = settle::begin_own(branch, None, marks, context);
                branch.push_event(Event::Run(OfRun::Aborting { run }));
            }
            return;
        }
        AfterCompaction::Continue => {
            (RunTrigger::Continuation, vec![(SessionEntryKind::Developer, texts::developer_message(texts::CONTINUE))])
        }
        AfterCompaction::Again => (RunTrigger::Overflow, Vec::new()),
        AfterCompaction::Prompt => (RunTrigger::Prompt, Vec::new()),
    };
    let run = settle::continue_with(branch, awaited, trigger, opening, context);
    let goes_on_as_before = trigger == RunTrigger::Overflow || awaited.is_some();
    if let Some(marks) = compaction.marks.clone().filter(|_| goes_on_as_before) {
        branch.push_event(Event::Run(OfRun::Marked { run, marks }));
    }
    // The stop also applies to the prompt that waited for it: it is recorded, and the model is not requested.
    if compaction.aborting && then == AfterCompaction::Prompt {
        branch.push_event(Event::Run(OfRun::Aborting { run }));
    }
}
