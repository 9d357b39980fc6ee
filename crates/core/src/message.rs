//! Content of a conversation: messages and their blocks, as content of the log.
//!
//! Content is never read by a decision. It is neutral of every adapter: adapters translate it. Unknown members
//! (an imported session may have them) are kept in `extra`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Members of an imported object that have no meaning here and are passed on unchanged.
pub type ExtraFields = BTreeMap<String, Value>;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum StoredMessage {
    /// A message of a person or a host.
    User(InputMessage),
    /// A message of the system in a person's place: reminders, continuations.
    Developer(InputMessage),
    /// A message of the model.
    Assistant(AssistantReply),
    /// The result of a call for the model.
    ToolResult(ToolResult),
    /// A command that a person ran outside of the run.
    BashExecution(BashMessage),
    /// The text that stands for everything before a compaction.
    CompactionSummary(SummaryMessage),
    /// The text that stands for a branch that was left.
    BranchSummary(SummaryMessage),
    /// Content of files that a message mentioned.
    FileMention(FileMentionMessage),
    /// A message of an extension, shown or not.
    Custom(ExtensionMessage),
}

/// A message of a person or of the system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputMessage {
    /// Blocks in order, text first. An imported plain string is one text block.
    pub content: Vec<MessageBlock>,
    /// `"user"` or `"agent"`; absent means unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<String>,
    /// True if no person typed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// A message of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantReply {
    /// Blocks in the order of their content index.
    pub content: Vec<MessageBlock>,
    /// The wire protocol, such as `openai-completions`.
    pub api: String,
    /// The provider's name in the settings.
    pub provider: String,
    /// The model's id at the provider.
    pub model: String,
    /// The provider's id of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Its use of tokens and its cost.
    pub usage: RequestUsage,
    /// Reason for which it ended.
    pub stop_reason: StopReason,
    /// Error text, for `error` and `aborted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Milliseconds from the request to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// Milliseconds from the request to the first delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<u64>,
    /// The provider's data for the whole message, needed to hand it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_payload: Option<Value>,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// Reason for which a model's message ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// Normal end.
    #[default]
    Stop,
    /// Limit of output reached.
    Length,
    /// Requests for calls of tools.
    ToolUse,
    /// The provider failed.
    Error,
    /// Stopped.
    Aborted,
}

/// Tokens used and dollars spent by one model request. `input` excludes cached tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestUsage {
    /// Tokens read that were not cached.
    #[serde(default)]
    pub input: u64,
    /// Tokens written.
    #[serde(default)]
    pub output: u64,
    /// Tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write: u64,
    /// The sum of the four.
    #[serde(default)]
    pub total_tokens: u64,
    /// Dollars, by kind.
    #[serde(default)]
    pub cost: UsageCost,
}

/// Dollars by kind of token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageCost {
    /// Cost of uncached input.
    #[serde(default)]
    pub input: f64,
    /// Cost of output.
    #[serde(default)]
    pub output: f64,
    /// Cost of cached input.
    #[serde(default)]
    pub cache_read: f64,
    /// Cost of input written to the cache.
    #[serde(default)]
    pub cache_write: f64,
    /// The sum of the four.
    #[serde(default)]
    pub total: f64,
}

/// Result of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// Text and image blocks.
    pub content: Vec<MessageBlock>,
    /// Data for a program in addition to the text for the model; the shape is the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// True if the call failed, was refused, skipped or aborted, or its outcome is unknown.
    pub is_error: bool,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// A command that a person ran in the session's shell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BashMessage {
    /// The command line.
    pub command: String,
    /// Output and error output, interleaved; the end of it if it was long.
    pub output: String,
    /// Absent if it was cancelled or timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if it was stopped.
    pub cancelled: bool,
    /// True if the beginning of the output is missing here.
    pub truncated: bool,
    /// Location of the full output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// True if the model is not to see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_from_context: bool,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// A text that stands for messages no longer shown to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryMessage {
    /// The whole text.
    pub summary: String,
    /// One line of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_summary: Option<String>,
    /// Tokens of the context before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<u64>,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// Files that a user message mentioned as `@path`, with their content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileMentionMessage {
    /// One object a file: `path`, `content` and metadata.
    pub files: Vec<Value>,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// A message of an extension.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionMessage {
    /// The extension's own name for the kind.
    pub custom_type: String,
    /// Blocks in order.
    pub content: Vec<MessageBlock>,
    /// False if only the model sees it.
    #[serde(default)]
    pub display: bool,
    /// Data for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Unknown members.
    #[serde(flatten)]
    pub extra: ExtraFields,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum MessageBlock {
    /// Text.
    Text(TextBlock),
    /// A thought of the model.
    Thinking(ThinkingBlock),
    /// A thought of the model, sealed by its provider.
    RedactedThinking {
        /// The provider's sealed form.
        data: String,
    },
    /// An image.
    Image(ImageBlock),
    /// A call that the model wants.
    ToolCall(ToolCallBlock),
}

impl MessageBlock {
    /// Builds a text block.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), text_signature: None })
    }

    /// Returns the text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(&text.text),
            Self::Thinking(_) | Self::RedactedThinking { .. } | Self::Image(_) | Self::ToolCall(_) => None,
        }
    }
}

/// A block of text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextBlock {
    /// The text.
    pub text: String,
    /// The provider's proof of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
}

/// A block of thinking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingBlock {
    /// The text.
    pub thinking: String,
    /// The provider's proof of it, needed to hand it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
}

/// An image: base64 data, or in a session file a reference to a blob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBlock {
    /// Base64, standard alphabet, or `blob:sha256:` and a digest.
    pub data: String,
    /// MIME type, such as `image/png`.
    pub mime_type: String,
}

/// A call that a model wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallBlock {
    /// The model's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model gave them; empty if it gave no JSON object.
    pub arguments: Map<String, Value>,
    /// The provider's proof of the thought that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// Intent that the model gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
}

/// Joins the text blocks of `content`.
pub fn text_of(content: &[MessageBlock]) -> String {
    content.iter().filter_map(MessageBlock::as_text).collect()
}

/// Estimates how many tokens `bytes` bytes of text take: a quarter, rounded up.
pub const fn estimate_tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{StoredMessage, estimate_tokens};

    #[test]
    fn a_message_keeps_the_members_that_it_does_not_know() {
        for given in [
            json!({"role": "user", "content": [{"type": "text", "text": "hi"}], "mood": "good"}),
            json!({"role": "toolResult", "toolCallId": "c", "toolName": "read", "content": [], "isError": false, "prunedAt": 5}),
            json!({"role": "bashExecution", "command": "ls", "output": "", "exitCode": 0, "cancelled": false, "truncated": false}),
            json!({"role": "custom", "customType": "x", "content": [], "display": true, "more": {"a": 1}}),
        ] {
            let message: StoredMessage = serde_json::from_value(given.clone()).unwrap();
            assert_eq!(serde_json::to_value(message).unwrap(), given);
        }
    }

    #[test]
    fn a_role_that_nobody_knows_is_refused() {
        let given: Value = json!({"role": "oracle", "content": []});
        assert!(serde_json::from_value::<StoredMessage>(given).is_err());
    }

    #[test]
    fn tokens_are_estimated_from_bytes() {
        assert_eq!([0, 1, 4, 5].map(estimate_tokens), [0, 1, 1, 2]);
    }
}
