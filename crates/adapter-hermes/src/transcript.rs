//! Sessions as clients of hermes read them: the record's entries as messages.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::wire::{self, SessionAttention, ToolNote};
use countersign_conversations::sessions::{self, SessionListRow};
use countersign_core::{
    engine::{Engine, ResidencyScope},
    id::{EntryId, Lsn, RunId, SessionId},
    message::{AssistantReply, MessageBlock, StopReason, StoredMessage, text_of},
    session::{Session, SessionEntry, SessionEntryKind},
    time::Millis,
};
use countersign_runtime::{InboxLane, OwnerHandle, tools::strip_intent};
use countersign_view::{LineMode, Protocol, escape};
use serde_json::{Value, json};

use super::{turn_encoder::preview_of, turn_stream::stream_id};

/// Most messages in one reply.
pub(super) const MOST_MESSAGES: usize = 1000;
/// Suffix of the id of a note that follows an entry.
const ERROR: &str = "-error";
/// Note after a stopped turn.
const CANCELLED: &str = "Task cancelled.";
/// Title of a session without messages.
const UNTITLED: &str = "Untitled";

/// Selection of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageSelection {
    /// None.
    Without,
    /// None, and the tokens that they used are counted.
    Counted,
    /// The newest `n`.
    Last(usize),
    /// Messages before one, which is counted from 0 as `_messages_offset` counts.
    Before {
        /// Number of the first excluded message.
        before: usize,
        /// Number of messages.
        most: usize,
    },
}

/// Position of one entry's content.
struct EntryLocation {
    id: String,
    at: Millis,
    content: Lsn,
    /// True if no turn continues with it: it is a user's message, or a summary.
    ends_turn: bool,
}

/// Engine's state of one session.
struct TranscriptSource {
    session: wire::HermesSession,
    places: Vec<EntryLocation>,
    /// Position of the message that waits for a compaction.
    pending: Option<Lsn>,
}

/// Loads a session, if there is one. `None` if the gateway closes.
pub(super) async fn load_session(
    handle: &OwnerHandle,
    id: &SessionId,
    messages: MessageSelection,
) -> Option<wire::HermesSession> {
    let session_id = id.clone();
    let source = handle.source(InboxLane::Request);
    let read = source.read_of(ResidencyScope::Session(id.clone()), move |engine| {
        read_session(engine, &session_id, session_attention(engine, &session_id))
    });
    let TranscriptSource { mut session, mut places, pending } = read.await?.0?;
    if let Some(at) = pending {
        session.pending_user_message =
            load_contents(handle, &[at]).await.pop().flatten().and_then(|text| user_text(&text));
    }
    let all = places.len();
    // Clients count messages, and one entry may be none or two of them: entries without a message are counted, as far as one
    // reply reaches back.
    let (end, before, most) = match messages {
        MessageSelection::Without => return Some(session),
        MessageSelection::Last(most) => (all, usize::MAX, most),
        MessageSelection::Counted => (all, usize::MAX, 0),
        MessageSelection::Before { before, most } if all <= MOST_MESSAGES => (all, before, most),
        MessageSelection::Before { before, most } => (before.min(all), usize::MAX, most),
    };
    let is_stopped_for_good = match places.get(end) {
        Some(next) => next.ends_turn,
        None => session.active_stream_id.is_none(),
    };
    places.truncate(end);
    let unread = end.saturating_sub(most.max(MOST_MESSAGES));
    places.drain(..unread);
    let lsns: Vec<Lsn> = places.iter().map(|place| place.content).collect();
    let contents = load_contents(handle, &lsns).await;
    let mut builder = TranscriptBuilder::default();
    for (place, content) in places.iter().zip(contents) {
        match content.as_deref().map(serde_json::from_str::<StoredMessage>) {
            Some(Ok(message)) => builder.push_message(place, message),
            Some(Err(_)) => {}
            None => builder.push_note(place, "assistant", "This message was redacted."),
        }
    }
    if is_stopped_for_good {
        builder.end_stopped();
    }
    session.input_tokens = builder.input;
    session.output_tokens = builder.output;
    if let Some(last) = builder.messages.last().map(|message| message.timestamp).filter(|_| end == all) {
        session.updated_at = session.updated_at.max(last);
        session.last_message_at = session.last_message_at.max(last);
    }
    session.last_prompt_tokens = builder.last_prompt;
    if messages == MessageSelection::Counted {
        return Some(session);
    }
    let left_out = builder.keep_window(before, most);
    let offset = unread + left_out;
    session.messages_truncated = Some(offset > 0);
    session.messages_offset = Some(offset);
    session.msg_limit_max = Some(MOST_MESSAGES);
    session.message_count = all;
    session.messages = Some(builder.messages);
    session.tool_calls = Some(builder.calls);
    Some(session)
}

