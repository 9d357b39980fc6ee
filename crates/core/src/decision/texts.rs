//! Texts for the model about calls that did not end normally.

use std::sync::Arc;

use crate::{
    call,
    message::{BashMessage, InputMessage, MessageBlock, StoredMessage, ToolResult, estimate_tokens},
    session,
};

/// Result of a call that a queued message made pointless.
pub(crate) const SKIPPED: &str = "Skipped due to queued user message.";
/// Result of a call that was stopped before it began.
pub(crate) const CANCELLED: &str = "Tool execution was aborted: the run was stopped before this call began.";
/// Result of a call that was stopped while its question was pending.
pub(crate) const UNANSWERED: &str = "Tool execution was aborted: the run was stopped before anybody answered.";
/// Result of a call that waited for an answer when the budget of its run was used up.
pub(crate) const RUN_OVER: &str = "unattended run aborted: unattended abort";
/// Record of a call in a message that ended in an error.
pub(crate) const NOT_WHOLE: &str = "Not run: the message that wanted this call ended in an error.";
/// Result of a call that had not begun when the process ended.
pub(crate) const NOT_BEGUN: &str = "Not run: the process ended before this call began.";
/// Result of a call with an unknown outcome.
pub(crate) const UNKNOWN: &str = "Outcome unknown: this call was started, and what ran it ended before a result was recorded. It may or may not have taken effect. It was not run again.";
/// Result of a call whose peer did not connect in time.
pub(crate) const PEER_AWAY: &str =
    "Not run: whoever does this was not connected, and did not come in time. Nothing was sent.";
/// Result of a call whose peer did not reconnect to report its outcome.
pub(crate) const PEER_SILENT: &str = "Outcome unknown: the connection to whoever did this broke off before a result came, and it did not say in time what became of the call. It may or may not have taken effect. It was not run again.";
/// Result of an agent's request with an unknown outcome.
pub(crate) const REQUEST_UNKNOWN: &str = "Outcome unknown: the request was sent or may have been sent, and no answer was recorded. It may or may not have taken effect. It was not repeated.";
/// Text for the model after a compaction.
pub(crate) const CONTINUE: &str = "Continue if you have next steps.";

/// Encodes a message as content.
pub(crate) fn encode_message(message: &StoredMessage) -> session::MessageContent {
    let content = serde_json::to_string(message).expect("messages are plain data with text keys");
    session::MessageContent { tokens: estimate_tokens(content.len()), content: content.into() }
}

/// Builds a result that contains only a text.
pub(crate) fn tool_result(
    content: Option<&Arc<call::CallDetails>>,
    text: &str,
    is_error: bool,
) -> session::MessageContent {
    encode_message(&StoredMessage::ToolResult(ToolResult {
        tool_call_id: content.map(|content| content.tool_call_id.to_string()).unwrap_or_default(),
        tool_name: content.map(|content| content.tool.to_string()).unwrap_or_default(),
        content: vec![MessageBlock::from_text(text)],
        details: Some(serde_json::Value::Object(serde_json::Map::new())),
        is_error,
        ..ToolResult::default()
    }))
}

/// Builds the message of a person's command with an unknown outcome.
pub(crate) fn command_unknown(content: Option<&Arc<call::CallDetails>>) -> session::MessageContent {
    let command = content.and_then(|content| content.arguments.get("command")?.as_str().map(str::to_owned));
    encode_message(&StoredMessage::BashExecution(BashMessage {
        command: command.unwrap_or_default(),
        output: UNKNOWN.to_owned(),
        cancelled: true,
        ..BashMessage::default()
    }))
}

/// Builds the message of a person's command that was not started: it could not be, or it was stopped before.
pub(crate) fn command_failed(
    content: Option<&Arc<call::CallDetails>>,
    problem: &str,
    cancelled: bool,
) -> session::MessageContent {
    let command = content.and_then(|content| content.arguments.get("command")?.as_str().map(str::to_owned));
    encode_message(&StoredMessage::BashExecution(BashMessage {
        command: command.unwrap_or_default(),
        output: problem.to_owned(),
        cancelled,
        ..BashMessage::default()
    }))
}

/// Builds a message of the system.
pub(crate) fn developer_message(text: &str) -> session::MessageContent {
    encode_message(&StoredMessage::Developer(InputMessage {
        content: vec![MessageBlock::from_text(text)],
        attribution: Some("agent".to_owned()),
        synthetic: true,
        ..InputMessage::default()
    }))
}
