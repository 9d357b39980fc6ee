//! Deciders for a session: opening it, what is said in it, and what is set.

use std::collections::BTreeSet;

use crate::{
    call,
    decision::{
        BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact,
        check_compaction_budget, compaction_started_for, prune_entries, texts,
    },
    id::{EntryId, Lsn, RunId, SessionId},
    message::StopReason,
    run::{self, Abort, End, Marks, Phase, Run, Trigger},
    session::{
        self, Entry, Event as Happened, Gathered, Imported, Kind, Part, PromptRefusal, Queue, Said, Session, Setting,
        Settings, WhenBusy,
    },
    settle,
    unattended::{self, UnattendedContract},
};

/// How long a name may be, in bytes.
const LONGEST_NAME: usize = 4096;
/// Why entries from elsewhere are not taken.
const TWICE: CommandError = CommandError::OutOfPlace("two entries have the same name");
/// What the record says of a call that nobody can be asked about any more.
const WITHDRAWN: &str = "Not run: the session file no longer holds the message that wanted this call.";

pub(super) fn open(
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
    let events = std::iter::once(opened).chain(hosted).chain([Happened::Set(Setting::All(settings))]);
    let facts = events.map(|event| Fact::without_content(Event::Session(event), Some(id.clone()))).collect();
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

pub(super) fn import(
    session: &Session,
    entries: Vec<Imported>,
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
    let mut retried = retried(entries.iter().map(|entry| (&entry.id, &entry.kind, entry.parent.as_ref())));
    retried.retain(|entry| session.entry(entry).is_none());
    for Imported { id, parent, kind, said, made_at } in entries {
        let event = Happened::Entry { id, parent, kind, tokens: said.tokens, made_at, content_at: None };
        facts.push(Fact {
            event: Event::Session(event),
            session: Some(session.id().clone()),
            content: Some(said.content),
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

/// Failed answers that another answer follows: they were asked again and are not part of what was said.
fn retried<'a>(entries: impl Iterator<Item = (&'a EntryId, &'a Kind, Option<&'a EntryId>)> + Clone) -> Vec<EntryId> {
    let failed = entries.clone().filter(|(_, kind, _)| matches!(kind, Kind::Assistant { stop: StopReason::Error, .. }));
    let failed: BTreeSet<&EntryId> = failed.map(|(id, _, _)| id).collect();
    let followed = entries.filter(|(_, kind, _)| matches!(kind, Kind::Assistant { .. }));
    followed.filter_map(|(_, _, parent)| parent).filter(|parent| failed.contains(parent)).cloned().collect()
}

/// What one fact names of entries that stay, in bytes of their ids.
const KEPT_AT_ONCE: usize = 16 * 1024;

pub(super) fn gather(session: &Session, part: Part, entries: Vec<Gathered>) -> Result<DecisionResult, CommandError> {
    let mut branch = BranchBuilder::new(session);
    match part {
        Part::First => branch.push_event(Event::Session(Happened::Gathering)),
        Part::Next if session.gathering.is_some() => {}
        Part::Next => return Err(CommandError::OutOfPlace("nothing is being gathered")),
    }
    let gathered = session.gathering.as_ref().filter(|_| part == Part::Next);
    let mut names = BTreeSet::new();
    let name = |entry: &Gathered| match entry {
        Gathered::Known(id) | Gathered::Foreign(Imported { id, .. }) => id.clone(),
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
            Gathered::Known(id) if session.entry(&id).is_none() => {
                return Err(CommandError::NoEntry { session: session.id().clone(), entry: id.to_string() });
            }
            Gathered::Known(id) => {
                size += id.as_str().len();
                kept.push(id);
                if size < KEPT_AT_ONCE {
                    continue;
                }
                None
            }
            Gathered::Foreign(entry) => Some(entry),
        };
        keep(&mut branch, &mut kept, &mut size);
        if let Some(Imported { id, parent, kind, said, made_at }) = foreign {
            let event = Happened::Gathered { id, parent, kind, tokens: said.tokens, made_at };
            branch.push_with(Event::Session(event), Some(said.content));
        }
    }
    keep(&mut branch, &mut kept, &mut size);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

fn keep(branch: &mut BranchBuilder<'_>, kept: &mut Vec<EntryId>, size: &mut usize) {
    if !kept.is_empty() {
        branch.push_event(Event::Session(Happened::Kept { entries: std::mem::take(kept) }));
        *size = 0;
    }
}

pub(super) fn replace(
    view: DecisionView<'_>,
    session: &Session,
    leaf: Option<EntryId>,
) -> Result<DecisionResult, CommandError> {
    if session.compaction().is_some() {
        return Err(CommandError::Busy(session.id().clone()));
    }
    let Some(gathered) = &session.gathering else { return Err(CommandError::OutOfPlace("nothing was gathered")) };
    if let Some(leaf) = leaf.as_ref().filter(|leaf| gathered.entry(leaf).is_none()) {
        return Err(CommandError::NoEntry { session: session.id().clone(), entry: leaf.to_string() });
    }
    let is_kept = |entry: &Entry| session.entry(&entry.id).is_some_and(|known| known.lsn == entry.lsn);
    let run = session.run().and_then(|run| view.state.run(run));
    // The message whose calls a run works on, or the last one that it had.
    let message = run.and_then(|run| match &run.last {
        Some((entry, _, _)) => Some(entry),
        None => session.path().into_iter().rfind(|entry| matches!(entry.kind, Kind::Assistant { .. })).map(|it| &it.id),
    });
    let message = message
        .filter(|message| gathered.entry(message).is_some_and(is_kept) && gathered.is_on_way(leaf.as_ref(), message));
    let mut branch = BranchBuilder::new(session);
    if let Some(run) = run.filter(|_| message.is_none()) {
        withdraw(view, run, &mut branch);
    }
    branch.push_event(Event::Session(Happened::Replaced { leaf: leaf.clone() }));
    let foreign = gathered.entries().iter().filter(|entry| !is_kept(entry));
    for entry in retried(foreign.map(|entry| (&entry.id, &entry.kind, entry.parent.as_ref()))) {
        branch.push_event(Event::Session(Happened::Dropped { entry }));
    }
    // What calls of that message came to is not for a file to undo: it follows what the file says.
    let mut parent = leaf;
    let from =
        message.and_then(|message| session.by_id.get(message)).map_or_else(|| session.entries().len(), |at| at + 1);
    for entry in session.entries()[from..].iter().filter(|entry| gathered.entry(&entry.id).is_none()) {
        if let Kind::ToolResult { .. } = entry.kind {
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

/// The end of a run whose message the session's file does not hold any more. Nothing of it is said: the file is the conversation.
fn withdraw(view: DecisionView<'_>, run: &Run, branch: &mut BranchBuilder<'_>) {
    for call in run.calls().iter().filter_map(|call| view.state.call(*call)).filter(|call| !call.is_over()) {
        settle::withdraw_gate(view, branch, call);
        let has_begun = matches!(call.phase(), call::Phase::Started { .. } | call::Phase::InDoubt(_));
        let (end, text) = if has_begun && *call.executor() != call::Executor::Person {
            branch.push_event(Event::Call(call::Event::InDoubt {
                call: call.id(),
                since: call::Known::TaskBroke,
                until: None,
            }));
            (call::End::Unknown, texts::UNKNOWN)
        } else {
            (call::End::Cancelled, WITHDRAWN)
        };
        branch.push_with(Event::Call(call::Event::Ended { call: call.id(), end, entry: None }), Some(text.into()));
    }
    match run.phase() {
        Phase::Calling => branch.push_event(Event::Run(run::Event::TurnClosed { run: run.id() })),
        Phase::Thinking { .. } => branch.push_event(Event::Run(run::Event::Interrupted { run: run.id() })),
        Phase::Backoff { .. } => {
            if let Some(withdrawn) = settle::withdrawn_wait(view, run) {
                branch.push_event(withdrawn);
            }
        }
        Phase::Opening | Phase::Between | Phase::Ended(_) => {}
    }
    branch.push_event(Event::Run(run::Event::Ended { run: run.id(), end: End::Aborted, attempts: run.attempt }));
}

pub(super) fn prompt(
    session: &Session,
    said: Said,
    with: Vec<(Kind, Said)>,
    when_busy: WhenBusy,
    marks: Option<Box<Marks>>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if session.run().is_some() || session.compaction().is_some() {
        return match when_busy {
            WhenBusy::Refuse => Err(PromptRefusal::Busy(session.id().clone()).into()),
            WhenBusy::Steer => queue(session, Queue::Steering, said),
            WhenBusy::FollowUp => queue(session, Queue::FollowUp, said),
        };
    }
    if session.settings().model.is_none() {
        return Err(PromptRefusal::NoModel(session.id().clone()).into());
    }
    if let Some(breach) = session.unattended().and_then(UnattendedContract::final_breach) {
        return Err(unattended::DeclareError::Over(breach).into());
    }
    // Whoever wants a place in the queue gets it behind those who have one: a run that was stopped or failed left them there.
    let is_behind = when_busy == WhenBusy::FollowUp && with.is_empty() && !session.queue(Queue::FollowUp).is_empty();
    let mut branch = BranchBuilder::new(session);
    if session.is_over_limit()
        && !prune_entries(&mut branch)
        && let Some(cut) = session.cut().filter(|cut| check_compaction_budget(session, cut, context.now).is_ok())
    {
        let run = RunId::new(context.fresh.uuid(context.now));
        let started = compaction_started_for(session, cut, run, marks);
        if is_behind {
            branch.push_event(started);
            enqueue(&mut branch, Queue::FollowUp, Kind::User, said);
            return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued });
        }
        enqueue(&mut branch, Queue::Prompt, Kind::User, said);
        for (kind, said) in with {
            enqueue(&mut branch, Queue::Prompt, kind, said);
        }
        branch.push_event(started);
        return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::BehindCompaction(run) });
    }
    if is_behind {
        enqueue(&mut branch, Queue::FollowUp, Kind::User, said);
        settle::continue_with(&mut branch, None, Trigger::Prompt, Vec::new(), context);
        return Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued });
    }
    let mut opening = vec![(Kind::User, said)];
    opening.extend(with);
    let run = settle::continue_with(&mut branch, None, Trigger::Prompt, opening, context);
    if let Some(marks) = marks {
        branch.push_event(Event::Run(run::Event::Marked { run, marks }));
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Started(run) })
}

