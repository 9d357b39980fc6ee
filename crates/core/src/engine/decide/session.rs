//! Deciders for a session: opening it, its messages, and its settings.

use std::collections::BTreeSet;

use crate::{
    call,
    decision::{
        BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact,
        check_compaction_budget, compaction_started_for, prune_entries, texts,
    },
    id::{EntryId, Lsn, RunId, SessionId},
    message::StopReason,
    run::{self, AbortState, Run, RunMetadata, RunOutcome, RunPhase, RunTrigger},
    session::{
        self, Event as Happened, FilePart, ImportedEntry, MessageContent, MessageQueue, PromptError, Session,
        SessionEntry, SessionEntryKind, SessionSetting, Settings, StagedEntry, WhenBusy,
    },
    settle,
    unattended::{self, UnattendedContract},
};

/// Maximum length of a name, in bytes.
const LONGEST_NAME: usize = 4096;
/// Error for imported entries with the same name.
const TWICE: CommandError = CommandError::OutOfPlace("two entries have the same name");
/// Result of a call whose message the session file no longer holds.
const WITHDRAWN: &str = "Not run: the session file no longer holds the message that wanted this call.";

pub(super) fn open_session(
    view: DecisionView<'_>,
    id: SessionId,
    opened: Happened,
    settings: Box<Settings>,
) -> Result<DecisionResult, CommandError> {
    if view.state.session(&id).is_some() {
        return Err(CommandError::SessionExists(id));
    }
    let hosted = view.rules_before_open(&id).map(|(digest, rules)| {
        let realm = rules.path_context.realm.clone().unwrap_or_default();
        Happened::Hosted { realm, rules: digest }
    });
    let events = std::iter::once(opened).chain(hosted).chain([Happened::Set(SessionSetting::All(settings))]);
    let facts = events.map(|event| Fact::without_content(Event::Session(event), Some(id.clone()))).collect();
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

pub(super) fn import_entries(
    session: &Session,
    entries: Vec<ImportedEntry>,
    leaf: Option<EntryId>,
) -> Result<DecisionResult, CommandError> {
    if !session.is_at_rest() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let mut names = BTreeSet::new();
    if entries.iter().any(|entry| session.entry(&entry.id).is_some() || !names.insert(&entry.id)) {
        return Err(TWICE);
    }
    let missing =
        leaf.as_ref().filter(|leaf| session.entry(leaf).is_none() && !entries.iter().any(|entry| entry.id == **leaf));
    if let Some(missing) = missing {
        return Err(CommandError::NoEntry { session: session.id().clone(), entry: missing.to_string() });
    }
    let mut facts = Vec::with_capacity(entries.len() + 1);
    let mut retried = retried_answers(entries.iter().map(|entry| (&entry.id, &entry.kind, entry.parent.as_ref())));
    retried.retain(|entry| session.entry(entry).is_none());
    for ImportedEntry { id, parent, kind, message, made_at } in entries {
        let event = Happened::Entry { id, parent, kind, tokens: message.tokens, made_at, content_at: None };
        facts.push(Fact {
            event: Event::Session(event),
            session: Some(session.id().clone()),
            content: Some(message.content),
        });
    }
    facts.extend(
        retried.into_iter().map(|entry| {
            Fact::without_content(Event::Session(Happened::Dropped { entry }), Some(session.id().clone()))
        }),
    );
    let moved = Happened::Moved { leaf, messages: None };
    facts.push(Fact::without_content(Event::Session(moved), Some(session.id().clone())));
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

/// Returns failed answers that another answer follows: the requests were repeated, and they are not part of the conversation.
fn retried_answers<'a>(
    entries: impl Iterator<Item = (&'a EntryId, &'a SessionEntryKind, Option<&'a EntryId>)> + Clone,
) -> Vec<EntryId> {
    let failed = entries
        .clone()
        .filter(|(_, kind, _)| matches!(kind, SessionEntryKind::Assistant { stop: StopReason::Error, .. }));
    let failed: BTreeSet<&EntryId> = failed.map(|(id, _, _)| id).collect();
    let followed = entries.filter(|(_, kind, _)| matches!(kind, SessionEntryKind::Assistant { .. }));
    followed.filter_map(|(_, _, parent)| parent).filter(|parent| failed.contains(parent)).cloned().collect()
}

/// Maximum size of the entries that one fact names as kept, in bytes of their ids.
const KEPT_AT_ONCE: usize = 16 * 1024;

pub(super) fn gather_entries(
    session: &Session,
    part: FilePart,
    entries: Vec<StagedEntry>,
) -> Result<DecisionResult, CommandError> {
    let mut branch = BranchBuilder::new(session);
    match part {
        FilePart::First => branch.push_event(Event::Session(Happened::Gathering)),
        FilePart::Next if session.gathering.is_some() => {}
        FilePart::Next => return Err(CommandError::OutOfPlace("nothing is being gathered")),
    }
    let gathered = session.gathering.as_ref().filter(|_| part == FilePart::Next);
    let mut names = BTreeSet::new();
    let name = |entry: &StagedEntry| match entry {
        StagedEntry::Known(id) | StagedEntry::Foreign(ImportedEntry { id, .. }) => id.clone(),
    };
    if entries.iter().map(name).any(|id| {
        let is_there = gathered.is_some_and(|gathered| gathered.entry(&id).is_some());
        is_there || !names.insert(id)
    }) {
        return Err(TWICE);
    }
    let mut kept = Vec::new();
    let mut size = 0;
    for entry in entries {
        let foreign = match entry {
            StagedEntry::Known(id) if session.entry(&id).is_none() => {
                return Err(CommandError::NoEntry { session: session.id().clone(), entry: id.to_string() });
            }
            StagedEntry::Known(id) => {
                size += id.as_str().len();
                kept.push(id);
                if size < KEPT_AT_ONCE {
                    continue;
                }
                None
            }
            StagedEntry::Foreign(entry) => Some(entry),
        };
        flush_kept(&mut branch, &mut kept, &mut size);
        if let Some(ImportedEntry { id, parent, kind, message, made_at }) = foreign {
            let event = Happened::Gathered { id, parent, kind, tokens: message.tokens, made_at };
            branch.push_with(Event::Session(event), Some(message.content));
        }
    }
    flush_kept(&mut branch, &mut kept, &mut size);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

fn flush_kept(branch: &mut BranchBuilder<'_>, kept: &mut Vec<EntryId>, size: &mut usize) {
    if !kept.is_empty() {
        branch.push_event(Event::Session(Happened::Kept { entries: std::mem::take(kept) }));
        *size = 0;
    }
}

pub(super) fn replace_tree(
    view: DecisionView<'_>,
    session: &Session,
    leaf: Option<EntryId>,
) -> Result<DecisionResult, CommandError> {
    if session.active_compaction().is_some() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let Some(gathered) = &session.gathering else { return Err(CommandError::OutOfPlace("nothing was gathered")) };
    if let Some(leaf) = leaf.as_ref().filter(|leaf| gathered.entry(leaf).is_none()) {
        return Err(CommandError::NoEntry { session: session.id().clone(), entry: leaf.to_string() });
    }
    let is_kept = |entry: &SessionEntry| session.entry(&entry.id).is_some_and(|known| known.lsn == entry.lsn);
    let run = session.run().and_then(|run| view.state.run(run));
    // The message whose calls a run works on, or the last one that it had.
    let message = run.and_then(|run| match &run.last {
        Some((entry, _, _)) => Some(entry),
        None => session
            .path_entries()
            .into_iter()
            .rfind(|entry| matches!(entry.kind, SessionEntryKind::Assistant { .. }))
            .map(|it| &it.id),
    });
    let message = message
        .filter(|message| gathered.entry(message).is_some_and(is_kept) && gathered.is_on_way(leaf.as_ref(), message));
    let mut branch = BranchBuilder::new(session);
    if let Some(run) = run.filter(|_| message.is_none()) {
        withdraw_run(view, run, &mut branch);
    }
    branch.push_event(Event::Session(Happened::Replaced { leaf: leaf.clone() }));
    let foreign = gathered.entries().iter().filter(|entry| !is_kept(entry));
    for entry in retried_answers(foreign.map(|entry| (&entry.id, &entry.kind, entry.parent.as_ref()))) {
        branch.push_event(Event::Session(Happened::Dropped { entry }));
    }
    // A file cannot undo the results of calls of that message: they follow the entries of the file.
    let mut parent = leaf;
    let from =
        message.and_then(|message| session.by_id.get(message)).map_or_else(|| session.entries().len(), |at| at + 1);
    for entry in session.entries()[from..].iter().filter(|entry| gathered.entry(&entry.id).is_none()) {
        if let SessionEntryKind::ToolResult { .. } = entry.kind {
            branch.push_event(Event::Session(Happened::Entry {
                id: entry.id.clone(),
                parent: parent.replace(entry.id.clone()),
                kind: entry.kind.clone(),
                tokens: entry.tokens,
                made_at: Some(entry.at),
                content_at: Some(entry.content),
            }));
        }
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

/// Ends a run whose message the session's file no longer holds, without a message about it: the file is the conversation.
fn withdraw_run(view: DecisionView<'_>, run: &Run, branch: &mut BranchBuilder<'_>) {
    for call in run.calls().iter().filter_map(|call| view.state.call(*call)).filter(|call| !call.is_over()) {
        settle::withdraw_gate(view, branch, call);
        let has_begun = matches!(call.phase(), call::CallPhase::Started { .. } | call::CallPhase::InDoubt(_));
        let (end, text) = if has_begun && *call.executor() != call::Executor::Person {
            branch.push_event(Event::Call(call::Event::InDoubt {
                call: call.id(),
                since: call::DoubtCause::TaskBroke,
                until: None,
            }));
            (call::CallEnd::Unknown, texts::UNKNOWN)
        } else {
            (call::CallEnd::Cancelled, WITHDRAWN)
        };
        branch.push_with(Event::Call(call::Event::Ended { call: call.id(), end, entry: None }), Some(text.into()));
    }
    match run.phase() {
        RunPhase::Calling => branch.push_event(Event::Run(run::Event::TurnClosed { run: run.id() })),
        RunPhase::Thinking { .. } => branch.push_event(Event::Run(run::Event::Interrupted { run: run.id() })),
        RunPhase::Backoff { .. } => {
            if let Some(withdrawn) = settle::withdrawn_wait(view, run) {
                branch.push_event(withdrawn);
            }
        }
        RunPhase::Opening | RunPhase::Between | RunPhase::Ended(_) => {}
    }
    branch.push_event(Event::Run(run::Event::Ended { run: run.id(), end: RunOutcome::Aborted, attempts: run.attempt }));
}

pub(super) fn start_prompt(
    session: &Session,
    message: MessageContent,
    with: Vec<(SessionEntryKind, MessageContent)>,
    when_busy: WhenBusy,
    marks: Option<Box<RunMetadata>>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if session.run().is_some() || session.active_compaction().is_some() {
        return match when_busy {
            WhenBusy::Refuse => Err(PromptError::Busy(session.id().clone()).into()),
            WhenBusy::Steer => queue_message(session, MessageQueue::Steering, message),
            WhenBusy::FollowUp => queue_message(session, MessageQueue::FollowUp, message),
        };
    }
    if session.settings().model.is_none() {
        return Err(PromptError::NoModel(session.id().clone()).into());
    }
    if let Some(breach) = session.unattended().and_then(UnattendedContract::final_breach) {
        return Err(unattended::DeclareError::Over(breach).into());
    }
    // A new message is queued after those that wait: a run that was stopped or failed left them there.
    let is_behind =
        when_busy == WhenBusy::FollowUp && with.is_empty() && !session.queue(MessageQueue::FollowUp).is_empty();
    let mut branch = BranchBuilder::new(session);
    if session.is_over_limit()
        && !prune_entries(&mut branch)
        && let Some(cut) = session.find_cut().filter(|cut| check_compaction_budget(session, cut, context.now).is_ok())
    {
        let run = RunId::new(context.fresh.next_uuid(context.now));
        let started = compaction_started_for(session, cut, run, marks);
        if is_behind {
            branch.push_event(started);
            enqueue_message(&mut branch, MessageQueue::FollowUp, SessionEntryKind::User, message);
            return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued });
        }
        enqueue_message(&mut branch, MessageQueue::Prompt, SessionEntryKind::User, message);
        for (kind, message) in with {
            enqueue_message(&mut branch, MessageQueue::Prompt, kind, message);
        }
        branch.push_event(started);
        return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::BehindCompaction(run) });
    }
    if is_behind {
        enqueue_message(&mut branch, MessageQueue::FollowUp, SessionEntryKind::User, message);
        settle::continue_with(&mut branch, None, RunTrigger::Prompt, Vec::new(), context);
        return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued });
    }
    let mut opening = vec![(SessionEntryKind::User, message)];
    opening.extend(with);
    let run = settle::continue_with(&mut branch, None, RunTrigger::Prompt, opening, context);
    if let Some(marks) = marks {
        branch.push_event(Event::Run(run::Event::Marked { run, marks }));
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Started(run) })
}

