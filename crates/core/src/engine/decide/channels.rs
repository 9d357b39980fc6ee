//! Decides which facts of chat networks are recorded: received messages, outbound messages, and pairing requests.

use std::{sync::Arc, time::Duration};

use crate::{
    channel::{
        ChannelAccount, ChannelError, ChatAddress, Command, DeliveryEnd, Event as Happened, InboundMessage,
        MOST_ACCOUNTS, MOST_LETTERS, OutboundRequest, PairingRequest,
    },
    decision::{
        self, CommandError as Refused, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact,
    },
    digest::Digest,
    gate::{self, ApprovalScope, Fallback, Gate, GateContent, Kind},
    id::{GateId, OutboundId},
    message::{self, StopReason},
    run::Run,
};

/// Maximum length of a network's names and ids, in bytes.
const LONGEST_NAME: usize = 512;
/// Maximum length of an outbound message, in bytes.
const LONGEST_LETTER: usize = 1 << 20;
/// Maximum number of pending pairing requests.
const MOST_KNOCKING: usize = 256;
/// Minimum time that a pairing request waits while others wait: then it gives way.
const KNOCKING_FOR: Duration = Duration::from_hours(24);
/// Surface under which a pairing gate is kept until all its consequences are done.
const SURFACE: &str = "pairing";

pub(super) fn decide_channel(
    view: DecisionView<'_>,
    command: Command<decision::Command>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, Refused> {
    match command {
        Command::Meet(account) => {
            let facts = meet_account(view, &account)?.into_iter().collect();
            Ok(DecisionResult { facts, reply: EngineReply::Done })
        }
        Command::Forget(account) => Ok(forget_account(view, account)),
        Command::Hear(inbound) => receive_message(view, *inbound, context),
        Command::Send(message) => send_message(view, *message, context),
        Command::Ended { letter, end, why } => {
            let is_there = view.state.channels().pending_message(letter).is_some();
            let fact = is_there.then(|| channel_fact(Happened::Ended { letter, end }, why));
            Ok(DecisionResult { facts: fact.into_iter().collect(), reply: EngineReply::Done })
        }
        Command::Knock(knock) => self::request_pairing(view, *knock, context),
    }
}

fn channel_fact(event: Happened, content: Option<Arc<str>>) -> Fact {
    Fact { event: Event::Channel(event), session: None, content }
}

fn check_length(what: &'static str, name: &str) -> Result<(), ChannelError> {
    if name.len() > LONGEST_NAME { Err(ChannelError::TooLong { what, limit: LONGEST_NAME }) } else { Ok(()) }
}

fn check_address(address: &ChatAddress) -> Result<(), ChannelError> {
    check_length("the name of a network", &address.account.network)?;
    check_length("the name of an account", &address.account.name)?;
    check_length("the id of a chat", &address.chat)
}

/// Returns the fact that an account is known, if it was not.
fn meet_account(view: DecisionView<'_>, account: &ChannelAccount) -> Result<Option<Fact>, ChannelError> {
    check_length("the name of a network", &account.network)?;
    check_length("the name of an account", &account.name)?;
    if view.state.channels().account(account).is_some() {
        return Ok(None);
    }
    if view.state.channels().accounts().count() >= MOST_ACCOUNTS {
        return Err(ChannelError::Accounts(MOST_ACCOUNTS));
    }
    Ok(Some(channel_fact(Happened::Met { account: account.clone() }, None)))
}

fn forget_account(view: DecisionView<'_>, account: ChannelAccount) -> DecisionResult {
    if view.state.channels().account(&account).is_none() {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    }
    let letters = view.state.channels().pending_for(&account);
    let ended =
        letters.map(|letter| channel_fact(Happened::Ended { letter: letter.id, end: DeliveryEnd::Forgotten }, None));
    let facts = ended.chain([channel_fact(Happened::Forgotten { account: account.clone() }, None)]).collect();
    DecisionResult { facts, reply: EngineReply::Done }
}

fn receive_message(
    view: DecisionView<'_>,
    inbound: InboundMessage<decision::Command>,
    context: &mut DecisionContext,
) -> Result<DecisionResult, Refused> {
    let InboundMessage { from, agent, id, then } = inbound;
    check_address(&from)?;
    if let Some(id) = &id {
        check_length("the id of a message", id)?;
        if view.state.channels().was_received(&from.account, id) {
            return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Repeated });
        }
        if view.state.channels().is_flooded(&from.account, context.now) {
            return Err(ChannelError::Flooded.into());
        }
    }
    let mut facts: Vec<Fact> = meet_account(view, &from.account)?.into_iter().collect();
    facts.push(channel_fact(Happened::Received { from, agent, id }, None));
    let Some(then) = then else { return Ok(DecisionResult { facts, reply: EngineReply::Done }) };
    let DecisionResult { facts: more, reply } = super::decide_command(view, *then, context)?;
    facts.extend(more);
    Ok(DecisionResult { facts, reply })
}

