//! Answer of a model: events with part indices, the same for every wire.
//!
//! It must not know which wire an event came over.

use std::time::Duration;

use crate::request::MessagePart;

/// A step of an answer.
///
/// Shape: `Start` comes first and once; then parts, each `PartStart`, `Delta`s, `PartEnd`; `Usage` comes any number of
/// times, the last one counts; `Payload` comes once at most, before `Stop`; `Stop` comes last and once. An answer that
/// ends without `Stop` ends with a failure. A
/// part ends before the next one starts, except for tool calls whose pieces the provider itself mixes or whose
/// arguments are not JSON: those may be open together. The deltas of a part add up to what its end says; a redacted
/// part has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// The answer begins.
    Start {
        /// The provider's id of the answer, where it has one.
        response_id: Option<String>,
    },
    /// A part begins. Indices count from 0 in the order of this event.
    PartStart {
        /// Index of the part in later events.
        index: usize,
        /// Kind of the part.
        kind: PartKind,
    },
    /// More of a part: text, thinking or raw JSON argument text, by the part's kind. Never empty.
    Delta {
        /// The part.
        index: usize,
        /// Text to append to the earlier deltas.
        text: String,
    },
    /// A part is complete.
    PartEnd {
        /// The part.
        index: usize,
        /// The whole part. The arguments of a tool call may be invalid JSON: they are passed on as they came.
        part: MessagePart,
    },
    /// Usage of the answer so far, counted from its beginning.
    Usage(ModelUsage),
    /// The provider keeps the connection alive and sends nothing of an answer. May come anywhere, before `Start` too:
    /// nothing of the answer is in it.
    Idle {
        /// Time for which nothing of the answer came.
        since: Duration,
        /// After how long the answer counts as lost.
        limit: Duration,
    },
    /// Data that belongs to the whole answer and that the provider wants back with it: JSON text, opaque.
    Payload(String),
    /// The answer is complete.
    Stop(FinishReason),
}

/// Kind of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Text.
    Text,
    /// Thinking.
    Thinking,
    /// Thinking that only the provider can read.
    Redacted,
    /// A tool call.
    ToolCall {
        /// The provider's id of the call, or one made here if it gave none.
        id: String,
        /// The tool.
        name: String,
    },
}

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Input that was not cached.
    pub input: u64,
    /// Output, thinking included.
    pub output: u64,
    /// Input that came from the provider's cache.
    pub cache_read: u64,
    /// Input that was written to the provider's cache.
    pub cache_write: u64,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model's answer is complete.
    Stop,
    /// The answer reached its cap.
    Length,
    /// The model wants results of its tool calls.
    ToolUse,
}
