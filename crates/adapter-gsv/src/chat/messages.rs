//! Converts messages of the record to those of the wire.

use countersign_core::{
    message::{self, MessageBlock},
    time::Millis,
};
use countersign_files::objects;
use countersign_protocol::gsv::message::{
    AssistantPart, GsvMessage, MessageUsage, TextPart, UserContent, UserPart, safe_to_show,
};

/// Converts a message made at `at` for clients. `None` if it is not part of a conversation.
pub(super) fn to_wire_message(content: &str, at: Millis) -> Option<GsvMessage> {
    let timestamp = at.0;
    Some(match serde_json::from_str::<message::StoredMessage>(content).ok()? {
        message::StoredMessage::User(user_message) | message::StoredMessage::Developer(user_message) => {
            GsvMessage::User { content: user_content(&user_message.content), timestamp }
        }
        message::StoredMessage::Assistant(answer) => assistant_message(&answer, at),
        message::StoredMessage::ToolResult(result) => GsvMessage::ToolResult {
            content: vec![TextPart { text: message::text_of(&result.content) }],
            tool_call_id: result.tool_call_id,
            tool_name: result.tool_name,
            is_error: result.is_error,
            timestamp,
        },
        message::StoredMessage::CompactionSummary(summary) | message::StoredMessage::BranchSummary(summary) => {
            GsvMessage::User { content: UserContent::Text(summary.summary), timestamp }
        }
        message::StoredMessage::Custom(custom) => {
            GsvMessage::User { content: user_content(&custom.content), timestamp }
        }
        message::StoredMessage::BashExecution(_) | message::StoredMessage::FileMention(_) => return None,
    })
}

/// Converts an answer of the model.
pub(super) fn assistant_message(answer: &message::AssistantReply, at: Millis) -> GsvMessage {
    let parts = answer.content.iter().filter_map(|block| match block {
        MessageBlock::Text(text) => Some(AssistantPart::Text { text: text.text.clone() }),
        MessageBlock::Thinking(thought) => Some(AssistantPart::Thinking { thinking: thought.thinking.clone() }),
        MessageBlock::ToolCall(call) => Some(AssistantPart::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        }),
        MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) => None,
    });
    let input = answer.usage.input + answer.usage.cache_read + answer.usage.cache_write;
    let usage = MessageUsage { input, output: answer.usage.output, total_tokens: input + answer.usage.output };
    let stop = serde_json::to_value(answer.stop_reason).ok();
    GsvMessage::Assistant {
        content: parts.collect(),
        usage: Some(usage),
        stop_reason: stop.and_then(|stop| stop.as_str().map(str::to_owned)),
        error_message: answer.error_message.clone(),
        timestamp: at.0,
    }
}

/// Returns content as text if it has only text: the original's command line shows texts only.
fn user_content(content: &[MessageBlock]) -> UserContent {
    let has_images = content.iter().any(|block| matches!(block, MessageBlock::Image(_)));
    if !has_images {
        return UserContent::Text(message::text_of(content));
    }
    let parts = content.iter().filter_map(|block| match block {
        MessageBlock::Text(text) => Some(UserPart::Text { text: text.text.clone() }),
        MessageBlock::Image(image) => {
            let r2_key = objects::parse_reference(&image.data).map(str::to_owned);
            let data = r2_key.is_none().then(|| image.data.clone());
            Some(UserPart::Image { data, r2_key, mime_type: image.mime_type.clone() })
        }
        MessageBlock::Thinking(_) | MessageBlock::RedactedThinking { .. } | MessageBlock::ToolCall(_) => None,
    });
    UserContent::Parts(parts.collect())
}

/// Sorts the results of each message in the order of its calls: they came as they were done.
pub(super) fn in_order(mut messages: Vec<GsvMessage>) -> Vec<GsvMessage> {
    let mut call_ids: Vec<String> = Vec::new();
    let mut from = 0;
    while from < messages.len() {
        let results =
            messages[from..].iter().take_while(|message| matches!(message, GsvMessage::ToolResult { .. })).count();
        let place = |message: &GsvMessage| match message {
            GsvMessage::ToolResult { tool_call_id, .. } => call_ids.iter().position(|id| id == tool_call_id),
            GsvMessage::User { .. } | GsvMessage::Assistant { .. } => None,
        };
        messages[from..from + results].sort_by_key(|message| place(message).unwrap_or(usize::MAX));
        from += results;
        if let Some(message) = messages.get(from) {
            call_ids = calls_of(message);
        }
        from += 1;
    }
    messages
}

fn calls_of(message: &GsvMessage) -> Vec<String> {
    let GsvMessage::Assistant { content, .. } = message else { return Vec::new() };
    let calls = content.iter().filter_map(|part| match part {
        AssistantPart::ToolCall { id, .. } => Some(id.clone()),
        AssistantPart::Text { .. } | AssistantPart::Thinking { .. } => None,
    });
    calls.collect()
}

/// Returns the same message with texts that the command line can show.
pub(super) fn safe_message(message: GsvMessage) -> GsvMessage {
    match message {
        GsvMessage::ToolResult { tool_call_id, tool_name, content, is_error, timestamp } => {
            let content = content.into_iter().map(|part| TextPart { text: safe_to_show(&part.text) }).collect();
            GsvMessage::ToolResult { tool_call_id, tool_name, content, is_error, timestamp }
        }
        message @ (GsvMessage::User { .. } | GsvMessage::Assistant { .. }) => message,
    }
}