fn enqueue_message(
    branch: &mut BranchBuilder<'_>,
    queue: MessageQueue,
    kind: SessionEntryKind,
    message: MessageContent,
) {
    let event = Happened::Queued { queue, tokens: message.tokens, kind, marks: None, behind: None };
    branch.push_with(Event::Session(event), Some(message.content));
}

pub(super) fn queue_message(
    session: &Session,
    queue: MessageQueue,
    message: MessageContent,
) -> Result<DecisionResult, CommandError> {
    if let MessageQueue::Prompt | MessageQueue::Held | MessageQueue::Next = queue {
        return Err(CommandError::OutOfPlace("only steering and follow-ups are queued by command"));
    }
    let mut branch = BranchBuilder::new(session);
    enqueue_message(&mut branch, queue, SessionEntryKind::User, message);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued })
}

pub(super) fn steer_run(view: DecisionView<'_>, session: &Session, message: MessageContent) -> DecisionResult {
    let works = session.run().filter(|run| view.state.run(*run).is_some_and(|run| run.abort_state() == AbortState::No));
    let is_stopping = session.active_compaction().is_some_and(|compaction| compaction.aborting);
    let Some(run) = works.or_else(|| session.awaited_run().filter(|_| !is_stopping)) else {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    };
    let mut branch = BranchBuilder::new(session);
    enqueue_message(&mut branch, MessageQueue::Steering, SessionEntryKind::User, message);
    DecisionResult { facts: branch.into_facts(), reply: EngineReply::Steering(run) }
}

