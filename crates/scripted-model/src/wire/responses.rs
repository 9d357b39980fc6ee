//! `/v1/responses` of OpenAI.

use serde_json::{Value, json};

use super::{ModelCall, ModelReply, ModelRequest, OfferedTool, items, text_of};

pub(super) fn decode(body: &Value) -> ModelRequest {
    let mut request = ModelRequest::default();
    for item in items(&body["input"]) {
        if item["role"] == "user" {
            request.texts.push(text_of(&item["content"]));
        }
        if item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output")) {
            request.results.push(text_of(&item["output"]));
        }
    }
    for tool in items(&body["tools"]) {
        match tool["type"].as_str() {
            Some("namespace") => {
                let of_group =
                    items(&tool["tools"]).filter_map(|one| OfferedTool::new(&one["name"], Some(&tool["name"])));
                request.tools.extend(of_group);
            }
            _ => request.tools.extend(OfferedTool::new(&tool["name"], None)),
        }
    }
    request
}

pub(super) fn encode(reply: &ModelReply) -> Vec<Value> {
    let items: Vec<Value> = match reply {
        ModelReply::Text(text) => vec![json!({
            "type": "message", "id": "msg_1", "role": "assistant",
            "content": [{ "type": "output_text", "text": text }],
        })],
        ModelReply::Calls(calls) => calls.iter().enumerate().map(|(index, call)| call_item(index, call)).collect(),
    };
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": null, "output_tokens": 1, "output_tokens_details": null,
        "total_tokens": 2,
    });
    let created = json!({ "type": "response.created", "response": { "id": "resp_1" } });
    let completed =
        json!({ "type": "response.completed", "response": { "id": "resp_1", "output": items, "usage": usage } });
    let events = items.iter().enumerate().flat_map(|(index, item)| {
        ["response.output_item.added", "response.output_item.done"]
            .map(|kind| json!({ "type": kind, "output_index": index, "item": item }))
    });
    [created].into_iter().chain(events).chain([completed]).collect()
}

fn call_item(index: usize, call: &ModelCall) -> Value {
    let arguments = call.arguments.to_string();
    let mut item = json!({
        "type": "function_call", "id": format!("fc_{}", index + 1), "call_id": call.id, "name": call.tool.name,
        "arguments": arguments,
    });
    if let Some(namespace) = &call.tool.namespace {
        item["namespace"] = namespace.as_str().into();
    }
    item
}
