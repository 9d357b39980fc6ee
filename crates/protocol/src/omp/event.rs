//! Writes what happens in a session as frames.
//!
//! It must not know the order in which things happen: docs/protocol/omp.md, Events. Source: the RPC reference of omp,
//! Event Stream Schema.

use serde::{Deserialize, Serialize};

use super::message::{ToolCallContent, ToolOutput};
use super::state::CompactionResult;
use crate::json::{RawJson, WireValue};

/// One event. Messages are embedded as they were encoded, so each is encoded once however often it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum OmpEvent {
    /// The first line of all: commands are read from now on.
    Ready,
    /// A run starts.
    AgentStart,
    /// A run ended. Retries, compaction and continuations may still follow.
    AgentEnd {
        /// Every message that the run added, in order.
        messages: Vec<RawJson>,
    },
    /// Nothing will happen without another command. Ours; hosts that do not know it ignore it.
    AgentSettled,
    /// A request to the model begins.
    TurnStart,
    /// The model answered and its calls ended.
    TurnEnd {
        /// The assistant message.
        message: RawJson,
        /// The tool result messages in the order in which the calls ended.
        tool_results: Vec<RawJson>,
    },
    /// A message begins.
    MessageStart {
        /// The message so far.
        message: RawJson,
    },
    /// An assistant message grew. Made by [`OmpEvent::message_update`].
    MessageUpdate {
        /// The change.
        assistant_message_event: AssistantMessageEvent,
        /// The whole message so far.
        message: RawJson,
    },
    /// A message is complete.
    MessageEnd {
        /// The message.
        message: RawJson,
    },
    /// A call begins.
    ToolExecutionStart {
        /// Id of the call in the assistant message.
        tool_call_id: String,
        /// Name of the tool.
        tool_name: String,
        /// Its arguments, without the intent.
        args: RawJson,
        /// Purpose of the call, as the model gives it.
        #[serde(skip_serializing_if = "Option::is_none")]
        intent: Option<String>,
    },
    /// A call that still runs has output.
    ToolExecutionUpdate {
        /// Id of the call in the assistant message.
        tool_call_id: String,
        /// Name of the tool.
        tool_name: String,
        /// Its arguments, without the intent.
        args: RawJson,
        /// All output so far.
        partial_result: ToolOutput,
    },
    /// A call ended.
    ToolExecutionEnd {
        /// Id of the call in the assistant message.
        tool_call_id: String,
        /// Name of the tool.
        tool_name: String,
        /// Result of the call.
        result: ToolOutput,
        /// True if the result reports a failure.
        is_error: bool,
    },
    /// The context is about to be summarised.
    AutoCompactionStart {
        /// Reason of the compaction.
        reason: CompactionReason,
        /// Way of compaction.
        action: CompactionAction,
    },
    /// The context was summarised, or not.
    AutoCompactionEnd {
        /// Way of compaction.
        action: CompactionAction,
        /// Result; absent if there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<CompactionResult>,
        /// True if it was stopped.
        aborted: bool,
        /// True if the run that overflowed is started again.
        will_retry: bool,
        /// Reason of the failure.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// True if there was nothing to do.
        #[serde(skip_serializing_if = "Option::is_none")]
        skipped: Option<bool>,
    },
    /// A failed request is about to be repeated.
    AutoRetryStart {
        /// Counts from 1.
        attempt: u32,
        /// Most attempts.
        max_attempts: u32,
        /// Wait before the attempt, in milliseconds.
        delay_ms: u64,
        /// Error text.
        error_message: String,
    },
    /// Repeating ended.
    AutoRetryEnd {
        /// True if the last attempt succeeded.
        success: bool,
        /// Its number.
        attempt: u32,
        /// The last failure, or that a person gave up.
        #[serde(skip_serializing_if = "Option::is_none")]
        final_error: Option<String>,
    },
    /// Another model takes over after failures.
    RetryFallbackApplied {
        /// The model that failed.
        from: String,
        /// The model that takes over.
        to: String,
        /// The role it has.
        role: String,
    },
    /// The other model answered.
    RetryFallbackSucceeded {
        /// Name of that model.
        model: String,
        /// The role it has.
        role: String,
    },
    /// A rule stopped the stream. Never sent by us; kept because the protocol has it.
    TtsrTriggered {
        /// The rules.
        rules: Vec<RawJson>,
    },
    /// A run ended with open tasks.
    TodoReminder {
        /// The open tasks.
        todos: Vec<TodoItem>,
        /// Counts from 1.
        attempt: u32,
        /// Most attempts.
        max_attempts: u32,
    },
    /// A finished task list was put away.
    TodoAutoClear,
    /// An extension failed.
    ExtensionError {
        /// Path that the extension was loaded from.
        extension_path: String,
        /// Name of the event that it handled.
        event: String,
        /// Error text.
        error: String,
    },
}

