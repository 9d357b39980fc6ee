//! Encodes the facts and live frames of a session as updates.
//!
//! It must not do I/O. What was streamed is not repeated by the fact that holds it.

use std::collections::{BTreeMap, VecDeque};

use countersign_acp_protocol::{
    ContentBlock, SessionUpdate, StopReason, ToolCall, ToolCallFields, ToolCallStatus, UsageCost,
};
use countersign_conversations::pending_turn::{NeverBegins, PendingTurn};
use countersign_core::{
    call::{self, CallEnd, Executor},
    engine::Event,
    id::{CallId, RunId},
    message::{AssistantReply, MessageBlock, StopReason as ModelStop, StoredMessage, ToolResult},
    run::{self, RunOutcome},
    session::{self, SessionEntryKind},
};
use countersign_runtime::{LiveKind, LivePartKind};
use countersign_view::{LineMode, escape};

use crate::call_view::{CallView, result_content};

/// Text for people if the model takes no more.
const TOO_LONG: &str = "The conversation is too long for the model";

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The turn is over.
    Stopped(StopReason),
    /// It failed, with a text for people.
    Failed(String),
    /// The conversation was too long. It may continue with another run.
    Overflowed(String),
}

/// Streamed block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
}

impl BlockKind {
    fn chunk(self, text: &str) -> SessionUpdate {
        let content = ContentBlock::from_text(text);
        match self {
            Self::Text => SessionUpdate::AgentMessageChunk { content },
            Self::Thinking => SessionUpdate::AgentThoughtChunk { content },
        }
    }
}

/// Encoder of one session.
pub(crate) struct UpdateEncoder {
    cwd: String,
    /// True if the editor shows notices.
    has_notices: bool,
    /// Tokens that the model takes, if it is known.
    window: Option<u64>,
    cost: f64,
    /// Streamed parts of the current answer, by content index.
    streamed: BTreeMap<usize, (BlockKind, String)>,
    calls: BTreeMap<CallId, CallView>,
    /// Results whose calls have not ended, by the model's id.
    results: BTreeMap<String, ToolResult>,
    /// True if the last answer was cut by its limit.
    is_cut: bool,
    /// Error of the last answer.
    problem: Option<String>,
    waits: Option<PendingTurn>,
    /// Messages that this editor sent and that have no entry yet.
    own_messages: usize,
    pub(crate) updates: VecDeque<SessionUpdate>,
}

impl UpdateEncoder {
    pub(crate) fn new(cwd: &str, has_notices: bool) -> Self {
        Self {
            cwd: cwd.to_owned(),
            has_notices,
            window: None,
            cost: 0.0,
            streamed: BTreeMap::new(),
            calls: BTreeMap::new(),
            results: BTreeMap::new(),
            is_cut: false,
            problem: None,
            waits: None,
            own_messages: 0,
            updates: VecDeque::new(),
        }
    }

    /// Returns the folder of the session.
    pub(crate) fn cwd(&self) -> &str {
        &self.cwd
    }

    /// Sets the number of tokens that the model takes.
    pub(crate) const fn set_window(&mut self, window: Option<u64>) {
        self.window = window;
    }

    /// Notes a message that the editor shows already.
    pub(crate) const fn expect_own_message(&mut self) {
        self.own_messages += 1;
    }

    /// Takes that back: nothing was sent.
    pub(crate) const fn forget_own_message(&mut self) {
        self.own_messages = self.own_messages.saturating_sub(1);
    }

    /// Notes a call that was begun before.
    pub(crate) fn add_call(&mut self, call: CallId, view: CallView) {
        self.calls.insert(call, view);
    }

    /// Adds a notice for the person.
    pub(crate) fn push_notice(&mut self, severity: &'static str, text: &str) {
        self.updates.push_back(if self.has_notices {
            SessionUpdate::Notice { severity, title: text.to_owned() }
        } else {
            BlockKind::Thinking.chunk(&format!("{text}\n\n"))
        });
    }

