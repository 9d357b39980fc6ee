//! Reads the blocks of a message leniently, and tells those of which something is lost.
//!
//! It must not know which message a block is in.

use countersign_core::message::MessageBlock;
use countersign_protocol::{
    RawJson,
    omp::message::{AssistantBlock, OmpContent, OmpContentBlock},
};
use serde_json::{Map, Value};

/// Types of the blocks that we read. Those of any other type are of a newer program.
const READ: [&str; 5] = ["text", "thinking", "redactedThinking", "image", "toolCall"];

/// Brings a block into the form of [`MessageBlock`] as far as that is possible. False if it has none.
pub(super) fn complete_block(block: &mut Value) -> bool {
    complete_call(block);
    serde_json::from_value::<MessageBlock>(block.clone()).is_ok()
}

/// What is known of the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallArguments {
    /// All, or the block is no call.
    Known,
    /// Nothing: they are not there, or of a form that no tool takes.
    Lost,
}

/// Gives a call arguments that are an object: the one that their text says, or an empty one.
fn complete_call(block: &mut Value) -> CallArguments {
    if block.get("type").is_none_or(|kind| kind != "toolCall") {
        return CallArguments::Known;
    }
    let Some(call) = block.as_object_mut() else { return CallArguments::Known };
    let (arguments, known) = match call.get("arguments") {
        Some(Value::Object(_)) => return CallArguments::Known,
        Some(Value::String(text)) => match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(arguments) => (arguments, CallArguments::Known),
            Err(_) => (Map::new(), CallArguments::Lost),
        },
        Some(_) | None => (Map::new(), CallArguments::Lost),
    };
    call.insert("arguments".to_owned(), Value::Object(arguments));
    known
}

/// Reports whether something of a block is lost that is not of a newer program.
pub(super) fn is_damaged(block: &Value) -> bool {
    match block.get("type").and_then(Value::as_str) {
        Some(kind) if READ.contains(&kind) => {
            let mut block = block.clone();
            complete_call(&mut block) == CallArguments::Lost || !complete_block(&mut block)
        }
        Some(_) => false,
        None => true,
    }
}

fn is_damaged_text(block: &RawJson) -> bool {
    block.decode_as::<Value>().map_or(true, |block| is_damaged(&block))
}

/// Reports whether something of a content is lost.
pub(super) fn has_damage(content: &OmpContent) -> bool {
    match content {
        OmpContent::Text(_) => false,
        OmpContent::Blocks(blocks) => have_damage(blocks),
    }
}

/// Reports whether something of the blocks of a message is lost that no model wrote.
pub(super) fn have_damage(blocks: &[OmpContentBlock]) -> bool {
    blocks.iter().any(|block| matches!(block, OmpContentBlock::Other(block) if is_damaged_text(block)))
}

/// Reports whether something of the blocks of an answer is lost.
pub(super) fn answer_has_damage(blocks: &[AssistantBlock]) -> bool {
    blocks.iter().any(|block| match block {
        AssistantBlock::Text(_) | AssistantBlock::Thinking(_) | AssistantBlock::RedactedThinking(_) => false,
        AssistantBlock::ToolCall(call) if call.arguments.as_text().trim_start().starts_with('{') => false,
        AssistantBlock::ToolCall(call) => serde_json::to_value(call).map_or(true, |call| is_damaged(&call)),
        AssistantBlock::Other(block) => is_damaged_text(block),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{complete_block, is_damaged};

    #[test]
    fn a_block_is_damaged_unless_it_is_read_whole_or_of_another_type() {
        for (block, is_read, is_lost) in [
            (json!({ "type": "text", "text": "x" }), true, false),
            (json!({ "type": "text", "text": 7 }), false, true),
            (json!({ "type": "text" }), false, true),
            (json!({ "text": "x" }), false, true),
            (json!("x"), false, true),
            (json!(null), false, true),
            (json!(7), false, true),
            (json!({ "type": 7 }), false, true),
            (json!({ "type": "video", "x": 1 }), false, false),
            (json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }), true, false),
            (json!({ "type": "image" }), false, true),
            (json!({ "type": "thinking", "thinking": "hm" }), true, false),
            (json!({ "type": "redactedThinking" }), false, true),
            (json!({ "type": "toolCall", "id": "c", "name": "read", "arguments": {} }), true, false),
            (json!({ "type": "toolCall", "id": "c", "name": "read", "arguments": "{\"path\":\"a\"}" }), true, false),
            (json!({ "type": "toolCall", "id": "c", "name": "read", "arguments": "a" }), true, true),
            (json!({ "type": "toolCall", "id": "c", "name": "read", "arguments": [1] }), true, true),
            (json!({ "type": "toolCall", "id": "c", "name": "read" }), true, true),
            (json!({ "type": "toolCall", "id": 7, "name": "read", "arguments": {} }), false, true),
        ] {
            assert_eq!((complete_block(&mut block.clone()), is_damaged(&block)), (is_read, is_lost), "{block}");
        }
    }

    #[test]
    fn arguments_in_a_text_are_read_as_the_object() {
        let mut block = json!({ "type": "toolCall", "id": "c", "name": "read", "arguments": "{\"path\":\"a\"}" });
        assert!(complete_block(&mut block));
        assert_eq!(block["arguments"], json!({ "path": "a" }));
    }
}
