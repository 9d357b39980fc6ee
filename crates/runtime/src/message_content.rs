//! Messages as content of the record, with about how many tokens they take.

use std::sync::Arc;

use countersign_core::{
    call::Returned,
    message::{Block, Message, ToolResult, estimate_tokens},
    session::Said,
};
use countersign_tools::Output;
use serde_json::json;

/// A message as content.
pub(crate) fn said(message: &Message) -> Said {
    let content: Arc<str> = serde_json::to_string(message).expect("messages are plain data with text keys").into();
    let tokens = estimated(message).unwrap_or_else(|| estimate_tokens(content.len()));
    Said { content, tokens }
}

/// About how many tokens a message takes, where that is less than all that is written of it.
pub fn estimated(message: &Message) -> Option<u64> {
    Some(match message {
        Message::Assistant(assistant) => estimate(&assistant.content),
        Message::ToolResult(result) => estimate(&result.content),
        Message::User(said) | Message::Developer(said) => estimate(&said.content),
        Message::BashExecution(_)
        | Message::CompactionSummary(_)
        | Message::BranchSummary(_)
        | Message::FileMention(_)
        | Message::Custom(_) => return None,
    })
}

/// An image counts as so many tokens, whatever its bytes.
const IMAGE_TOKENS: u64 = 1200;

fn estimate(blocks: &[Block]) -> u64 {
    let tokens = blocks.iter().map(|block| match block {
        Block::Text(text) => estimate_tokens(text.text.len()),
        Block::Thinking(thinking) => estimate_tokens(thinking.thinking.len()),
        Block::RedactedThinking { data } => estimate_tokens(data.len()),
        Block::Image(_) => IMAGE_TOKENS,
        Block::ToolCall(call) => {
            let arguments = serde_json::Value::Object(call.arguments.clone()).to_string();
            estimate_tokens(call.name.len() + arguments.len())
        }
    });
    tokens.sum()
}

/// What a tool gave back, as the model is told it.
pub(crate) fn returned(tool: &str, tool_call_id: &str, output: Output) -> Returned {
    let message = Message::ToolResult(ToolResult {
        tool_call_id: tool_call_id.to_owned(),
        tool_name: tool.to_owned(),
        content: output.content,
        details: Some(output.details.unwrap_or_else(|| json!({}))),
        is_error: output.is_error,
        ..ToolResult::default()
    });
    Returned {
        said: said(&message),
        error: output.is_error,
        open_tasks: None,
        folder: None,
        prunable: tool != "read",
        left_behind: None,
    }
}