    /// Encodes a live frame.
    pub(crate) fn encode_live(&mut self, kind: &LiveKind) {
        match kind {
            LiveKind::MessageStarted { .. } => self.streamed.clear(),
            LiveKind::PartStarted { index, part } => {
                let kind = match part {
                    LivePartKind::Text => BlockKind::Text,
                    LivePartKind::Thinking => BlockKind::Thinking,
                    LivePartKind::Redacted | LivePartKind::ToolCall { .. } => return,
                };
                self.streamed.insert(*index, (kind, String::new()));
            }
            LiveKind::Delta { index, text } => {
                if let Some((kind, sent)) = self.streamed.get_mut(index) {
                    sent.push_str(text);
                    let chunk = kind.chunk(text);
                    self.updates.push_back(chunk);
                }
            }
            LiveKind::CallProgress { call, content, .. } => {
                if let Some(view) = self.calls.get(call) {
                    let fields = ToolCallFields { content: Some(result_content(content)), ..ToolCallFields::default() };
                    let update = ToolCall { tool_call_id: view.id.clone(), fields };
                    self.updates.push_back(SessionUpdate::ToolCallUpdate(update));
                }
            }
            LiveKind::Idle { .. } => {
                if let Some(notice) = kind.idle_notice() {
                    self.push_notice("warning", &notice);
                }
            }
            LiveKind::PartEnded { .. } => {}
        }
    }