fn send_message(
    view: DecisionView<'_>,
    message: OutboundRequest,
    context: &mut DecisionContext,
) -> Result<DecisionResult, Refused> {
    check_address(&message.to)?;
    if message.text.len() > LONGEST_LETTER {
        return Err(ChannelError::TooLong { what: "a message to a chat", limit: LONGEST_LETTER }.into());
    }
    for (what, name) in [
        ("the name of a session", &message.session),
        ("the id of a message", &message.reply_to),
        ("the key of a message", &message.key),
    ] {
        check_length(what, name.as_deref().unwrap_or_default())?;
    }
    for part in message.media.iter().flat_map(|media| [&media.object, &media.name, &media.mime_type]) {
        check_length("the name of a file", part)?;
    }
    if message.key.as_ref().is_some_and(|key| view.state.channels().is_written(key)) {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Repeated });
    }
    let account = &message.to.account;
    if view.state.channels().account(account).is_none() {
        return Err(ChannelError::Unknown { network: account.network.clone(), account: account.name.clone() }.into());
    }
    Ok(DecisionResult { facts: queue_message(view, message, context), reply: EngineReply::Done })
}

/// Returns the facts of a queued message, and of the end of the one that it displaces, if too many wait.
fn queue_message(view: DecisionView<'_>, message: OutboundRequest, context: &mut DecisionContext) -> Vec<Fact> {
    let dropped = {
        let mut waiting = view.state.channels().pending_for(&message.to.account);
        let is_full = waiting.len() >= MOST_LETTERS;
        let oldest = waiting.next().filter(|_| is_full);
        oldest.map(|letter| channel_fact(Happened::Ended { letter: letter.id, end: DeliveryEnd::Dropped }, None))
    };
    let letter = OutboundId::new(context.fresh.next_uuid(context.now));
    let OutboundRequest { to, text, session, reply_to, key, media } = message;
    let media = media.map(Box::new);
    let owed = channel_fact(Happened::Owed { letter, to, session, reply_to, key, media }, Some(text));
    dropped.into_iter().chain([owed]).collect()
}

/// Queues the last text of the model for the chat from which the message of a run came.
pub(super) fn forward_answer(
    view: DecisionView<'_>,
    run: &Run,
    stop: StopReason,
    content: &str,
    context: &mut DecisionContext,
) -> Vec<Fact> {
    let Some(origin) = &run.run_metadata().origin else { return Vec::new() };
    let is_whole = match stop {
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => true,
        StopReason::Error | StopReason::Aborted => false,
    };
    let is_known = view.state.channels().account(&origin.from.account).is_some();
    let parsed = serde_json::from_str::<message::StoredMessage>(content).ok().filter(|_| is_whole && is_known);
    let Some(message::StoredMessage::Assistant(reply)) = parsed else { return Vec::new() };
    let text = message::text_of(&reply.content);
    if text.trim().is_empty() {
        return Vec::new();
    }
    let mut end = text.len().min(LONGEST_LETTER);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let message = OutboundRequest {
        to: origin.from.clone(),
        text: text[..end].into(),
        session: Some(run.session().as_str().to_owned()),
        reply_to: origin.message.clone(),
        key: None,
        media: None,
    };
    queue_message(view, message, context)
}

fn request_pairing(
    view: DecisionView<'_>,
    knock: PairingRequest,
    context: &mut DecisionContext,
) -> Result<DecisionResult, Refused> {
    let PairingRequest { from, sender, question, why, about, notice } = knock;
    check_address(&from)?;
    check_length("the id of a sender", &sender)?;
    let subject = Digest::hash_bytes(format!("{SURFACE}\n{}\n{sender}", from.account.network).as_bytes());
    let waiting = || view.state.pending_gates().filter(|gate| gate.kind() == Kind::Pairing);
    if waiting().any(|gate| gate.subject_digest() == subject) {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Repeated });
    }
    let mut facts: Vec<Fact> = meet_account(view, &from.account)?.into_iter().collect();
    if waiting().count() >= MOST_KNOCKING {
        // A flood of pairing requests must not lock out all others: a sender that waited long in vain may ask again.
        let is_old = |gate: &&Gate| gate.opened_at() + KNOCKING_FOR <= context.now;
        let oldest = waiting().min_by_key(|gate| gate.opened_at()).filter(is_old);
        let gate = oldest.ok_or(ChannelError::Crowded(MOST_KNOCKING))?.id();
        let resolution = gate::GateResolution::Withdrawn;
        let withdrawn = gate::Event::auto_resolved(gate, resolution);
        facts.push(Fact::without_content(Event::Gate(withdrawn), None));
    }
    let asker = format!("{}:{sender}", from.account.network);
    let content = serde_json::to_string(&GateContent::GoOn { asker, question, why, about })
        .expect("content is plain data with text keys");
    let gate = GateId::new(context.fresh.next_uuid(context.now));
    let opened = gate::Event::Opened {
        gate,
        kind: Kind::Pairing,
        ordinal: 0,
        number: 0,
        stage: None,
        run: None,
        call: None,
        subject,
        scopes: vec![ApprovalScope::Once],
        // A pairing request waits without a limit until an approver answers.
        deadline: None,
        fallback: Fallback::Deny,
        remind_at: None,
        steps: Vec::new(),
    };
    facts.push(Fact { event: Event::Gate(opened), session: None, content: Some(content.into()) });
    let kept = gate::Event::Shown { gate, surface: SURFACE.to_owned(), reference: sender };
    facts.push(Fact::without_content(Event::Gate(kept), None));
    let message = OutboundRequest { to: from, text: notice, session: None, reply_to: None, key: None, media: None };
    facts.extend(queue_message(view, message, context));
    Ok(DecisionResult { facts, reply: EngineReply::Done })
}