impl WireValue for OmpEvent {}

impl OmpEvent {
    /// Creates the event for a `message` that grew by `change`. The message is embedded twice, as `partial` and as `message`.
    pub fn message_update(change: BlockChange, message: RawJson) -> Self {
        let partial = message.clone();
        Self::MessageUpdate { assistant_message_event: AssistantMessageEvent { change, partial }, message }
    }

    /// Returns the `type` of the frame.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::AgentStart => "agent_start",
            Self::AgentEnd { .. } => "agent_end",
            Self::AgentSettled => "agent_settled",
            Self::TurnStart => "turn_start",
            Self::TurnEnd { .. } => "turn_end",
            Self::MessageStart { .. } => "message_start",
            Self::MessageUpdate { .. } => "message_update",
            Self::MessageEnd { .. } => "message_end",
            Self::ToolExecutionStart { .. } => "tool_execution_start",
            Self::ToolExecutionUpdate { .. } => "tool_execution_update",
            Self::ToolExecutionEnd { .. } => "tool_execution_end",
            Self::AutoCompactionStart { .. } => "auto_compaction_start",
            Self::AutoCompactionEnd { .. } => "auto_compaction_end",
            Self::AutoRetryStart { .. } => "auto_retry_start",
            Self::AutoRetryEnd { .. } => "auto_retry_end",
            Self::RetryFallbackApplied { .. } => "retry_fallback_applied",
            Self::RetryFallbackSucceeded { .. } => "retry_fallback_succeeded",
            Self::TtsrTriggered { .. } => "ttsr_triggered",
            Self::TodoReminder { .. } => "todo_reminder",
            Self::TodoAutoClear => "todo_auto_clear",
            Self::ExtensionError { .. } => "extension_error",
        }
    }
}

/// The `assistantMessageEvent` of a `message_update`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssistantMessageEvent {
    /// The change.
    #[serde(flatten)]
    pub change: BlockChange,
    /// The whole message so far.
    pub partial: RawJson,
}

/// Growth of one block of an assistant message.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum BlockChange {
    /// A text block begins.
    TextStart {
        /// Position of the block.
        content_index: usize,
    },
    /// Text was added.
    TextDelta {
        /// Position of the block.
        content_index: usize,
        /// The new text.
        delta: String,
    },
    /// A text block is complete.
    TextEnd {
        /// Position of the block.
        content_index: usize,
        /// The whole text.
        content: String,
    },
    /// A thinking block begins.
    ThinkingStart {
        /// Position of the block.
        content_index: usize,
    },
    /// Thinking was added.
    ThinkingDelta {
        /// Position of the block.
        content_index: usize,
        /// The new text.
        delta: String,
    },
    /// A thinking block is complete.
    ThinkingEnd {
        /// Position of the block.
        content_index: usize,
        /// The whole text.
        content: String,
    },
    /// A tool call begins.
    ToolcallStart {
        /// Position of the block.
        content_index: usize,
    },
    /// Text of the arguments was added.
    ToolcallDelta {
        /// Position of the block.
        content_index: usize,
        /// A piece of the JSON text of the arguments.
        delta: String,
    },
    /// A tool call is complete.
    ToolcallEnd {
        /// Position of the block.
        content_index: usize,
        /// The call, as in the message.
        tool_call: ToolCallContent,
    },
}

/// Reason that the context is summarised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CompactionReason {
    /// The context grew past the threshold.
    Threshold,
    /// The model refused it as too long.
    Overflow,
    /// There was no message for a while.
    Idle,
}

/// Way in which the context is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompactionAction {
    /// By a summary in place.
    ContextFull,
    /// By a summary that starts a new session.
    Handoff,
}

/// One open task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TodoItem {
    /// Names the task.
    pub id: String,
    /// Description of the task.
    pub content: String,
    /// Status of the task.
    pub status: TodoStatus,
}

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Abandoned,
}