    /// Encodes a fact with its content, or that of the entry that it points to. Returns the run that ended, and how.
    pub(crate) fn encode_fact(&mut self, event: &Event, content: Option<&str>) -> Option<(RunId, RunEnd)> {
        match event {
            Event::Session(session::Event::Entry { kind, .. }) => {
                if let Some(Ok(message)) = content.map(serde_json::from_str::<StoredMessage>) {
                    self.encode_message(kind, message);
                }
                None
            }
            Event::Session(event) => self.encode_session(event),
            Event::Call(event) => {
                self.encode_call(event, content);
                None
            }
            Event::Run(event) => self.encode_run(event),
            Event::Booted
            | Event::Gate(_)
            | Event::Peer(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Channel(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => None,
        }
    }

    fn encode_message(&mut self, kind: &SessionEntryKind, message: StoredMessage) {
        match message {
            StoredMessage::User(_) if *kind == SessionEntryKind::User && self.own_messages > 0 => {
                self.own_messages -= 1;
            }
            StoredMessage::User(user) if *kind == SessionEntryKind::User => {
                self.updates.extend(user.content.iter().filter_map(user_chunk));
            }
            StoredMessage::Assistant(answer) => self.encode_answer(answer),
            StoredMessage::ToolResult(result) => {
                self.results.insert(result.tool_call_id.clone(), result);
            }
            StoredMessage::User(_)
            | StoredMessage::Developer(_)
            | StoredMessage::BashExecution(_)
            | StoredMessage::CompactionSummary(_)
            | StoredMessage::BranchSummary(_)
            | StoredMessage::FileMention(_)
            | StoredMessage::Custom(_) => {}
        }
    }

    /// Encodes the part of an answer that was not streamed.
    fn encode_answer(&mut self, answer: AssistantReply) {
        let streamed = std::mem::take(&mut self.streamed);
        for (index, block) in answer.content.iter().enumerate() {
            let Some((kind, whole)) = shown_text(block) else { continue };
            let sent = streamed.get(&index).filter(|(other, _)| *other == kind).map_or("", |(_, sent)| sent);
            // What differs was cut off by a crash, and this is a new answer.
            let rest = whole.strip_prefix(sent).unwrap_or(whole);
            if !rest.is_empty() {
                self.updates.push_back(kind.chunk(rest));
            }
        }
        self.is_cut = answer.stop_reason == ModelStop::Length;
        self.add_usage(&answer);
        self.problem = answer.error_message;
    }

    /// Adds the use of an answer, and its update.
    pub(crate) fn add_usage(&mut self, answer: &AssistantReply) {
        let usage = answer.usage;
        self.cost += usage.cost.total;
        let used = usage.input + usage.cache_read + usage.cache_write + usage.output;
        let Some(size) = self.window.filter(|_| used > 0) else { return };
        let cost = (self.cost > 0.0).then_some(UsageCost { amount: self.cost, currency: "USD" });
        self.updates.push_back(SessionUpdate::UsageUpdate { used, size, cost });
    }

    fn encode_session(&mut self, event: &session::Event) -> Option<(RunId, RunEnd)> {
        match event {
            session::Event::Named { name } => {
                let title = escape(name, LineMode::One).into_owned();
                self.updates.push_back(SessionUpdate::SessionInfoUpdate { title });
            }
            session::Event::CompactionStarted { .. } => {
                self.waits = PendingTurn::from_event(event);
                self.push_notice("info", "The conversation is being summarised");
            }
            session::Event::CompactionEnded { ok, aborted, .. } if !aborted => {
                let text = if *ok { "The conversation was summarised" } else { "The conversation was not summarised" };
                self.push_notice(if *ok { "info" } else { "warning" }, text);
            }
            _ => {}
        }
        let waits = self.waits.as_mut()?;
        let end = match waits.never_begins(event)? {
            NeverBegins::Stopped => RunEnd::Stopped(StopReason::Cancelled),
            NeverBegins::TooLong => RunEnd::Failed(TOO_LONG.to_owned()),
        };
        let run = waits.run();
        self.waits = None;
        Some((run, end))
    }

    fn encode_call(&mut self, event: &call::Event, content: Option<&str>) {
        match event {
            call::Event::Proposed { call, run: Some(_), executor, .. } if *executor != Executor::Shell => {
                let Some(Ok(details)) = content.map(serde_json::from_str::<call::CallDetails>) else { return };
                let view = CallView {
                    id: details.tool_call_id.to_string(),
                    tool: details.tool.to_string(),
                    arguments: details.arguments,
                };
                self.updates.push_back(view.begun(&self.cwd, ToolCallStatus::Pending));
                self.calls.insert(*call, view);
            }
            call::Event::Started { call, .. } => {
                if let Some(view) = self.calls.get(call) {
                    let fields =
                        ToolCallFields { status: Some(ToolCallStatus::InProgress), ..ToolCallFields::default() };
                    let update = ToolCall { tool_call_id: view.id.clone(), fields };
                    self.updates.push_back(SessionUpdate::ToolCallUpdate(update));
                }
            }
            call::Event::Ended { call, end, .. } => {
                let Some(view) = self.calls.remove(call) else { return };
                let result = self.results.remove(&view.id);
                self.updates.extend(view.ended(&self.cwd, end_status(*end), result.as_ref()));
            }
            _ => {}
        }
    }

    fn encode_run(&mut self, event: &run::Event) -> Option<(RunId, RunEnd)> {
        match event {
            run::Event::Started { .. } => {
                self.waits = None;
                None
            }
            run::Event::BackedOff { attempt, max, delay, .. } => {
                let why = self.problem.as_deref().unwrap_or("The model did not answer");
                let text = format!("{why} (asked again in {} s, {attempt} of {max})", delay.as_secs());
                self.push_notice("warning", &text);
                None
            }
            run::Event::Interrupted { .. } => {
                self.streamed.clear();
                self.push_notice("warning", "The gateway was restarted; the model is asked again");
                None
            }
            run::Event::Ended { run, end, .. } => Some((*run, self.run_end(*end))),
            _ => None,
        }
    }

    fn run_end(&mut self, end: RunOutcome) -> RunEnd {
        let problem = self.problem.take();
        let text = |usual: &str| problem.clone().unwrap_or_else(|| usual.to_owned());
        match end {
            RunOutcome::Completed if self.is_cut => RunEnd::Stopped(StopReason::MaxTokens),
            RunOutcome::Completed => RunEnd::Stopped(StopReason::EndTurn),
            RunOutcome::Aborted | RunOutcome::RetryCancelled => RunEnd::Stopped(StopReason::Cancelled),
            RunOutcome::Failed => RunEnd::Failed(text("The model failed")),
            RunOutcome::Overflowed => RunEnd::Overflowed(text(TOO_LONG)),
            RunOutcome::Interrupted => RunEnd::Failed(text("The gateway was restarted")),
        }
    }
}

/// Returns the status that a call ended with.
pub(crate) const fn end_status(end: CallEnd) -> ToolCallStatus {
    if end.is_error() { ToolCallStatus::Failed } else { ToolCallStatus::Completed }
}

/// Returns a block of a person's message.
pub(crate) fn user_chunk(block: &MessageBlock) -> Option<SessionUpdate> {
    let content = match block {
        MessageBlock::Text(text) => ContentBlock::from_text(text.text.as_str()),
        MessageBlock::Image(image) => {
            ContentBlock::Image { data: image.data.clone(), mime_type: image.mime_type.clone() }
        }
        MessageBlock::Thinking(_) | MessageBlock::RedactedThinking { .. } | MessageBlock::ToolCall(_) => return None,
    };
    Some(SessionUpdate::UserMessageChunk { content })
}

/// Returns a block of an answer, if it is shown as text.
pub(crate) fn answer_chunk(block: &MessageBlock) -> Option<SessionUpdate> {
    let (kind, text) = shown_text(block)?;
    (!text.is_empty()).then(|| kind.chunk(text))
}

fn shown_text(block: &MessageBlock) -> Option<(BlockKind, &str)> {
    match block {
        MessageBlock::Text(text) => Some((BlockKind::Text, &text.text)),
        MessageBlock::Thinking(thinking) => Some((BlockKind::Thinking, &thinking.thinking)),
        MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) | MessageBlock::ToolCall(_) => None,
    }
}

#[cfg(test)]
mod tests;
