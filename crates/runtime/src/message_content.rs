//! Messages as content of the record, with about how many tokens they take.

use std::sync::Arc;

use countersign_core::{
    call::CallResult,
    message::{MessageBlock, StoredMessage, ToolResult, estimate_tokens},
    session::MessageContent,
};
use countersign_tools::CallOutput;
use serde_json::json;

/// Returns a message as content.
pub(crate) fn encode_message(message: &StoredMessage) -> MessageContent {
    let content: Arc<str> = serde_json::to_string(message).expect("messages are plain data with text keys").into();
    let tokens = estimate_message_tokens(message).unwrap_or_else(|| estimate_tokens(content.len()));
    MessageContent { content, tokens }
}

/// Estimates the tokens of a message, if they are less than all of its text.
pub fn estimate_message_tokens(message: &StoredMessage) -> Option<u64> {
    Some(match message {
        StoredMessage::Assistant(assistant) => estimate_block_tokens(&assistant.content),
        StoredMessage::ToolResult(result) => estimate_block_tokens(&result.content),
        StoredMessage::User(user_message) | StoredMessage::Developer(user_message) => {
            estimate_block_tokens(&user_message.content)
        }
        StoredMessage::BashExecution(_)
        | StoredMessage::CompactionSummary(_)
        | StoredMessage::BranchSummary(_)
        | StoredMessage::FileMention(_)
        | StoredMessage::Custom(_) => return None,
    })
}

/// Tokens that an image counts as, of any size.
const IMAGE_TOKENS: u64 = 1200;

fn estimate_block_tokens(blocks: &[MessageBlock]) -> u64 {
    let tokens = blocks.iter().map(|block| match block {
        MessageBlock::Text(text) => estimate_tokens(text.text.len()),
        MessageBlock::Thinking(thinking) => estimate_tokens(thinking.thinking.len()),
        MessageBlock::RedactedThinking { data } => estimate_tokens(data.len()),
        MessageBlock::Image(_) => IMAGE_TOKENS,
        MessageBlock::ToolCall(call) => {
            let arguments = serde_json::Value::Object(call.arguments.clone()).to_string();
            estimate_tokens(call.name.len() + arguments.len())
        }
    });
    tokens.sum()
}

/// Encodes the output of a tool as the model gets it.
pub(crate) fn encode_tool_result(tool: &str, tool_call_id: &str, output: CallOutput) -> CallResult {
    let message = StoredMessage::ToolResult(ToolResult {
        tool_call_id: tool_call_id.to_owned(),
        tool_name: tool.to_owned(),
        content: output.content,
        details: Some(output.details.unwrap_or_else(|| json!({}))),
        is_error: output.is_error,
        ..ToolResult::default()
    });
    CallResult {
        message: encode_message(&message),
        error: output.is_error,
        open_tasks: None,
        folder: None,
        prunable: tool != "read",
        left_behind: None,
    }
}
