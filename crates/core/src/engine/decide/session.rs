//! Deciders for a session: opening it, what is said in it, and what is set.

use std::collections::BTreeSet;

use crate::{
    engine::{Context, Decision, Event, Fact, Refusal, Reply, View, tree::Branch},
    id::{EntryId, SessionId},
    message::StopReason,
    run::Trigger,
    session::{
        self, Event as Happened, Imported, Kind, PromptRefusal, Queue, Reason, Said, Session, Setting, Settings, Then,
        WhenBusy,
    },
    settle,
};

/// How long a name may be, in bytes.
const LONGEST_NAME: usize = 4096;

pub(super) fn open(
    view: View<'_>,
    id: SessionId,
    cwd: String,
    name: Option<String>,
    parent: Option<String>,
    settings: Box<Settings>,
) -> Result<Decision, Refusal> {
    if view.state.session(&id).is_some() {
        return Err(Refusal::SessionExists(id));
    }
    let opened = Event::Session(Happened::Opened { cwd, name, parent });
    let set = Event::Session(Happened::Set(Setting::All(settings)));
    Ok(Decision { facts: [opened, set].map(|event| Fact::plain(event, Some(id.clone()))).into(), reply: Reply::Done })
}

pub(super) fn import(session: &Session, entries: Vec<Imported>, leaf: Option<EntryId>) -> Result<Decision, Refusal> {
    if !session.is_at_rest() {
        return Err(Refusal::Busy(session.id().clone()));
    }
    let missing =
        leaf.as_ref().filter(|leaf| session.entry(leaf).is_none() && !entries.iter().any(|entry| entry.id == **leaf));
    if let Some(missing) = missing {
        return Err(Refusal::NoEntry { session: session.id().clone(), entry: missing.to_string() });
    }
    let mut facts = Vec::with_capacity(entries.len() + 1);
    let retried = retried(session, &entries);
    for Imported { id, parent, kind, said, made_at } in entries {
        let event = Happened::Entry { id, parent, kind, tokens: said.tokens, made_at, content_at: None };
        facts.push(Fact {
            event: Event::Session(event),
            session: Some(session.id().clone()),
            content: Some(said.content),
        });
    }
    facts.extend(
        retried
            .into_iter()
            .map(|entry| Fact::plain(Event::Session(Happened::Dropped { entry }), Some(session.id().clone()))),
    );
    facts.push(Fact::plain(Event::Session(Happened::Moved { leaf }), Some(session.id().clone())));
    Ok(Decision { facts, reply: Reply::Done })
}

/// Failed answers that another answer follows: they were asked again and are not part of what was said.
fn retried(session: &Session, entries: &[Imported]) -> Vec<EntryId> {
    let failed: BTreeSet<&EntryId> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, Kind::Assistant { stop: StopReason::Error, .. }))
        .map(|entry| &entry.id)
        .collect();
    let followed = entries.iter().filter(|entry| matches!(entry.kind, Kind::Assistant { .. }));
    let followed = followed.filter_map(|entry| entry.parent.as_ref()).filter(|parent| failed.contains(parent));
    followed.filter(|parent| session.entry(parent).is_none()).cloned().collect()
}

pub(super) fn prompt(
    session: &Session,
    said: Said,
    with: Vec<(Kind, Said)>,
    when_busy: WhenBusy,
    context: &mut Context,
) -> Result<Decision, Refusal> {
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
    if session.is_over_limit()
        && let Some(cut) = session.cut()
    {
        let mut branch = Branch::new(session);
        enqueue(&mut branch, Queue::Prompt, Kind::User, said);
        for (kind, said) in with {
            enqueue(&mut branch, Queue::Prompt, kind, said);
        }
        branch.push(super::compaction::started(session, Reason::Threshold, cut, Then::Prompt));
        return Ok(Decision { facts: branch.finish(), reply: Reply::BehindCompaction });
    }
    let mut opening = vec![(Kind::User, said)];
    opening.extend(with);
    let (run, facts) = settle::open_run(session, Trigger::Prompt, opening, context);
    Ok(Decision { facts, reply: Reply::Started(run) })
}

fn enqueue(branch: &mut Branch<'_>, queue: Queue, kind: Kind, said: Said) {
    let event = Happened::Queued { queue, tokens: said.tokens, kind };
    branch.push_with(Event::Session(event), Some(said.content));
}

pub(super) fn queue(session: &Session, queue: Queue, said: Said) -> Result<Decision, Refusal> {
    let mut branch = Branch::new(session);
    enqueue(&mut branch, queue, Kind::User, said);
    Ok(Decision { facts: branch.finish(), reply: Reply::Queued })
}

pub(super) fn clear(session: &Session) -> Result<Decision, Refusal> {
    let facts = if session.queued() == 0 {
        Vec::new()
    } else {
        vec![Fact::plain(Event::Session(Happened::Cleared), Some(session.id().clone()))]
    };
    Ok(Decision { facts, reply: Reply::Done })
}

pub(super) fn set(
    session: &Session,
    setting: Setting,
    entry: Option<(Kind, Said)>,
    context: &mut Context,
) -> Result<Decision, Refusal> {
    let mut branch = Branch::new(session);
    branch.push(Event::Session(Happened::Set(setting)));
    if let Some((kind, said)) = entry {
        branch.say(kind, said, context);
    }
    Ok(Decision { facts: branch.finish(), reply: Reply::Done })
}

pub(super) fn name(session: &Session, name: &str) -> Result<Decision, Refusal> {
    let name = name.trim();
    if name.is_empty() {
        return Err(Refusal::EmptyName);
    }
    if name.len() > LONGEST_NAME {
        return Err(Refusal::TooLong { what: "a session's name", limit: LONGEST_NAME });
    }
    let event = Event::Session(session::Event::Named { name: name.to_owned() });
    Ok(Decision { facts: vec![Fact::plain(event, Some(session.id().clone()))], reply: Reply::Done })
}

pub(super) fn relocate(session: &Session, cwd: String) -> Result<Decision, Refusal> {
    if !session.is_at_rest() {
        return Err(Refusal::Busy(session.id().clone()));
    }
    let event = Event::Session(Happened::Relocated { cwd });
    Ok(Decision { facts: vec![Fact::plain(event, Some(session.id().clone()))], reply: Reply::Done })
}

pub(super) fn move_to(session: &Session, leaf: Option<EntryId>) -> Result<Decision, Refusal> {
    if !session.is_at_rest() {
        return Err(Refusal::Busy(session.id().clone()));
    }
    if let Some(leaf) = leaf.as_ref().filter(|leaf| session.entry(leaf).is_none()) {
        return Err(Refusal::NoEntry { session: session.id().clone(), entry: leaf.to_string() });
    }
    let event = Event::Session(Happened::Moved { leaf });
    Ok(Decision { facts: vec![Fact::plain(event, Some(session.id().clone()))], reply: Reply::Done })
}

pub(super) fn file_written(session: &Session, path: String, length: u64, digest: String) -> Decision {
    let event = Event::Session(Happened::FileWritten { path, length, digest });
    Decision { facts: vec![Fact::plain(event, Some(session.id().clone()))], reply: Reply::Done }
}