/// Reports whether there is a session.
pub(super) async fn has_session(handle: &OwnerHandle, id: &SessionId) -> bool {
    let session = id.clone();
    let look = move |engine: &Engine| sessions::find_session(engine, &session).is_some();
    let read = handle.source(InboxLane::Request).read_of(ResidencyScope::Session(id.clone()), look).await;
    read.is_some_and(|(is_there, _)| is_there)
}

/// Returns the entry of the last of a session's first `count` messages, as clients count them. `None` before the first.
///
/// # Errors
/// `None` if there is no such session.
pub(super) async fn entry_before(handle: &OwnerHandle, id: &SessionId, count: usize) -> Option<Option<EntryId>> {
    let messages = load_session(handle, id, MessageSelection::Last(usize::MAX)).await?.messages.unwrap_or_default();
    let last = messages.get(..count.min(messages.len()))?.last();
    Some(last.map(|message| EntryId::new(message.id.strip_suffix(ERROR).unwrap_or(&message.id))))
}

async fn load_contents(handle: &OwnerHandle, lsns: &[Lsn]) -> Vec<Option<Arc<str>>> {
    handle.contents().get(lsns).await.unwrap_or_else(|error| {
        tracing::error!(%error, "failed to read a conversation");
        vec![None; lsns.len()]
    })
}

/// Returns the text of a user's message.
fn user_text(content: &str) -> Option<String> {
    match serde_json::from_str(content) {
        Ok(StoredMessage::User(message)) => Some(text_of(&message.content)),
        _ => None,
    }
}

/// Reports whether an entry is shown. An answer that failed and was repeated is not part of the conversation; an
/// answer that the model does not see any more because a user stopped it is shown.
fn is_shown(entry: &SessionEntry) -> bool {
    is_message(&entry.kind)
        && (entry.shown || !matches!(entry.kind, SessionEntryKind::Assistant { stop: StopReason::Error, .. }))
}

/// Counts the messages that a session in memory shows.
pub(super) fn shown_count(engine: &Engine, id: &SessionId) -> usize {
    let path = sessions::find_session(engine, id).map(Session::path_entries).unwrap_or_default();
    path.into_iter().filter(|entry| is_shown(entry)).count()
}

fn read_session(engine: &Engine, id: &SessionId, attention: Option<SessionAttention>) -> Option<TranscriptSource> {
    let session = sessions::find_session(engine, id)?;
    let run = session.run().or_else(|| session.awaited_run());
    let pending = session.awaited_run().and_then(|_| session.awaited_prompt());
    let path = session.path_entries();
    let shown = path.into_iter().filter(|entry| is_shown(entry));
    let place = |entry: &SessionEntry| EntryLocation {
        id: entry.id.to_string(),
        at: entry.at,
        content: entry.content,
        ends_turn: matches!(entry.kind, SessionEntryKind::User | SessionEntryKind::Compaction { .. }),
    };
    let places: Vec<EntryLocation> = shown.map(place).collect();
    let last = places.last().map_or_else(|| session.opened_at(), |place| place.at);
    let model = session.settings().model.as_ref();
    let listing = session.settings().listing;
    let is_spoken_for = sessions::is_spoken_for(session);
    let answer = session.path_entries().into_iter().rfind(|entry| is_shown(entry));
    let answer = answer
        .filter(|entry| matches!(entry.kind, SessionEntryKind::Assistant { .. }) && run.is_none() && !is_spoken_for);
    let begun = run.and_then(|run| engine.state().run(run)).map(countersign_core::run::Run::asked_at);
    let begun = begun.filter(|at| at.0 > 0).or_else(|| pending.map(|queued| queued.at));
    let summary = wire::HermesSession {
        session_id: id.to_string(),
        title: shown_title(session.name()),
        workspace: session.cwd().to_owned(),
        model: model.map(|model| model.id.clone()),
        model_provider: model.map(|model| model.provider.clone()),
        message_count: places.len(),
        created_at: unix_seconds(session.opened_at()),
        updated_at: unix_seconds(last),
        last_message_at: unix_seconds(last),
        profile: "default".to_owned(),
        active_stream_id: run.map(stream_id),
        pending_started_at: run.map(|_| unix_seconds(begun.unwrap_or(last))),
        is_streaming: run.is_some(),
        read_only: is_spoken_for,
        pinned: listing.pinned,
        archived: listing.archived,
        context_length: model.map(|model| model.context_window),
        regeneration_revision: answer.map(|entry| entry.id.to_string()),
        source: session.door().map(str::to_owned),
        parent_session_id: session
            .parent()
            .filter(|_| session.door() == Some(Protocol::Hermes.name()))
            .map(str::to_owned),
        attention,
        ..wire::HermesSession::default()
    };
    Some(TranscriptSource { session: summary, places, pending: pending.map(|queued| queued.content) })
}

