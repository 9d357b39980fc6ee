//! `/v1/messages` of Anthropic.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{ModelReply, ModelRequest, OfferedTool, TOOL_SEARCH, items, text_of};

pub(super) fn decode(body: &Value) -> ModelRequest {
    let mut request = ModelRequest::default();
    let mut searches = HashSet::new();
    for message in items(&body["messages"]) {
        let is_user = message["role"] == "user";
        if let Some(text) = message["content"].as_str().filter(|_| is_user) {
            request.texts.push(text.to_owned());
        }
        for block in items(&message["content"]) {
            match block["type"].as_str() {
                Some("text") if is_user => request.texts.push(text_of(&block["text"])),
                Some("tool_use") if block["name"] == TOOL_SEARCH => {
                    searches.insert(block["id"].to_string());
                }
                Some("tool_result") if !searches.contains(&block["tool_use_id"].to_string()) => {
                    request.results.push(text_of(&block["content"]));
                }
                _ => {}
            }
        }
    }
    request.tools = items(&body["tools"]).filter_map(|tool| OfferedTool::new(&tool["name"], None)).collect();
    request.is_searched = !searches.is_empty();
    request
}

pub(super) fn encode(reply: &ModelReply) -> Vec<Value> {
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let (blocks, stop) = match reply {
        ModelReply::Text(text) => {
            let block = json!({ "type": "text", "text": "" });
            (vec![(block, json!({ "type": "text_delta", "text": text }))], "end_turn")
        }
        ModelReply::Calls(calls) => {
            let blocks = calls.iter().map(|call| {
                let block = json!({ "type": "tool_use", "id": call.id, "name": call.tool.name, "input": {} });
                (block, json!({ "type": "input_json_delta", "partial_json": call.arguments.to_string() }))
            });
            (blocks.collect(), "tool_use")
        }
    };
    let start = json!({ "type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    } });
    let blocks = blocks.into_iter().enumerate().flat_map(|(index, (block, delta))| {
        [
            json!({ "type": "content_block_start", "index": index, "content_block": block }),
            json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            json!({ "type": "content_block_stop", "index": index }),
        ]
    });
    let end = [
        json!({ "type": "message_delta", "delta": { "stop_reason": stop, "stop_sequence": null }, "usage": usage }),
        json!({ "type": "message_stop" }),
    ];
    [start].into_iter().chain(blocks).chain(end).collect()
}
