//! `:generateContent` and `:streamGenerateContent` of Google.

use serde_json::{Value, json};

use super::{ModelReply, ModelRequest, OfferedTool, items, text_of};

pub(super) fn decode(body: &Value) -> ModelRequest {
    let mut request = ModelRequest::default();
    for content in items(&body["contents"]) {
        for part in items(&content["parts"]) {
            if let Some(response) = part.get("functionResponse") {
                request.results.push(response["response"].to_string());
            } else if content["role"] == "user" && part.get("text").is_some() {
                request.texts.push(text_of(&part["text"]));
            }
        }
    }
    let declared = items(&body["tools"]).flat_map(|group| items(&group["functionDeclarations"]));
    request.tools = declared.filter_map(|tool| OfferedTool::new(&tool["name"], None)).collect();
    request
}

pub(super) fn encode(reply: &ModelReply) -> Value {
    let parts: Vec<Value> = match reply {
        ModelReply::Text(text) => vec![json!({ "text": text })],
        ModelReply::Calls(calls) => calls
            .iter()
            .map(|call| json!({ "functionCall": { "name": call.tool.name, "args": call.arguments } }))
            .collect(),
    };
    json!({
        "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts }, "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
    })
}