/// Returns every session with content, the newest first.
pub(super) async fn list_sessions(handle: &OwnerHandle) -> Option<Vec<wire::HermesSession>> {
    let source = handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        let awaited = engine.state().sessions().filter_map(|of| Some((of.id().clone(), of.awaited_run()?)));
        let running = engine.state().runs().map(|run| (run.session().clone(), run.id())).chain(awaited);
        // Each session's approvals and questions.
        let mut counts: BTreeMap<SessionId, (usize, usize)> = BTreeMap::new();
        for gate in engine.state().pending_gates() {
            let Some(session) = gate.session() else { continue };
            let (approvals, questions) = counts.entry(session.clone()).or_default();
            *if gate.kind().takes_words() { questions } else { approvals } += 1;
        }
        let waiting: BTreeMap<SessionId, Option<SessionAttention>> = counts
            .into_iter()
            .map(|(id, (approvals, questions))| (id, SessionAttention::from_counts(approvals, questions)))
            .collect();
        let running: BTreeMap<SessionId, RunId> = running.collect();
        // Agents are no conversations, but their gates are answered here too.
        let agents = waiting.iter().filter(|(id, _)| sessions::is_agents(id));
        let agents = agents.filter_map(|(id, attention)| read_session(engine, id, attention.clone()));
        let agents: Vec<wire::HermesSession> = agents.map(|known| known.session).collect();
        (waiting, running, agents)
    });
    let ((mut waiting, running, agents), _) = read.await?;
    let rows = match sessions::list_sessions(handle.log()).await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(%error, "failed to read the list of sessions");
            return None;
        }
    };
    let visible = rows.into_iter().filter_map(|row| {
        let id = SessionId::new(row.id.as_str());
        let run = running.get(&id).copied();
        let attention = waiting.remove(&id).flatten();
        let shows_something = row.messages > 0 || run.is_some();
        shows_something.then(|| from_row(row, run, attention))
    });
    let mut visible: Vec<wire::HermesSession> = visible.collect();
    visible.splice(0..0, agents);
    Some(visible)
}

fn from_row(row: SessionListRow, run: Option<RunId>, attention: Option<SessionAttention>) -> wire::HermesSession {
    let last = unix_seconds(Millis(row.last_at));
    wire::HermesSession {
        title: shown_title(row.name.as_deref()),
        session_id: row.id,
        workspace: row.cwd,
        model: row.model.as_ref().map(|(_, id)| id.clone()),
        model_provider: row.model.map(|(provider, _)| provider),
        message_count: usize::try_from(row.messages).unwrap_or(usize::MAX),
        created_at: unix_seconds(Millis(row.opened_at)),
        updated_at: last,
        last_message_at: last,
        profile: "default".to_owned(),
        active_stream_id: run.map(stream_id),
        pending_started_at: run.map(|_| last),
        is_streaming: run.is_some(),
        read_only: row.hosted,
        pinned: row.listing.pinned,
        archived: row.listing.archived,
        // The list does not separate input from output.
        input_tokens: row.tokens,
        source: row.door,
        attention,
        ..wire::HermesSession::default()
    }
}

