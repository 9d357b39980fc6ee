//! Sessions, their conversations, and messages to them.

use countersign_core::session::{SessionEntryKind, WhenBusy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ModelName;
use crate::{ApiError, body::RequestBody, cursor::RecordCursor};

/// One page of the list of sessions.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Sessions")]
pub(crate) struct SessionList {
    /// The one in which something was said last first.
    pub(crate) sessions: Vec<SessionSummary>,
    /// What the next page takes as after; null at the end.
    pub(crate) next: Option<String>,
    pub(crate) cursor: RecordCursor,
}

/// One session in the list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub(crate) struct SessionSummary {
    pub(crate) id: String,
    /// The door that it was opened through.
    pub(crate) door: Option<String>,
    pub(crate) name: Option<String>,
    /// The folder that it works in.
    pub(crate) cwd: Option<String>,
    pub(crate) model: Option<ModelName>,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) opened_at: String,
    /// When somebody last said something in it.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_at: String,
    /// How many messages of people and of the model are in it.
    pub(crate) messages: u64,
    /// How many calls were wanted in it.
    pub(crate) calls: u64,
    /// Tokens that providers counted.
    pub(crate) tokens: u64,
    pub(crate) state: SessionState,
    /// The run that works.
    pub(crate) run: Option<String>,
    /// How many of its gates wait for people.
    pub(crate) waiting: usize,
}

/// What a session is busy with, in one word: what it waits for goes before what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionState {
    Waiting,
    Working,
    Resting,
}

/// One session with a part of its conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Conversation")]
pub(crate) struct ConversationPage {
    pub(crate) id: String,
    /// The door that it was opened through.
    pub(crate) door: Option<String>,
    pub(crate) name: Option<String>,
    /// The session that it came from.
    pub(crate) parent: Option<String>,
    /// The folder that it works in.
    pub(crate) cwd: Option<String>,
    pub(crate) model: Option<ModelName>,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) opened_at: String,
    pub(crate) state: SessionState,
    /// The run that works.
    pub(crate) run: Option<String>,
    /// How many of its gates wait for people.
    pub(crate) waiting: usize,
    /// How many messages wait to be said.
    pub(crate) queued: usize,
    /// Entries of the whole conversation.
    pub(crate) length: usize,
    /// What the page before this one takes as before; null at the beginning.
    pub(crate) earlier: Option<String>,
    pub(crate) cursor: RecordCursor,
    /// Oldest first.
    pub(crate) entries: Vec<ConversationEntry>,
}

/// One entry of a conversation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConversationEntry {
    pub(crate) id: String,
    /// The entry before it.
    pub(crate) parent: Option<String>,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) at: String,
    /// A word, or an object with the word as its only member.
    #[schemars(with = "EntryKind")]
    pub(crate) kind: SessionEntryKind,
    /// As the model is shown it; null where it was taken out of the record.
    pub(crate) message: Option<Value>,
}

/// The form that the kind of an entry has.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "the kind is written as core has it")]
enum EntryKind {
    Word(String),
    #[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
    More(serde_json::Map<String, Value>),
}

/// Opens a session.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Open")]
pub(crate) struct OpenRequest {
    /// A folder below agents_dir; main if absent.
    pub(crate) workspace: Option<String>,
    /// The provider of the model; without a model it is refused.
    pub(crate) provider: Option<String>,
    /// The id of a model; the one of the configuration if absent.
    pub(crate) model: Option<String>,
    /// What is said in it first.
    pub(crate) message: Option<String>,
}

impl RequestBody for OpenRequest {}

/// The session that was opened.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Opened")]
pub(crate) struct OpenedSession {
    pub(crate) state: OpenedState,
    /// The run that works on the message, or will.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) run: Option<String>,
    pub(crate) id: String,
}

/// What a session does that was just opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OpenedState {
    Working,
    Queued,
    Done,
    Resting,
}

impl From<MessageState> for OpenedState {
    fn from(state: MessageState) -> Self {
        match state {
            MessageState::Working => Self::Working,
            MessageState::Queued => Self::Queued,
            MessageState::Done => Self::Done,
        }
    }
}

/// Says something.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Say")]
pub(crate) struct MessageRequest {
    pub(crate) text: String,
    /// What happens while a run works; refuse if absent.
    pub(crate) when_busy: Option<BusyChoice>,
}

impl RequestBody for MessageRequest {
    fn invalid_member(member: &str) -> ApiError {
        ApiError::bad_request(format!("{member} is missing: what is to be said"))
    }
}

/// What happens to a message while a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum BusyChoice {
    Refuse,
    Queue,
    Steer,
}

impl From<BusyChoice> for WhenBusy {
    fn from(choice: BusyChoice) -> Self {
        match choice {
            BusyChoice::Refuse => Self::Refuse,
            BusyChoice::Queue => Self::FollowUp,
            BusyChoice::Steer => Self::Steer,
        }
    }
}

/// A message that was taken.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
pub(crate) struct MessageReceipt {
    pub(crate) state: MessageState,
    /// The run that works on it, or will.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) run: Option<String>,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageState {
    Working,
    Queued,
    Done,
}

/// Gives the run that works a message.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Steer")]
pub(crate) struct SteerRequest {
    pub(crate) text: String,
}

impl RequestBody for SteerRequest {
    fn invalid_member(member: &str) -> ApiError {
        ApiError::bad_request(format!("{member} is missing: what is to be said"))
    }
}

/// The run that was told.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Steered")]
pub(crate) struct SteerReceipt {
    pub(crate) run: String,
}

/// Stops the run that works. It has no members.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopRequest {}

impl RequestBody for StopRequest {}

/// What was stopped.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stopped")]
pub(crate) struct StopReport {
    /// The run that worked; null if none did.
    pub(crate) run: Option<String>,
    /// Whether anything was, also where that was a summary behind which the agent would have gone on.
    pub(crate) stopped: bool,
}
