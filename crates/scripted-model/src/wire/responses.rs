//! `/v1/responses` of OpenAI.

use serde_json::{Value, json};

use super::{ModelReply, ModelRequest, OfferedTool, items, text_of};

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
    let item = match reply {
        ModelReply::Text(text) => json!({
            "type": "message", "id": "msg_1", "role": "assistant",
            "content": [{ "type": "output_text", "text": text }],
        }),
        ModelReply::Call(call) => {
            let arguments = call.arguments.to_string();
            let mut item = json!({
                "type": "function_call", "id": "fc_1", "call_id": call.id, "name": call.tool.name, "arguments": arguments,
            });
            if let Some(namespace) = &call.tool.namespace {
                item["namespace"] = namespace.as_str().into();
            }
            item
        }
    };
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": null, "output_tokens": 1, "output_tokens_details": null,
        "total_tokens": 2,
    });
    vec![
        json!({ "type": "response.created", "response": { "id": "resp_1" } }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": { "id": "resp_1", "output": [item], "usage": usage } }),
    ]
}
