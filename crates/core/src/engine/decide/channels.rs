//! Decides what is recorded of chat networks: what came, what is owed to them, and who may come in.

use std::{sync::Arc, time::Duration};

use crate::{
    channel::{
        Account, Address, Command, End, Event as Happened, Heard, Knock, MOST_ACCOUNTS, MOST_LETTERS, Message, Refusal,
    },
    decision::{
        self, CommandError as Refused, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact,
    },
    digest::Digest,
    gate::{self, Content, Fallback, Gate, Kind, Scope},
    id::{GateId, LetterId},
    message::{self, StopReason},
    run::Run,
};

/// How long what a network calls things may be, in bytes.
const LONGEST_NAME: usize = 512;
/// How long a letter may be, in bytes.
const LONGEST_LETTER: usize = 1 << 20;
/// How many people may wait to be let in.
const MOST_KNOCKING: usize = 256;
/// For how long one of them waits at least, where others do: then it gives way.
const KNOCKING_FOR: Duration = Duration::from_hours(24);
/// The surface under which a gate about somebody who knocked is kept until all that follows from it is done.
const SURFACE: &str = "pairing";

pub(super) fn decide(
    view: DecisionView<'_>,
    command: Command<decision::Command>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, Refused> {
    match command {
        Command::Meet(account) => {
            let facts = met(view, &account)?.into_iter().collect();
            Ok(DecisionResult { facts, reply: EngineReply::Done })
        }
        Command::Forget(account) => Ok(forget(view, account)),
        Command::Hear(heard) => hear(view, *heard, context),
        Command::Send(message) => send(view, *message, context),
        Command::Ended { letter, end, why } => {
            let is_there = view.state.channels().letter(letter).is_some();
            let fact = is_there.then(|| with(Happened::Ended { letter, end }, why));
            Ok(DecisionResult { facts: fact.into_iter().collect(), reply: EngineReply::Done })
        }
        Command::Knock(knock) => self::knock(view, *knock, context),
    }
}

fn with(event: Happened, content: Option<Arc<str>>) -> Fact {
    Fact { event: Event::Channel(event), session: None, content }
}

fn short(what: &'static str, name: &str) -> Result<(), Refusal> {
    if name.len() > LONGEST_NAME { Err(Refusal::TooLong { what, limit: LONGEST_NAME }) } else { Ok(()) }
}

fn check(address: &Address) -> Result<(), Refusal> {
    short("the name of a network", &address.account.network)?;
    short("the name of an account", &address.account.name)?;
    short("the id of a chat", &address.chat)
}

/// That an account is known, if it was not.
fn met(view: DecisionView<'_>, account: &Account) -> Result<Option<Fact>, Refusal> {
    short("the name of a network", &account.network)?;
    short("the name of an account", &account.name)?;
    if view.state.channels().account(account).is_some() {
        return Ok(None);
    }
    if view.state.channels().accounts().count() >= MOST_ACCOUNTS {
        return Err(Refusal::Accounts(MOST_ACCOUNTS));
    }
    Ok(Some(with(Happened::Met { account: account.clone() }, None)))
}

fn forget(view: DecisionView<'_>, account: Account) -> DecisionResult {
    if view.state.channels().account(&account).is_none() {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    }
    let letters = view.state.channels().letters_of(&account);
    let ended = letters.map(|letter| with(Happened::Ended { letter: letter.id, end: End::Forgotten }, None));
    let facts = ended.chain([with(Happened::Forgotten { account: account.clone() }, None)]).collect();
    DecisionResult { facts, reply: EngineReply::Done }
}

fn hear(
    view: DecisionView<'_>,
    heard: Heard<decision::Command>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, Refused> {
    let Heard { from, agent, id, then } = heard;
    check(&from)?;
    if let Some(id) = &id {
        short("the id of a message", id)?;
        if view.state.channels().is_heard(&from.account, id) {
            return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Repeated });
        }
        if view.state.channels().is_flooded(&from.account, context.now) {
            return Err(Refusal::Flooded.into());
        }
    }
    let mut facts: Vec<Fact> = met(view, &from.account)?.into_iter().collect();
    facts.push(with(Happened::Heard { from, agent, id }, None));
    let Some(then) = then else { return Ok(DecisionResult { facts, reply: EngineReply::Done }) };
    let DecisionResult { facts: more, reply } = super::decide(view, *then, context)?;
    facts.extend(more);
    Ok(DecisionResult { facts, reply })
}

