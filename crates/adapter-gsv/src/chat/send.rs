//! Handles input in a session: a command, an answer to a pending gate, directives, or a message that begins a run.

use std::sync::Arc;

use countersign_core::{
    channel::{self, InboundMessage, MessageOrigin},
    engine::{Command, EngineReply},
    id::PrincipalId,
    message::{self, MessageBlock, StoredMessage, estimate_tokens},
    run::RunMetadata,
    session::{self, MessageContent},
};
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError,
        channel::MediaAttachment,
        chat::{ChatSendParams, ChatSendResult, Directives},
        code,
        command::{self, ReplyStyle},
        directive, key,
    },
};

use super::{
    super::{GsvAdapter, channels::media, method_result::MethodResult, peer::ConnectedPeer, registry::session_of},
    CardMoment, answering, commands, queue_notices,
    session_lifecycle::{self, Initiator},
    session_snapshot::{SessionGate, SessionSnapshot, read_session, read_session_detail},
};

/// Tokens of a picture.
const PICTURE_TOKENS: u64 = 1500;
/// Longest name of a run that a client may give, in bytes.
const LONGEST_RUN: usize = 256;

/// Author of a message, its origin, and the style of replies.
pub(crate) struct MessageAuthor {
    /// Principal in the record.
    pub(crate) by: PrincipalId,
    /// Chat of the message, to which answers are sent.
    pub(crate) origin: Option<Box<MessageOrigin>>,
    /// Style of replies.
    pub(crate) style: ReplyStyle,
    /// Time of the message, in the order of cards: a message does not answer a card that was shown later.
    pub(crate) came: CardMoment,
}

/// Most messages that may wait in a session.
const MOST_QUEUED: usize = 200;

pub(super) async fn send_from_client(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    send: ChatSendParams,
    came: CardMoment,
) -> MethodResult {
    let key = session_lifecycle::canonical_key(door, &send.session_key)?;
    peer.note_spelling(&key, &send.session_key);
    let speaker = MessageAuthor { by: peer.principal_id(), origin: None, style: ReplyStyle::Plain, came };
    let sent = send_text(door, &key, &send.message, send.run_id, &speaker).await?;
    Ok(RawJson::from_wire(&sent))
}

impl MessageAuthor {
    /// Reports whether the author may answer a gate. In a chat network only the one who began the run may, where it began.
    pub(super) fn may_answer(&self, gate: &SessionGate) -> bool {
        self.origin.as_deref().is_none_or(|here| gate.may_be_answered_by(here))
    }

    /// Returns the key that identifies an answer that comes again.
    pub(super) fn answer_key(&self) -> Option<String> {
        let origin = self.origin.as_ref()?;
        let account = &origin.from.account;
        Some(format!("{}:{}:{}", account.network, account.name, origin.message.as_ref()?))
    }
}

/// Input of a user.
pub(crate) struct MessageInput<'a> {
    /// Text.
    pub(crate) text: &'a str,
    /// Text from which commands, answers and directives alone are read: it may lack the name of the agent's account.
    pub(crate) reply: &'a str,
    /// Prefix for the model.
    pub(crate) before: String,
    /// Attachments.
    pub(crate) media: &'a [MediaAttachment],
}

/// Sends a text to the session with this canonical key. `run` is the name that the sender gives to the run.
///
/// # Errors
/// 400 for invalid input, 503 if too many messages wait, 500 if nothing was recorded.
pub(crate) async fn send_text(
    door: &Arc<GsvAdapter>,
    key: &str,
    text: &str,
    run: Option<String>,
    speaker: &MessageAuthor,
) -> Result<ChatSendResult, GsvError> {
    if text.trim().is_empty() {
        return Err(GsvError::bad_request("sessionKey and message required"));
    }
    if run.as_ref().is_some_and(|run| run.len() > LONGEST_RUN) {
        return Err(GsvError::bad_request(format!("runId has at most {LONGEST_RUN} bytes")));
    }
    let spoken = MessageInput { text, reply: text, before: String::new(), media: &[] };
    send_input(door, key, spoken, run, speaker).await
}