/// Returns the counts of pending gates in a session.
fn session_attention(engine: &Engine, id: &SessionId) -> Option<SessionAttention> {
    let gates = engine.state().pending_gates().filter(|gate| gate.session() == Some(id));
    let (questions, approvals): (Vec<_>, Vec<_>) = gates.partition(|gate| gate.kind().takes_words());
    SessionAttention::from_counts(approvals.len(), questions.len())
}

pub(super) fn shown_title(name: Option<&str>) -> String {
    escape(name.unwrap_or(UNTITLED), LineMode::One).into_owned()
}

/// Returns a time in the form of the wire.
pub(super) fn unix_seconds(at: Millis) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2⁵³")]
    let millis = at.0 as f64;
    millis / 1000.0
}

const fn is_message(kind: &SessionEntryKind) -> bool {
    matches!(
        kind,
        SessionEntryKind::User
            | SessionEntryKind::Assistant { .. }
            | SessionEntryKind::ToolResult { .. }
            | SessionEntryKind::Bash { .. }
            | SessionEntryKind::Compaction { .. }
    )
}

#[derive(Default)]
struct TranscriptBuilder {
    messages: Vec<wire::HermesMessage>,
    calls: Vec<ToolNote>,
    /// Last result of a turn that was stopped in a call, until an answer follows.
    stopped: Option<(String, Millis)>,
    input: u64,
    output: u64,
    /// Tokens that the model read for its last answer.
    last_prompt: Option<u64>,
}

impl TranscriptBuilder {
    /// Keeps the last `most` of the messages before the one with the number `before`, and returns how many of the first it leaves out.
    fn keep_window(&mut self, before: usize, most: usize) -> usize {
        self.messages.truncate(before);
        let left_out = self.messages.len().saturating_sub(most);
        self.messages.drain(..left_out);
        let kept = left_out..left_out + self.messages.len();
        self.calls.retain(|call| kept.contains(&call.assistant_msg_idx));
        self.calls.iter_mut().for_each(|call| call.assistant_msg_idx -= left_out);
        left_out
    }

    fn push_note(&mut self, place: &EntryLocation, role: &str, text: &str) {
        self.messages.push(new_message(place, role, text));
    }

    fn push_message(&mut self, place: &EntryLocation, stored: StoredMessage) {
        match stored {
            StoredMessage::User(user) => {
                self.end_stopped();
                let mut wire_message = new_message(place, "user", "");
                wire_message.content = content_of(&user.content);
                self.messages.push(wire_message);
            }
            StoredMessage::Assistant(answer) => self.push_answer(place, answer),
            StoredMessage::ToolResult(result) => {
                let text = text_of(&result.content);
                if let Some(note) = self.calls.iter_mut().rev().find(|note| note.tid == result.tool_call_id) {
                    note.snippet = escape(&preview_of(&text), LineMode::Many).into_owned();
                    note.done = true;
                }
                if result.is_error && says_stopped(&text) || self.stopped.is_some() {
                    self.stopped = Some((place.id.clone(), place.at));
                }
                let mut wire_message = new_message(place, "tool", &text);
                wire_message.tool_call_id = Some(result.tool_call_id);
                wire_message.name = Some(escape(&result.tool_name, LineMode::One).into_owned());
                self.messages.push(wire_message);
            }
            StoredMessage::BashExecution(ran) => {
                self.push_note(place, "user", &format!("$ {}\n{}", ran.command, ran.output));
            }
            StoredMessage::CompactionSummary(summary) | StoredMessage::BranchSummary(summary) => {
                self.end_stopped();
                self.push_note(place, "assistant", &format!("[Summary of what came before]\n{}", summary.summary));
            }
            StoredMessage::Developer(_) | StoredMessage::FileMention(_) | StoredMessage::Custom(_) => {}
        }
    }

    /// Notes that a turn was stopped in a call, if one was.
    fn end_stopped(&mut self) {
        if let Some((id, at)) = self.stopped.take() {
            self.push_problem(&id, at, CANCELLED);
        }
    }