fn send(view: DecisionView<'_>, message: Message, context: &mut DecisionContext) -> Result<DecisionResult, Refused> {
    check(&message.to)?;
    if message.text.len() > LONGEST_LETTER {
        return Err(Refusal::TooLong { what: "a message to a chat", limit: LONGEST_LETTER }.into());
    }
    for (what, name) in [
        ("the name of a session", &message.session),
        ("the id of a message", &message.reply_to),
        ("the key of a message", &message.key),
    ] {
        short(what, name.as_deref().unwrap_or_default())?;
    }
    for part in message.media.iter().flat_map(|media| [&media.object, &media.name, &media.mime_type]) {
        short("the name of a file", part)?;
    }
    if message.key.as_ref().is_some_and(|key| view.state.channels().is_written(key)) {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Repeated });
    }
    let account = &message.to.account;
    if view.state.channels().account(account).is_none() {
        return Err(Refusal::Unknown { network: account.network.clone(), account: account.name.clone() }.into());
    }
    Ok(DecisionResult { facts: owe(view, message, context), reply: EngineReply::Done })
}

/// The letter, and the end of the one that it takes the place of, if too many wait.
fn owe(view: DecisionView<'_>, message: Message, context: &mut DecisionContext) -> Vec<Fact> {
    let dropped = {
        let mut waiting = view.state.channels().letters_of(&message.to.account);
        let is_full = waiting.len() >= MOST_LETTERS;
        let oldest = waiting.next().filter(|_| is_full);
        oldest.map(|letter| with(Happened::Ended { letter: letter.id, end: End::Dropped }, None))
    };
    let letter = LetterId::new(context.fresh.uuid(context.now));
    let Message { to, text, session, reply_to, key, media } = message;
    let media = media.map(Box::new);
    let owed = with(Happened::Owed { letter, to, session, reply_to, key, media }, Some(text));
    dropped.into_iter().chain([owed]).collect()
}

/// What the chat is told that a run's message came from, when its model has said something.
pub(super) fn answered(
    view: DecisionView<'_>,
    run: &Run,
    stop: StopReason,
    content: &str,
    context: &mut DecisionContext,
) -> Vec<Fact> {
    let Some(origin) = &run.marks().origin else { return Vec::new() };
    let is_whole = match stop {
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => true,
        StopReason::Error | StopReason::Aborted => false,
    };
    let is_known = view.state.channels().account(&origin.from.account).is_some();
    let said = serde_json::from_str::<message::Message>(content).ok().filter(|_| is_whole && is_known);
    let Some(message::Message::Assistant(said)) = said else { return Vec::new() };
    let text = message::text_of(&said.content);
    if text.trim().is_empty() {
        return Vec::new();
    }
    let mut end = text.len().min(LONGEST_LETTER);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let message = Message {
        to: origin.from.clone(),
        text: text[..end].into(),
        session: Some(run.session().as_str().to_owned()),
        reply_to: origin.message.clone(),
        key: None,
        media: None,
    };
    owe(view, message, context)
}

fn knock(view: DecisionView<'_>, knock: Knock, context: &mut DecisionContext) -> Result<DecisionResult, Refused> {
    let Knock { from, sender, question, why, about, told } = knock;
    check(&from)?;
    short("the id of a sender", &sender)?;
    let subject = Digest::of(format!("{SURFACE}\n{}\n{sender}", from.account.network).as_bytes());
    let waiting = || view.state.pending_gates().filter(|gate| gate.kind() == Kind::Pairing);
    if waiting().any(|gate| gate.subject() == subject) {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Repeated });
    }
    let mut facts: Vec<Fact> = met(view, &from.account)?.into_iter().collect();
    if waiting().count() >= MOST_KNOCKING {
        // Whoever floods must not shut everybody else out for good: who waited long in vain may knock again.
        let is_old = |gate: &&Gate| gate.opened_at() + KNOCKING_FOR <= context.now;
        let oldest = waiting().min_by_key(|gate| gate.opened_at()).filter(is_old);
        let gate = oldest.ok_or(Refusal::Crowded(MOST_KNOCKING))?.id();
        let resolution = gate::Resolution::Withdrawn;
        let withdrawn = gate::Event::ended(gate, resolution);
        facts.push(Fact::without_content(Event::Gate(withdrawn), None));
    }
    let asker = format!("{}:{sender}", from.account.network);
    let content = serde_json::to_string(&Content::GoOn { asker, question, why, about })
        .expect("content is plain data with text keys");
    let gate = GateId::new(context.fresh.uuid(context.now));
    let opened = gate::Event::Opened {
        gate,
        kind: Kind::Pairing,
        ordinal: 0,
        number: 0,
        stage: None,
        run: None,
        call: None,
        subject,
        scopes: vec![Scope::Once],
        // Whoever knocked waits for as long as nobody says anything.
        deadline: None,
        fallback: Fallback::Deny,
        remind_at: None,
        steps: Vec::new(),
    };
    facts.push(Fact { event: Event::Gate(opened), session: None, content: Some(content.into()) });
    let kept = gate::Event::Shown { gate, surface: SURFACE.to_owned(), reference: sender };
    facts.push(Fact::without_content(Event::Gate(kept), None));
    let told = Message { to: from, text: told, session: None, reply_to: None, key: None, media: None };
    facts.extend(owe(view, told, context));
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}
