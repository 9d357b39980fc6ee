//! `/v1/chat/completions` of OpenAI.

use serde_json::{Value, json};

use super::{ModelReply, ModelRequest, OfferedTool, items, text_of};

pub(super) fn decode(body: &Value) -> ModelRequest {
    let mut request = ModelRequest::default();
    for message in items(&body["messages"]) {
        match message["role"].as_str() {
            Some("user") => request.texts.push(text_of(&message["content"])),
            Some("tool") => request.results.push(text_of(&message["content"])),
            _ => {}
        }
    }
    request.tools =
        items(&body["tools"]).filter_map(|tool| OfferedTool::new(&tool["function"]["name"], None)).collect();
    request
}

pub(super) fn encode(reply: &ModelReply) -> Vec<Value> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({
            "id": "chatcmpl_1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        })
    };
    let (delta, finish) = match reply {
        ModelReply::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        ModelReply::Calls(calls) => {
            let calls = calls.iter().enumerate().map(|(index, call)| {
                let function = json!({ "name": call.tool.name, "arguments": call.arguments.to_string() });
                json!({ "index": index, "id": call.id, "type": "function", "function": function })
            });
            (json!({ "role": "assistant", "tool_calls": calls.collect::<Vec<_>>() }), "tool_calls")
        }
    };
    vec![chunk(delta, None), chunk(json!({}), Some(finish))]
}
