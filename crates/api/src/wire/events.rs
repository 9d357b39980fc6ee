//! The data of server-sent events.

use countersign_core::engine::Event;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::audit::RecordContent;
use crate::cursor::{Misplaced, RecordCursor};

/// The data of one fact. The event's name is the kind, its id the cursor behind it. Further names: ready and reset, whose after
/// says from where it goes on, and live.
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
    /// The version of the form in which its facts are written.
    pub(crate) version: u16,
    /// The fact as the chain covers it.
    #[schemars(with = "serde_json::Value")]
    pub(crate) facts: Option<&'a RawValue>,
    pub(crate) content: Option<RecordContent>,
}

/// The data of the first event, ready: from where it goes on.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Ready")]
pub(crate) struct ReadyData {
    pub(crate) after: RecordCursor,
}

/// The data of the first event, reset: the cursor is of another record, and all of this one follows.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Reset")]
pub(crate) struct ResetData<'a> {
    /// The cursor that was asked for.
    #[serde(rename = "asked")]
    pub(crate) requested: &'a str,
    /// Why it is no place in this record.
    pub(crate) reason: Misplaced,
    pub(crate) after: RecordCursor,
}

/// The data of an event live: what is said while it is said. It has no id.
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
    /// The model begins to answer.
    MessageStarted { run: String, provider: &'a str, model: &'a str },
    /// A part of the answer begins.
    PartStarted {
        /// Its place in the answer.
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
    /// A part goes on.
    Delta { index: usize, text: &'a str },
    /// A part is whole.
    PartEnded { index: usize },
    /// The provider keeps the connection alive and sends nothing of an answer.
    Idle { since_seconds: u64, limit_seconds: u64 },
    /// A call goes on: all of its output so far.
    CallProgress { call: String, output: String },
}

/// What a part of an answer is.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LivePart {
    Text,
    Thinking,
    Redacted,
    ToolCall,
}