/// Does the same with attachments.
///
/// # Errors
/// 500 if nothing was recorded.
pub(crate) async fn send_input(
    door: &Arc<GsvAdapter>,
    key: &str,
    spoken: MessageInput<'_>,
    run: Option<String>,
    speaker: &MessageAuthor,
) -> Result<ChatSendResult, GsvError> {
    let _turn = door.session_locks.lock_session(key).await;
    let seen = read_session(door, key).await?;
    let run = run.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if speaker.answer_key().is_some_and(|key| seen.answers.contains(&key)) {
        // It answered, and its sender did not get the reply.
        return Ok(ChatSendResult::Started { run_id: run, queued: false, directives: Directives::default() });
    }
    let parsed = match interpret_input(door, &seen, &spoken, &run, speaker).await? {
        InputOutcome::Done(sent) => {
            record_inbound(door, key, speaker).await?;
            return Ok(sent);
        }
        InputOutcome::Message(parsed) => parsed,
    };
    begin_run(door, seen, parsed, spoken, run, speaker).await
}

/// Reports whether a message of this author answered a gate in the session with this canonical key.
///
/// # Errors
/// 500 if the session cannot be read.
pub(crate) async fn has_answered(door: &Arc<GsvAdapter>, key: &str, speaker: &MessageAuthor) -> Result<bool, GsvError> {
    let Some(answer) = speaker.answer_key() else { return Ok(false) };
    Ok(read_session(door, key).await?.answers.contains(&answer))
}

/// Sends a text as a message only: it is neither a command nor an answer to a gate. Messages between agents
/// are sent so.
///
/// # Errors
/// 400 for invalid input, 500 if nothing was recorded.
pub(crate) async fn send_plain_message(
    door: &Arc<GsvAdapter>,
    key: &str,
    text: &str,
    before: String,
    speaker: &MessageAuthor,
) -> Result<ChatSendResult, GsvError> {
    if text.trim().is_empty() {
        return Err(GsvError::bad_request("sessionKey and message required"));
    }
    let _turn = door.session_locks.lock_session(key).await;
    let seen = read_session(door, key).await?;
    let parsed = directive::ParsedDirectives {
        directives: Directives::default(),
        invalid_model: None,
        status: false,
        any: false,
        text: text.to_owned(),
    };
    let run = uuid::Uuid::new_v4().to_string();
    let spoken = MessageInput { text, reply: text, before, media: &[] };
    begin_run(door, seen, parsed, spoken, run, speaker).await
}

/// Result of interpreting input before it becomes a message.
enum InputOutcome {
    /// Reply to input that is no message.
    Done(ChatSendResult),
    /// Message.
    Message(directive::ParsedDirectives),
}

async fn interpret_input(
    door: &Arc<GsvAdapter>,
    seen: &SessionSnapshot,
    spoken: &MessageInput<'_>,
    run: &str,
    speaker: &MessageAuthor,
) -> Result<InputOutcome, GsvError> {
    if let Some(command) = command::ChatCommand::from_message(spoken.reply) {
        return Ok(InputOutcome::Done(commands::run_command(door, seen.clone(), command, speaker).await));
    }
    if let Some(sent) = answering::try_answer(door, seen, spoken, run, speaker).await? {
        return Ok(InputOutcome::Done(sent));
    }
    let provider =
        seen.model.as_ref().map_or_else(|| door.settings.default_model().provider, |model| model.provider.clone());
    let parsed = directive::parse_directives(spoken.reply, &provider);
    // Attachments are for the model.
    if !parsed.is_all() || !spoken.media.is_empty() {
        return Ok(InputOutcome::Message(directive::parse_directives(spoken.text, &provider)));
    }
    let mut response = parsed.acknowledgement();
    if parsed.status
        && let Ok(whole) = read_session_detail(door, &seen.key).await
    {
        let status = commands::status_reply(&whole).to_text(speaker.style);
        response = Some(response.map_or_else(|| status.clone(), |earlier| format!("{earlier}\n{status}")));
    }
    Ok(InputOutcome::Done(ChatSendResult::DirectiveOnly { response, directives: parsed.directives }))
}

