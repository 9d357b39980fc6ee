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
        message::{AssistantBlock, RedactedThinking, TextContent, ThinkingContent, ToolCallContent as WireCall},
    },
};
use countersign_runtime::{LiveKind, LivePartKind};
use serde_json::Value;

use crate::session_file::convert;

/// A message that is being streamed, in the form of the wire: it is encoded with each of its frames.
pub(super) struct PartialMessage {
    message: AgentMessage,
    arguments: PartialArguments,
}

/// The JSON text so far of the arguments of calls that are not whole.
struct PartialArguments {
    /// Name of their member in the call.
    name: &'static str,
    /// By the content index of the call.
    texts: BTreeMap<usize, String>,
}

impl PartialMessage {
    /// Begins an empty message.
    pub(super) fn new(message: AssistantReply, at: Millis) -> Self {
        let arguments = PartialArguments { name: partial_arguments(&message.api), texts: BTreeMap::new() };
        Self { message: convert::to_wire(&StoredMessage::Assistant(message), at), arguments }
    }

    /// Encodes the message as it is so far.
    pub(super) fn to_wire(&self) -> RawJson {
        RawJson::from_wire(&self.message)
    }
}

impl PartialArguments {
    /// Appends to the arguments of a call.
    fn push_text(&mut self, index: usize, text: &str, call: &mut WireCall) {
        let whole = self.texts.entry(index).or_default();
        whole.push_str(text);
        call.extra.insert(self.name, whole.as_str());
    }
}

/// Returns a block as it is on the wire.
fn wire_block(block: &MessageBlock) -> AssistantBlock {
    match block {
        MessageBlock::Text(block) => AssistantBlock::Text(TextContent {
            text: block.text.clone(),
            text_signature: block.text_signature.clone(),
            extra: Default::default(),
        }),
        MessageBlock::Thinking(block) => AssistantBlock::Thinking(ThinkingContent {
            thinking: block.thinking.clone(),
            thinking_signature: block.thinking_signature.clone(),
            extra: Default::default(),
        }),
        MessageBlock::RedactedThinking { data } => {
            AssistantBlock::RedactedThinking(RedactedThinking { data: data.clone(), extra: Default::default() })
        }
        MessageBlock::ToolCall(call) => AssistantBlock::ToolCall(wire_call(call)),
        MessageBlock::Image(_) => AssistantBlock::Other(serde_json::to_value(block).unwrap_or_default().into()),
    }
}

fn wire_call(call: &ToolCallBlock) -> WireCall {
    WireCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: Value::Object(call.arguments.clone()).into(),
        thought_signature: call.thought_signature.clone(),
        intent: call.intent.clone(),
        extra: Default::default(),
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
    let PartialMessage { message: AgentMessage::Assistant(message), arguments } = partial else { return None };
    match kind {
        LiveKind::PartStarted { index, part } => {
            let content_index = *index;
            arguments.texts.retain(|index, _| *index < content_index);
            let (block, change) = match part {
                LivePartKind::Text => (MessageBlock::from_text(""), Some(BlockChange::TextStart { content_index })),
                LivePartKind::Thinking => {
                    (MessageBlock::Thinking(Default::default()), Some(BlockChange::ThinkingStart { content_index }))
                }
                LivePartKind::Redacted => (MessageBlock::RedactedThinking { data: String::new() }, None),
                LivePartKind::ToolCall { id, name } => {
                    let call = ToolCallBlock { id: id.to_string(), name: name.to_string(), ..ToolCallBlock::default() };
                    (MessageBlock::ToolCall(call), Some(BlockChange::ToolcallStart { content_index }))
                }
            };
            let mut block = wire_block(&block);
            if let AssistantBlock::ToolCall(call) = &mut block {
                arguments.push_text(content_index, "", call);
            }
            message.content.truncate(content_index);
            message.content.push(block);
            change
        }
        LiveKind::Delta { index, text } => {
            let (content_index, delta) = (*index, text.to_string());
            match message.content.get_mut(content_index)? {
                AssistantBlock::Text(block) => {
                    block.text.push_str(text);
                    Some(BlockChange::TextDelta { content_index, delta })
                }
                AssistantBlock::Thinking(block) => {
                    block.thinking.push_str(text);
                    Some(BlockChange::ThinkingDelta { content_index, delta })
                }
                AssistantBlock::ToolCall(call) => {
                    arguments.push_text(content_index, text, call);
                    Some(BlockChange::ToolcallDelta { content_index, delta })
                }
                AssistantBlock::RedactedThinking(_) | AssistantBlock::Other(_) => None,
            }
        }
        LiveKind::PartEnded { index, block } => {
            let content_index = *index;
            arguments.texts.remove(index);
            *message.content.get_mut(content_index)? = wire_block(block);
            match &**block {
                MessageBlock::Text(block) => Some(BlockChange::TextEnd { content_index, content: block.text.clone() }),
                MessageBlock::Thinking(block) => {
                    Some(BlockChange::ThinkingEnd { content_index, content: block.thinking.clone() })
                }
                MessageBlock::ToolCall(call) => {
                    Some(BlockChange::ToolcallEnd { content_index, tool_call: wire_call(call) })
                }
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
        message::{AssistantReply, ImageBlock, MessageBlock, StoredMessage, TextBlock, ThinkingBlock, ToolCallBlock},
        time::Millis,
    };
    use countersign_protocol::RawJson;
    use countersign_runtime::{LiveKind, LivePartKind};
    use serde_json::{Value, json};

    use super::{PartialMessage, apply_change, convert};

    #[test]
    fn a_streamed_block_is_written_as_that_of_a_whole_message() {
        let signed = |text: &str| Some(text.to_owned());
        let call = ToolCallBlock {
            id: "c".to_owned(),
            name: "read".to_owned(),
            arguments: json!({ "path": "a", "_i": "why" }).as_object().unwrap().clone(),
            thought_signature: signed("s"),
            intent: signed("why"),
        };
        let content = vec![
            MessageBlock::from_text("a\n\u{2028}\"b\""),
            MessageBlock::Text(TextBlock { text: "b".to_owned(), text_signature: signed("s") }),
            MessageBlock::Thinking(ThinkingBlock { thinking: "c".to_owned(), thinking_signature: signed("s") }),
            MessageBlock::RedactedThinking { data: "d".to_owned() },
            MessageBlock::ToolCall(call),
            MessageBlock::Image(ImageBlock { data: "e".to_owned(), mime_type: "image/png".to_owned() }),
        ];
        let mut partial = PartialMessage::new(AssistantReply::default(), Millis(1));
        for (index, block) in content.iter().enumerate() {
            apply_change(&mut partial, &LiveKind::PartStarted { index, part: LivePartKind::Text });
            apply_change(&mut partial, &LiveKind::PartEnded { index, block: Arc::new(block.clone()) });
        }
        let whole = AssistantReply { content, ..AssistantReply::default() };
        let whole = convert::to_wire(&StoredMessage::Assistant(whole), Millis(1));
        assert_eq!(partial.to_wire(), RawJson::from_wire(&whole));
    }

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