fn enqueue(branch: &mut BranchBuilder<'_>, queue: Queue, kind: Kind, said: Said) {
    let event = Happened::Queued { queue, tokens: said.tokens, kind, marks: None, behind: None };
    branch.push_with(Event::Session(event), Some(said.content));
}

pub(super) fn queue(session: &Session, queue: Queue, said: Said) -> Result<DecisionResult, CommandError> {
    if let Queue::Prompt | Queue::Held | Queue::Next = queue {
        return Err(CommandError::OutOfPlace("only steering and follow-ups are queued by command"));
    }
    let mut branch = BranchBuilder::new(session);
    enqueue(&mut branch, queue, Kind::User, said);
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Queued })
}

pub(super) fn steer(view: DecisionView<'_>, session: &Session, said: Said) -> DecisionResult {
    let works = session.run().filter(|run| view.state.run(*run).is_some_and(|run| run.abort() == Abort::No));
    let is_stopping = session.compaction().is_some_and(|compaction| compaction.aborting);
    let Some(run) = works.or_else(|| session.awaited_run().filter(|_| !is_stopping)) else {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    };
    let mut branch = BranchBuilder::new(session);
    enqueue(&mut branch, Queue::Steering, Kind::User, said);
    DecisionResult { facts: branch.into_facts(), reply: EngineReply::Steering(run) }
}