    fn push_problem(&mut self, id: &str, at: Millis, text: &str) {
        self.messages.push(wire::HermesMessage {
            id: format!("{id}{ERROR}"),
            role: "assistant".to_owned(),
            content: Value::String(text.to_owned()),
            timestamp: unix_seconds(at),
            error: true,
            ..wire::HermesMessage::default()
        });
    }

    fn push_answer(&mut self, place: &EntryLocation, answer: AssistantReply) {
        self.stopped = None;
        let prompt = answer.usage.input + answer.usage.cache_read + answer.usage.cache_write;
        self.input += prompt;
        self.last_prompt = Some(prompt).filter(|prompt| *prompt > 0).or(self.last_prompt);
        self.output += answer.usage.output;
        let text = text_of(&answer.content);
        // An entry has the time at which its request was sent.
        let said_at = place.at + Duration::from_millis(answer.duration.unwrap_or_default());
        let thoughts: Vec<&str> = answer.content.iter().filter_map(thinking_text).collect();
        let mut wire_message = new_message(place, "assistant", &text);
        wire_message.timestamp = unix_seconds(said_at);
        wire_message.reasoning = (!thoughts.is_empty()).then(|| thoughts.join("\n"));
        wire_message.partial = answer.stop_reason == StopReason::Aborted;
        let at = self.messages.len();
        for block in &answer.content {
            let MessageBlock::ToolCall(call) = block else { continue };
            wire_message.tool_calls.push(json!({
                "id": call.id, "type": "function",
                "function": { "name": call.name, "arguments": Value::Object(call.arguments.clone()).to_string() },
            }));
            // As the events of the call have them: the model's intent is stored elsewhere.
            let (arguments, _) = strip_intent(call.arguments.clone());
            self.calls.push(ToolNote {
                name: escape(&call.name, LineMode::One).into_owned(),
                tid: call.id.clone(),
                assistant_msg_idx: at,
                args: wire::argument_texts(&arguments),
                ..ToolNote::default()
            });
        }
        let says_something =
            !text.is_empty() || wire_message.reasoning.is_some() || !wire_message.tool_calls.is_empty();
        if says_something {
            self.messages.push(wire_message);
        }
        let problem = match answer.stop_reason {
            StopReason::Aborted => Some(CANCELLED.to_owned()),
            StopReason::Error => Some(answer.error_message.unwrap_or_else(|| "The model failed.".to_owned())),
            StopReason::Stop | StopReason::Length | StopReason::ToolUse => None,
        };
        if let Some(problem) = problem {
            self.push_problem(&place.id, said_at, &problem);
        }
    }
}

/// Reports whether the result of a call says that the call was stopped. A run that is stopped during one has no other last text.
fn says_stopped(result: &str) -> bool {
    result.starts_with("Tool execution was aborted")
        || result.ends_with("Command aborted")
        || result == "Command aborted before it began"
}

fn thinking_text(block: &MessageBlock) -> Option<&str> {
    match block {
        MessageBlock::Thinking(thinking) => Some(&thinking.thinking),
        MessageBlock::Text(_)
        | MessageBlock::RedactedThinking { .. }
        | MessageBlock::Image(_)
        | MessageBlock::ToolCall(_) => None,
    }
}

fn new_message(place: &EntryLocation, role: &str, text: &str) -> wire::HermesMessage {
    wire::HermesMessage {
        id: place.id.clone(),
        role: role.to_owned(),
        content: Value::String(text.to_owned()),
        timestamp: unix_seconds(place.at),
        ..wire::HermesMessage::default()
    }
}

/// Returns text, or parts if there are images.
fn content_of(blocks: &[MessageBlock]) -> Value {
    if blocks.iter().all(|block| block.as_text().is_some()) {
        return Value::String(text_of(blocks));
    }
    let parts = blocks.iter().filter_map(|block| match block {
        MessageBlock::Text(text) => Some(json!({ "type": "text", "text": text.text })),
        MessageBlock::Image(image) => {
            let url = format!("data:{};base64,{}", image.mime_type, image.data);
            Some(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        _ => None,
    });
    parts.collect()
}
