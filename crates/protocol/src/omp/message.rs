//! Reads and writes the messages of a session, on the wire and in session files alike.
//!
//! It must not know how a message is shown to a model. Members that we do not know are kept. Source:
//! docs/protocol/omp.md, Messages.

mod content;

use serde::{Deserialize, Serialize};

pub(crate) use self::content::tagged;
pub use self::content::{
    AssistantBlock, ImageContent, OmpContent, OmpContentBlock, RedactedThinking, TextContent, ThinkingContent,
    ToolCallContent, ToolOutput,
};
use crate::json::{ExtraMembers, JsNumber, RawJson, wire_values};

/// One message of a session, distinguished by its `role`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AgentMessage {
    /// `user`: a message of the person.
    User(OmpUserMessage),
    /// `developer`: a message of the system in between.
    Developer(DeveloperMessage),
    /// `assistant`: a message of the model.
    Assistant(Box<OmpAssistantMessage>),
    /// `toolResult`: what a call gave.
    ToolResult(ToolResultMessage),
    /// `bashExecution`: a shell command of the person.
    BashExecution(OmpBashExecution),
    /// `pythonExecution`: code of the person.
    PythonExecution(PythonExecution),
    /// `custom`, and the older `hookMessage`, which is read only.
    Custom(CustomMessage),
    /// `compactionSummary`: replaces the older part of the context.
    CompactionSummary(CompactionSummary),
    /// `branchSummary`: replaces a branch that was left.
    BranchSummary(BranchSummary),
    /// `fileMention`: the files that a user message names.
    FileMention(OmpFileMention),
    /// Any other role; in a session file also one of these that lacks members of its role.
    Other(RawJson),
}

tagged!(AgentMessage, "role", {
    "user" => User,
    "developer" => Developer,
    "assistant" => Assistant,
    "toolResult" => ToolResult,
    "bashExecution" => BashExecution,
    "pythonExecution" => PythonExecution,
    "custom" => Custom,
    "hookMessage" => Custom,
    "compactionSummary" => CompactionSummary,
    "branchSummary" => BranchSummary,
    "fileMention" => FileMention,
});

/// Originator of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageAttribution {
    /// The person.
    User,
    /// The agent.
    Agent,
}

/// A message of role `user`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "user", rename_all = "camelCase")]
pub struct OmpUserMessage {
    /// A prompt of a host has the array form, the text first.
    pub content: OmpContent,
    /// Originator of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<MessageAttribution>,
    /// True if no person typed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<bool>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `developer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "developer", rename_all = "camelCase")]
pub struct DeveloperMessage {
    /// Content of the system's message.
    pub content: OmpContent,
    /// Originator of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<MessageAttribution>,
    /// True if no person typed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<bool>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `assistant`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "assistant", rename_all = "camelCase")]
pub struct OmpAssistantMessage {
    /// Its blocks in order.
    pub content: Vec<AssistantBlock>,
    /// Name of the API that the model was reached by.
    pub api: String,
    /// The provider.
    pub provider: String,
    /// The model's id there.
    pub model: String,
    /// The provider's id of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Tokens used; all zero while it is being written.
    pub usage: OmpUsage,
    /// Reason that it ended; `stop` while it is being written.
    pub stop_reason: OmpStopReason,
    /// Error text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Milliseconds from the request to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<JsNumber>,
    /// Milliseconds from the request to the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<JsNumber>,
    /// Opaque, for the same provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_payload: Option<RawJson>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Reason that a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OmpStopReason {
    /// The model was done.
    Stop,
    /// The model ran out of tokens.
    Length,
    /// The model requests tools.
    ToolUse,
    /// Something failed.
    Error,
    /// The run was stopped.
    Aborted,
}

/// The tokens of one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OmpUsage {
    /// Sent, without what was kept.
    pub input: u64,
    /// Answered.
    pub output: u64,
    /// Sent and kept before.
    pub cache_read: u64,
    /// Sent to be kept.
    pub cache_write: u64,
    /// The sum of the four.
    pub total_tokens: u64,
    /// Number of premium requests, as the provider counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub premium_requests: Option<JsNumber>,
    /// Costs of the tokens.
    pub cost: OmpCost,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// Dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OmpCost {
    /// Cost of the input.
    pub input: JsNumber,
    /// Cost of the output.
    pub output: JsNumber,
    /// Cost of input read from the cache.
    pub cache_read: JsNumber,
    /// Cost of input written to the cache.
    pub cache_write: JsNumber,
    /// The sum of the four.
    pub total: JsNumber,
}

/// A message of role `toolResult`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "toolResult", rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// Id of the call in its assistant message.
    pub tool_call_id: String,
    /// Name of the tool.
    pub tool_name: String,
    /// Content that the model sees.
    pub content: Vec<OmpContentBlock>,
    /// Additional details for hosts. Null counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// True if it reports a failure.
    pub is_error: bool,
    /// Originator of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<MessageAttribution>,
    /// Time at which its content was removed, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned_at: Option<u64>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `bashExecution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "bashExecution", rename_all = "camelCase")]
pub struct OmpBashExecution {
    /// The command line.
    pub command: String,
    /// Output, or the end of it.
    pub output: String,
    /// Absent if it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if it was stopped.
    pub cancelled: bool,
    /// True if `output` lacks its beginning.
    pub truncated: bool,
    /// Details of how `output` was shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<RawJson>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// True if the model does not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_context: Option<bool>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `pythonExecution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "pythonExecution", rename_all = "camelCase")]
pub struct PythonExecution {
    /// The code.
    pub code: String,
    /// Output, or the end of it.
    pub output: String,
    /// Absent if it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if it was stopped.
    pub cancelled: bool,
    /// True if `output` lacks its beginning.
    pub truncated: bool,
    /// Details of how `output` was shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<RawJson>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// True if the model does not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_context: Option<bool>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `custom`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "custom", rename_all = "camelCase")]
pub struct CustomMessage {
    /// Type name chosen by the sender.
    pub custom_type: String,
    /// Content that the model sees.
    pub content: OmpContent,
    /// True if people see it.
    pub display: bool,
    /// Opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<RawJson>,
    /// Originator of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<MessageAttribution>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `compactionSummary`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "compactionSummary", rename_all = "camelCase")]
pub struct CompactionSummary {
    /// Summary of the older part.
    pub summary: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_summary: Option<String>,
    /// Size of the context before.
    pub tokens_before: u64,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `branchSummary`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "branchSummary", rename_all = "camelCase")]
pub struct BranchSummary {
    /// Summary of the branch.
    pub summary: String,
    /// The entry where it began.
    pub from_id: String,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// A message of role `fileMention`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename = "fileMention", rename_all = "camelCase")]
pub struct OmpFileMention {
    /// The files in the order in which they are named.
    pub files: Vec<MentionedFile>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
}

/// One file that a user message names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MentionedFile {
    /// Path as it was named.
    pub path: String,
    /// Content of the file.
    pub content: String,
    /// Lines of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_count: Option<u64>,
    /// Bytes of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_size: Option<u64>,
    /// Reason that `content` is not the file's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_reason: Option<String>,
    /// The file, if it is an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageContent>,
}

wire_values! {
    AgentMessage, OmpUserMessage, DeveloperMessage, OmpAssistantMessage, ToolResultMessage, OmpBashExecution,
    PythonExecution, CustomMessage, CompactionSummary, BranchSummary, OmpFileMention,
}
