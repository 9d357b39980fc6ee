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
    /// The session with the latest message first.
    pub(crate) sessions: Vec<SessionSummary>,
    /// Value of after for the next page; null at the end.
    pub(crate) next: Option<String>,
    pub(crate) cursor: RecordCursor,
}

/// One session in the list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub(crate) struct SessionSummary {
    pub(crate) id: String,
    /// Door through which the session was opened.
    pub(crate) door: Option<String>,
    pub(crate) name: Option<String>,
    /// Working folder.
    pub(crate) cwd: Option<String>,
    pub(crate) model: Option<ModelName>,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) opened_at: String,
    /// Time of the latest message.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) last_at: String,
    /// Number of messages of users and of the model.
    pub(crate) messages: u64,
    /// Number of requested calls.
    pub(crate) calls: u64,
    /// Tokens that providers counted.
    pub(crate) tokens: u64,
    pub(crate) state: SessionState,
    /// Active run.
    pub(crate) run: Option<String>,
    /// Number of its pending gates.
    pub(crate) waiting: usize,
}

/// State of a session. Waiting takes precedence over working.
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
    /// Door through which the session was opened.
    pub(crate) door: Option<String>,
    pub(crate) name: Option<String>,
    /// Session from which it was created.
    pub(crate) parent: Option<String>,
    /// Working folder.
    pub(crate) cwd: Option<String>,
    pub(crate) model: Option<ModelName>,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) opened_at: String,
    pub(crate) state: SessionState,
    /// Active run.
    pub(crate) run: Option<String>,
    /// Number of its pending gates.
    pub(crate) waiting: usize,
    /// Number of queued messages.
    pub(crate) queued: usize,
    /// Number of entries in the whole conversation.
    pub(crate) length: usize,
    /// Value of before for the previous page; null at the beginning.
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
    /// Kind as a string, or as an object with the kind as its only member.
    #[schemars(with = "EntryKind")]
    pub(crate) kind: SessionEntryKind,
    /// Message as the model sees it; null if it was removed from the record.
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
    /// Folder below agents_dir; main if absent.
    pub(crate) workspace: Option<String>,
    /// Provider of the model; refused without a model.
    pub(crate) provider: Option<String>,
    /// Id of a model; the one of the configuration if absent.
    pub(crate) model: Option<String>,
    /// First message.
    pub(crate) message: Option<String>,
}

impl RequestBody for OpenRequest {}

/// The session that was opened.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Opened")]
pub(crate) struct OpenedSession {
    pub(crate) state: OpenedState,
    /// Run that handles the message, now or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) run: Option<String>,
    pub(crate) id: String,
}

/// State of a session that was just opened.
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

/// Sends a message.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Say")]
pub(crate) struct MessageRequest {
    pub(crate) text: String,
    /// Handling of the message while a run is active; refuse if absent.
    pub(crate) when_busy: Option<BusyChoice>,
}

impl RequestBody for MessageRequest {
    fn invalid_member(member: &str) -> ApiError {
        ApiError::bad_request(format!("{member} is missing: give the text of the message"))
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

/// Accepted message.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
pub(crate) struct MessageReceipt {
    pub(crate) state: MessageState,
    /// Run that handles the message, now or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) run: Option<String>,
}

/// State of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageState {
    Working,
    Queued,
    Done,
}

/// Sends a message to the active run.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Steer")]
pub(crate) struct SteerRequest {
    pub(crate) text: String,
}

impl RequestBody for SteerRequest {
    fn invalid_member(member: &str) -> ApiError {
        ApiError::bad_request(format!("{member} is missing: give the text of the message"))
    }
}

/// Run that gets the message.
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

/// Result of a stop request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stopped")]
pub(crate) struct StopReport {
    /// Run that was active; null if none was.
    pub(crate) run: Option<String>,
    /// True if something was stopped, for example a run, or a summary after which the agent would have continued.
    pub(crate) stopped: bool,
}
