//! The data of server-sent events.

use countersign_core::engine::Event;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::audit::RecordContent;
use crate::cursor::{Misplaced, RecordCursor};

/// Data of one fact. The name of the event is the kind, and its id the cursor after it. Further names: live, and ready
/// and reset, whose after is the start of the stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Event")]
pub(crate) struct FactData<'a> {
    /// Its position in the record.
    pub(crate) lsn: u64,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) at: String,
    pub(crate) session: Option<&'a str>,
    #[schemars(extend("enum" = Event::KINDS))]
    pub(crate) kind: &'a str,
    /// The name of the event within its kind.
    pub(crate) event: &'a str,
    /// Version of the format of its facts.
    pub(crate) version: u16,
    /// Fact as the chain covers it.
    #[schemars(with = "serde_json::Value")]
    pub(crate) facts: Option<&'a RawValue>,
    pub(crate) content: Option<RecordContent>,
}

/// Data of the first event, ready: the start of the stream.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Ready")]
pub(crate) struct ReadyData {
    pub(crate) after: RecordCursor,
}

/// Data of the first event, reset: the cursor is of another record, and the whole of this record follows.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Reset")]
pub(crate) struct ResetData<'a> {
    /// Requested cursor.
    #[serde(rename = "asked")]
    pub(crate) requested: &'a str,
    /// Reason why the cursor is not valid in this record.
    pub(crate) reason: Misplaced,
    pub(crate) after: RecordCursor,
}

/// Data of the event live: output while it is produced. The event has no id.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Live")]
pub(crate) struct LiveData<'a> {
    #[serde(flatten)]
    pub(crate) event: LiveEvent<'a>,
    pub(crate) session: &'a str,
}

/// What is said while it is said.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum LiveEvent<'a> {
    /// The model starts to answer.
    MessageStarted { run: String, provider: &'a str, model: &'a str },
    /// A part of the answer begins.
    PartStarted {
        /// Index in the answer.
        index: usize,
        part: LivePart,
        /// The id of a call.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        id: Option<&'a str>,
        /// The tool of a call.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        name: Option<&'a str>,
    },
    /// Next piece of a part.
    Delta { index: usize, text: &'a str },
    /// A part is complete.
    PartEnded { index: usize },
    /// The provider keeps the connection alive and sends nothing of an answer.
    Idle { since_seconds: u64, limit_seconds: u64 },
    /// New output of a call: all of its output so far.
    CallProgress { call: String, output: String },
}

/// Kind of a part of an answer.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LivePart {
    Text,
    Thinking,
    Redacted,
    ToolCall,
}
