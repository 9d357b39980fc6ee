//! A message of the stream as it grows.

use std::collections::BTreeMap;

use countersign_core::{
    message::{AssistantReply, MessageBlock, StoredMessage, ToolCallBlock},
    time::Millis,
};
use countersign_protocol::{
    RawJson,
    omp::{
        AgentMessage, BlockChange,
        message::{AssistantBlock, ToolCallContent as WireCall},
    },
};
use countersign_runtime::{LiveKind, LivePartKind};
use serde_json::Value;

use crate::session_file::convert;

/// A message that is being streamed.
pub(super) struct PartialMessage {
    message: AssistantReply,
    at: Millis,
    /// The JSON text so far of the arguments of each call that is not whole, by its content index.
    arguments: BTreeMap<usize, String>,
}

impl PartialMessage {
    /// Begins an empty message.
    pub(super) fn new(message: AssistantReply, at: Millis) -> Self {
        Self { message, at, arguments: BTreeMap::new() }
    }

    /// Encodes the message as it is so far.
    pub(super) fn to_wire(&self) -> RawJson {
        let mut wire = convert::to_wire(&StoredMessage::Assistant(self.message.clone()), self.at);
        if let AgentMessage::Assistant(message) = &mut wire {
            for (index, text) in &self.arguments {
                if let Some(AssistantBlock::ToolCall(call)) = message.content.get_mut(*index) {
                    call.extra.insert(partial_arguments(&self.message.api), text.as_str());
                }
            }
        }
        RawJson::from_wire(&wire)
    }
}

/// Returns the member of a call that holds the JSON text of its arguments as long as the call is streamed: the original has one name
/// for chat completions, and another one for the other providers.
fn partial_arguments(api: &str) -> &'static str {
    match api {
        "anthropic-messages" | "openai-responses" => "partialJson",
        _ => "partialArgs",
    }
}

/// Folds a frame of the stream into the message, and returns the change. Sealed thinking is not reported.
pub(super) fn apply_change(partial: &mut PartialMessage, kind: &LiveKind) -> Option<BlockChange> {
    let PartialMessage { message: partial, arguments, .. } = partial;
    match kind {
        LiveKind::PartStarted { index, part } => {
            let content_index = *index;
            arguments.retain(|index, _| *index < content_index);
            let (block, change) = match part {
                LivePartKind::Text => (MessageBlock::from_text(""), Some(BlockChange::TextStart { content_index })),
                LivePartKind::Thinking => {
                    (MessageBlock::Thinking(Default::default()), Some(BlockChange::ThinkingStart { content_index }))
                }
                LivePartKind::Redacted => (MessageBlock::RedactedThinking { data: String::new() }, None),
                LivePartKind::ToolCall { id, name } => {
                    arguments.insert(content_index, String::new());
                    let call = ToolCallBlock { id: id.to_string(), name: name.to_string(), ..ToolCallBlock::default() };
                    (MessageBlock::ToolCall(call), Some(BlockChange::ToolcallStart { content_index }))
                }
            };
            partial.content.truncate(*index);
            partial.content.push(block);
            change
        }
        LiveKind::Delta { index, text } => {
            let (content_index, delta) = (*index, text.to_string());
            match partial.content.get_mut(*index)? {
                MessageBlock::Text(block) => {
                    block.text.push_str(text);
                    Some(BlockChange::TextDelta { content_index, delta })
                }
                MessageBlock::Thinking(block) => {
                    block.thinking.push_str(text);
                    Some(BlockChange::ThinkingDelta { content_index, delta })
                }
                MessageBlock::ToolCall(_) => {
                    arguments.entry(content_index).or_default().push_str(text);
                    Some(BlockChange::ToolcallDelta { content_index, delta })
                }
                MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) => None,
            }
        }
        LiveKind::PartEnded { index, block } => {
            let content_index = *index;
            arguments.remove(index);
            *partial.content.get_mut(*index)? = (**block).clone();
            match &**block {
                MessageBlock::Text(block) => Some(BlockChange::TextEnd { content_index, content: block.text.clone() }),
                MessageBlock::Thinking(block) => {
                    Some(BlockChange::ThinkingEnd { content_index, content: block.thinking.clone() })
                }
                MessageBlock::ToolCall(call) => Some(BlockChange::ToolcallEnd {
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
                MessageBlock::RedactedThinking { .. } | MessageBlock::Image(_) => None,
            }
        }
        LiveKind::MessageStarted { .. } | LiveKind::CallProgress { .. } | LiveKind::Idle { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersign_core::{
        message::{AssistantReply, MessageBlock, ToolCallBlock},
        time::Millis,
    };
    use countersign_runtime::{LiveKind, LivePartKind};
    use serde_json::{Value, json};

    use super::{PartialMessage, apply_change};

    #[test]
    fn a_call_holds_the_text_of_its_arguments_until_it_is_whole() {
        for (api, name) in [
            ("openai-completions", "partialArgs"),
            ("anthropic-messages", "partialJson"),
            ("openai-responses", "partialJson"),
        ] {
            let message = AssistantReply { api: api.to_owned(), ..AssistantReply::default() };
            let mut partial = PartialMessage::new(message, Millis(1));
            let arguments = json!({ "path": "a" });
            let whole = ToolCallBlock {
                id: "c".to_owned(),
                name: "read".to_owned(),
                arguments: arguments.as_object().unwrap().clone(),
                ..ToolCallBlock::default()
            };
            let delta = |text: &str| LiveKind::Delta { index: 0, text: text.into() };
            for (kind, text, arguments) in [
                (
                    LiveKind::PartStarted {
                        index: 0,
                        part: LivePartKind::ToolCall { id: "c".into(), name: "read".into() },
                    },
                    Some(""),
                    json!({}),
                ),
                (delta("{\"path\""), Some("{\"path\""), json!({})),
                (delta(":\"a\"}"), Some("{\"path\":\"a\"}"), json!({})),
                (
                    LiveKind::PartEnded { index: 0, block: Arc::new(MessageBlock::ToolCall(whole.clone())) },
                    None,
                    arguments,
                ),
            ] {
                apply_change(&mut partial, &kind);
                let wire: Value = partial.to_wire().decode_as().unwrap();
                let block = &wire["content"][0];
                assert_eq!(
                    (block.get(name).and_then(Value::as_str), &block["arguments"]),
                    (text, &arguments),
                    "{kind:?}"
                );
            }
        }
    }
}
