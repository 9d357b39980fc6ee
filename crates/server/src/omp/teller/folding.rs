//! A message of the stream as it grows.

use countersign_core::message::{Assistant, Block, ToolCall};
use countersign_protocol::omp::{Change, message::ToolCall as WireCall};
use countersign_runtime::{LiveKind, Part};
use serde_json::Value;

/// Folds a frame of the stream into the message, and says what changed. Sealed thinking is not told of.
pub(super) fn change(partial: &mut Assistant, kind: &LiveKind) -> Option<Change> {
    match kind {
        LiveKind::PartStarted { index, part } => {
            let content_index = *index;
            let (block, change) = match part {
                Part::Text => (Block::text(""), Some(Change::TextStart { content_index })),
                Part::Thinking => (Block::Thinking(Default::default()), Some(Change::ThinkingStart { content_index })),
                Part::Redacted => (Block::RedactedThinking { data: String::new() }, None),
                Part::ToolCall { id, name } => {
                    let call = ToolCall { id: id.to_string(), name: name.to_string(), ..ToolCall::default() };
                    (Block::ToolCall(call), Some(Change::ToolcallStart { content_index }))
                }
            };
            partial.content.truncate(*index);
            partial.content.push(block);
            change
        }
        LiveKind::Delta { index, text } => {
            let (content_index, delta) = (*index, text.to_string());
            match partial.content.get_mut(*index)? {
                Block::Text(block) => {
                    block.text.push_str(text);
                    Some(Change::TextDelta { content_index, delta })
                }
                Block::Thinking(block) => {
                    block.thinking.push_str(text);
                    Some(Change::ThinkingDelta { content_index, delta })
                }
                Block::ToolCall(_) => Some(Change::ToolcallDelta { content_index, delta }),
                Block::RedactedThinking { .. } | Block::Image(_) => None,
            }
        }
        LiveKind::PartEnded { index, block } => {
            let content_index = *index;
            *partial.content.get_mut(*index)? = (**block).clone();
            match &**block {
                Block::Text(block) => Some(Change::TextEnd { content_index, content: block.text.clone() }),
                Block::Thinking(block) => Some(Change::ThinkingEnd { content_index, content: block.thinking.clone() }),
                Block::ToolCall(call) => Some(Change::ToolcallEnd {
                    content_index,
                    tool_call: WireCall {
                        id: call.id.clone(),
                        name: call.name.clone(),
                        arguments: Value::Object(call.arguments.clone()).into(),
                        thought_signature: call.thought_signature.clone(),
                        intent: call.intent.clone(),
                        extra: Default::default(),
                    },
                }),
                Block::RedactedThinking { .. } | Block::Image(_) => None,
            }
        }
        LiveKind::MessageStarted { .. } | LiveKind::CallProgress { .. } | LiveKind::Idle { .. } => None,
    }
}