pub(super) fn clear(session: &Session) -> Result<DecisionResult, CommandError> {
    let facts = if session.queued() == 0 {
        Vec::new()
    } else {
        vec![Fact::without_content(Event::Session(Happened::Cleared), Some(session.id().clone()))]
    };
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}

pub(super) fn set(
    session: &Session,
    setting: Setting,
    entry: Option<(Kind, Said)>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let mut branch = BranchBuilder::new(session);
    branch.push_event(Event::Session(Happened::Set(setting)));
    if let Some((kind, said)) = entry {
        branch.push_message(kind, said, context);
    }
    Ok(DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done })
}

pub(super) fn set_tasks(session: &Session, said: Said, open: u32, context: &mut DecisionContext) -> DecisionResult {
    let mut branch = BranchBuilder::new(session);
    branch.push_message(Kind::Other, said, context);
    branch.push_event(Event::Session(Happened::Tasks { open }));
    DecisionResult { facts: branch.into_facts(), reply: EngineReply::Done }
}

pub(super) fn count_tasks(session: &Session, open: u32) -> DecisionResult {
    let counted = (session.open_tasks != open).then_some(Event::Session(Happened::Tasks { open }));
    let facts = counted.map(|event| Fact::without_content(event, Some(session.id().clone())));
    DecisionResult { facts: facts.into_iter().collect(), reply: EngineReply::Done }
}

pub(super) fn name(session: &Session, name: &str) -> Result<DecisionResult, CommandError> {
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

pub(super) fn relocate(session: &Session, cwd: String) -> Result<DecisionResult, CommandError> {
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

pub(super) fn told(session: &Session, number: u64, upto: Option<Lsn>) -> DecisionResult {
    let event = Event::Session(Happened::Told { number, upto });
    DecisionResult { facts: vec![Fact::without_content(event, Some(session.id().clone()))], reply: EngineReply::Done }
}

pub(super) fn file_written(session: &Session, path: String, length: u64, digest: String) -> DecisionResult {
    let event = Event::Session(Happened::FileWritten { path, length, digest });
    DecisionResult { facts: vec![Fact::without_content(event, Some(session.id().clone()))], reply: EngineReply::Done }
}