/// Returns the agent of the session with this key.
fn session_agent(door: &GsvAdapter, key: &str) -> String {
    key::agent_of(key).map_or_else(|| door.settings.default_agent(), key::agent_id)
}

/// Returns the inbound message to record, if it came from a chat network.
pub(super) fn inbound_message(
    door: &GsvAdapter,
    key: &str,
    speaker: &MessageAuthor,
) -> Option<InboundMessage<Command>> {
    let origin = speaker.origin.as_ref()?;
    Some(InboundMessage {
        from: origin.from.clone(),
        agent: session_agent(door, key),
        id: origin.message.clone(),
        then: None,
    })
}

/// Records an inbound message of a chat network that begins no run.
async fn record_inbound(door: &Arc<GsvAdapter>, key: &str, speaker: &MessageAuthor) -> Result<(), GsvError> {
    let Some(inbound) = inbound_message(door, key, speaker) else { return Ok(()) };
    session_lifecycle::send_command(door, Command::Channel(channel::Command::Hear(Box::new(inbound)))).await.map(drop)
}

async fn begin_run(
    door: &Arc<GsvAdapter>,
    mut seen: SessionSnapshot,
    parsed: directive::ParsedDirectives,
    spoken: MessageInput<'_>,
    run: String,
    speaker: &MessageAuthor,
) -> Result<ChatSendResult, GsvError> {
    if seen.queued >= MOST_QUEUED {
        let why = format!("Too many messages wait in this session (at most {MOST_QUEUED})");
        return Err(GsvError::new(code::UNAVAILABLE, why));
    }
    let id = session_lifecycle::open_session(door, &seen.key).await?;
    if session_lifecycle::renew_if_due(door, &seen).await? {
        seen = read_session(door, &seen.key).await?;
    }
    session_lifecycle::catch_up(door, &id, &seen).await?;
    let directives = parsed.directives;
    let marks = Box::new(RunMetadata {
        reference: Some(run.clone()),
        origin: speaker.origin.clone(),
        model: directives.model.as_ref().map(|model| door.settings.model_ref(&door.context, model)),
        thinking: directives.think_level.map(|level| level.display_name().to_owned()),
        ..RunMetadata::default()
    });
    // After the renewal, which removes the attachments of earlier messages.
    let more = media::store_media(door, &seen.key, spoken.media).await?;
    let content = user_message(&format!("{}{}", spoken.before, parsed.text), more);
    let say = Command::Session(id, session::Command::Say { message: content, marks });
    let word = Initiator { by: speaker.by.clone(), inbound: inbound_message(door, &seen.key, speaker) };
    let command = word.wrap_command(say);
    let queued = match session_lifecycle::send_command(door, command).await? {
        EngineReply::Queued => !seen.is_at_rest,
        _ => false,
    };
    if queued {
        queue_notices::notify_clients(door, &seen.key).await;
        if speaker.origin.is_some() {
            queue_notices::notify_chats(door, &session_of(&seen.key)).await;
        }
    }
    Ok(ChatSendResult::Started { run_id: run, queued, directives })
}

/// Returns a message of a user, as content.
pub(crate) fn user_message(text: &str, more: Vec<MessageBlock>) -> MessageContent {
    let pictures = more.iter().filter(|block| matches!(block, MessageBlock::Image(_))).count() as u64;
    let content: Vec<MessageBlock> = std::iter::once(MessageBlock::from_text(text)).chain(more).collect();
    let tokens = estimate_tokens(message::text_of(&content).len()) + pictures * PICTURE_TOKENS;
    let message = StoredMessage::User(message::InputMessage { content, ..message::InputMessage::default() });
    let content = serde_json::to_string(&message).unwrap_or_default();
    MessageContent { content: content.into(), tokens }
}