pub(super) fn clear_queues(session: &Session) -> Result<DecisionResult, CommandError> {
    let facts = if session.queued_count() == 0 {
        Vec::new()
    } else {
        vec![Fact::without_content(Event::Session(Happened::Cleared), Some(session.id().clone()))]
    };
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

pub(super) fn change_setting(
    session: &Session,
    setting: SessionSetting,
    entry: Option<(SessionEntryKind, MessageContent)>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let mut branch = BranchBuilder::new(session);
    branch.push_event(Event::Session(Happened::Set(setting)));
    if let Some((kind, message)) = entry {
        branch.push_message(kind, message, context);
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

pub(super) fn set_tasks(
    session: &Session,
    entry: MessageContent,
    open: u32,
    context: &mut DecisionContext,
) -> DecisionResult {
    let mut branch = BranchBuilder::new(session);
    branch.push_message(SessionEntryKind::Other, entry, context);
    branch.push_event(Event::Session(Happened::Tasks { open }));
    DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done }
}

pub(super) fn count_tasks(session: &Session, open: u32) -> DecisionResult {
    let counted = (session.open_tasks != open).then_some(Event::Session(Happened::Tasks { open }));
    let facts = counted.map(|event| Fact::without_content(event, Some(session.id().clone())));
    DecisionResult { facts: facts.into_iter().collect(), reply: EngineReply::Done }
}

pub(super) fn name_session(session: &Session, name: &str) -> Result<DecisionResult, CommandError> {
    let name = name.trim();
    if name.is_empty() {
        return Err(CommandError::EmptyName);
    }
    if name.len() > LONGEST_NAME {
        return Err(CommandError::TooLong { what: "a session's name", limit: LONGEST_NAME });
    }
    let event = Event::Session(session::Event::Named { name: name.to_owned() });
    Ok(DecisionResult {
        facts: vec![Fact::without_content(event, Some(session.id().clone()))],
        reply: EngineReply::Done,
    })
}

pub(super) fn relocate_session(session: &Session, cwd: String) -> Result<DecisionResult, CommandError> {
    if !session.is_at_rest() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let event = Event::Session(Happened::Relocated { cwd });
    Ok(DecisionResult {
        facts: vec![Fact::without_content(event, Some(session.id().clone()))],
        reply: EngineReply::Done,
    })
}

pub(super) fn leave_for(session: &Session, home: String) -> Result<DecisionResult, CommandError> {
    if !session.is_at_rest() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let event = Event::Session(Happened::LeftFor { home });
    Ok(DecisionResult {
        facts: vec![Fact::without_content(event, Some(session.id().clone()))],
        reply: EngineReply::Done,
    })
}

pub(super) fn came_from(session: &Session, home: String) -> DecisionResult {
    let event = Event::Session(Happened::CameFrom { home });
    DecisionResult { facts: vec![Fact::without_content(event, Some(session.id().clone()))], reply: EngineReply::Done }
}

pub(super) fn move_to(session: &Session, leaf: Option<EntryId>) -> Result<DecisionResult, CommandError> {
    if !session.is_at_rest() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    if let Some(leaf) = leaf.as_ref().filter(|leaf| session.entry(leaf).is_none()) {
        return Err(CommandError::NoEntry { session: session.id().clone(), entry: leaf.to_string() });
    }
    let messages = Some(session.messages_to(leaf.as_ref()));
    let event = Event::Session(Happened::Moved { leaf, messages });
    Ok(DecisionResult {
        facts: vec![Fact::without_content(event, Some(session.id().clone()))],
        reply: EngineReply::Done,
    })
}

pub(super) fn ask_again(
    session: &Session,
    answer: &EntryId,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if !session.is_at_rest() || session.queued_count() > 0 {
        return Err(CommandError::Busy(session.id().clone()));
    }
    if session.settings().model.is_none() {
        return Err(PromptError::NoModel(session.id().clone()).into());
    }
    if let Some(breach) = session.unattended().and_then(UnattendedContract::final_breach) {
        return Err(unattended::DeclareError::Over(breach).into());
    }
    let path = session.path_entries();
    let newest = path.iter().rfind(|entry| {
        entry.kind.is_message()
            || matches!(entry.kind, SessionEntryKind::Compaction { .. } | SessionEntryKind::ContextReset)
    });
    let is_answer =
        |entry: &&&SessionEntry| entry.id == *answer && matches!(entry.kind, SessionEntryKind::Assistant { .. });
    let Some(entry) = newest.filter(is_answer) else {
        return Err(CommandError::NoEntry { session: session.id().clone(), entry: answer.to_string() });
    };
    let leaf = entry.parent.clone();
    let messages = Some(session.messages_to(leaf.as_ref()));
    let mut branch = BranchBuilder::new(session);
    branch.push_event(Event::Session(Happened::Moved { leaf, messages }));
    let run = settle::continue_with(&mut branch, None, RunTrigger::Prompt, Vec::new(), context);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Started(run) })
}

pub(super) fn record_sequence(session: &Session, number: u64, upto: Option<Lsn>) -> DecisionResult {
    let event = Event::Session(Happened::SequenceRecorded { number, upto });
    DecisionResult { facts: vec![Fact::without_content(event, Some(session.id().clone()))], reply: EngineReply::Done }
}

pub(super) fn file_written(session: &Session, path: String, length: u64, digest: String) -> DecisionResult {
    let event = Event::Session(Happened::FileWritten { path, length, digest });
    DecisionResult { facts: vec![Fact::without_content(event, Some(session.id().clone()))], reply: EngineReply::Done }
}
