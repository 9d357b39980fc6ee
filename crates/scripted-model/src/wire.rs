//! Forms in which programs ask a model: the four wires of providers, read into one request and written from one reply.
//!
//! Only the parts that a script needs are read. Source: the requests of the pinned programs.

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::Value;

use crate::http::HttpReply;

/// Tool of Claude Code that loads the definitions of further tools.
pub(crate) const TOOL_SEARCH: &str = "ToolSearch";

/// Wire of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// `/v1/messages` of Anthropic.
    Messages,
    /// `/v1/responses` of OpenAI.
    Responses,
    /// `/v1/chat/completions` of OpenAI.
    Chat,
    /// `:generateContent` of Google, in one piece.
    Gemini,
    /// `:streamGenerateContent` of Google.
    GeminiStream,
}

/// Tool that a program offers to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfferedTool {
    pub(crate) name: String,
    /// Group of its MCP server, in the wire of OpenAI's responses.
    pub(crate) namespace: Option<String>,
}

/// Request to the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelRequest {
    /// Texts of the user, in order.
    pub(crate) texts: Vec<String>,
    pub(crate) tools: Vec<OfferedTool>,
    /// Texts of the results of tools, in order, without those of [`TOOL_SEARCH`].
    pub(crate) results: Vec<String>,
    /// True if the model has called [`TOOL_SEARCH`].
    pub(crate) is_searched: bool,
}

/// Call of a tool by the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelCall {
    pub(crate) id: String,
    pub(crate) tool: OfferedTool,
    pub(crate) arguments: Value,
}

/// Reply of the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelReply {
    Text(String),
    /// At least one call.
    Calls(Vec<ModelCall>),
}

impl Wire {
    /// Returns the wire of a path, if a model answers it.
    pub(crate) fn for_path(path: &str) -> Option<Self> {
        [
            ("/messages", Self::Messages),
            ("/responses", Self::Responses),
            ("/chat/completions", Self::Chat),
            (":generateContent", Self::Gemini),
            (":streamGenerateContent", Self::GeminiStream),
        ]
        .into_iter()
        .find_map(|(end, wire)| path.ends_with(end).then_some(wire))
    }

    /// Decodes a request. A part that is missing is empty: the programs send side requests of several forms.
    pub(crate) fn decode(self, body: &Value) -> ModelRequest {
        match self {
            Self::Messages => messages::decode(body),
            Self::Responses => responses::decode(body),
            Self::Chat => chat::decode(body),
            Self::Gemini | Self::GeminiStream => gemini::decode(body),
        }
    }

    /// Encodes a reply, as a stream of events where the wire has one.
    pub(crate) fn encode(self, reply: &ModelReply) -> HttpReply {
        match self {
            Self::Messages => named_events(&messages::encode(reply)),
            Self::Responses => named_events(&responses::encode(reply)),
            Self::Chat => events(chat::encode(reply).iter().map(Value::to_string).chain(["[DONE]".to_owned()])),
            Self::Gemini => HttpReply::json(200, &gemini::encode(reply)),
            Self::GeminiStream => events([gemini::encode(reply).to_string()]),
        }
    }
}

/// Encodes events whose name is their `type`.
fn named_events(all: &[Value]) -> HttpReply {
    let text = all.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("")));
    stream(text.collect())
}

fn events(all: impl IntoIterator<Item = String>) -> HttpReply {
    stream(all.into_iter().map(|data| format!("data: {data}\n\n")).collect())
}

fn stream(text: String) -> HttpReply {
    HttpReply { status: 200, content_type: "text/event-stream", body: text.into_bytes() }
}

/// Returns the elements of a list, or nothing.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns all texts of a content: a text, or blocks of texts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<String> =
                blocks.iter().filter_map(|block| block["text"].as_str()).map(str::to_owned).collect();
            texts.join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl OfferedTool {
    fn new(name: &Value, namespace: Option<&Value>) -> Option<Self> {
        let namespace = namespace.and_then(Value::as_str).map(str::to_owned);
        Some(Self { name: name.as_str()?.to_owned(), namespace })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ModelCall, ModelReply, ModelRequest, OfferedTool, Wire};

    fn request(tools: &[(&str, Option<&str>)]) -> ModelRequest {
        let tools = tools
            .iter()
            .map(|(name, namespace)| OfferedTool { name: (*name).to_owned(), namespace: namespace.map(str::to_owned) });
        ModelRequest {
            texts: vec!["run script-1".to_owned()],
            tools: tools.collect(),
            results: vec!["done".to_owned()],
            is_searched: false,
        }
    }

    #[test]
    fn each_wire_has_texts_tools_and_results() {
        for (path, body, want) in [
            (
                "/v1/messages",
                json!({
                    "messages": [
                        { "role": "user", "content": "run script-1" },
                        { "role": "system", "content": "notes" },
                        { "role": "assistant", "content": [{ "type": "tool_use", "id": "b", "name": "t", "input": {} }] },
                        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "b", "content": [{ "type": "text", "text": "done" }] }] },
                    ],
                    "tools": [{ "name": "t" }],
                }),
                request(&[("t", None)]),
            ),
            (
                "/v1/responses",
                json!({
                    "input": [
                        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "run script-1" }] },
                        { "type": "function_call", "call_id": "b", "name": "t" },
                        { "type": "function_call_output", "call_id": "b", "output": "done" },
                    ],
                    "tools": [{ "type": "namespace", "name": "mcp__s", "tools": [{ "name": "t" }] }, { "type": "function", "name": "u" }],
                }),
                request(&[("t", Some("mcp__s")), ("u", None)]),
            ),
            (
                "/v1/chat/completions",
                json!({
                    "messages": [
                        { "role": "user", "content": "run script-1" },
                        { "role": "assistant", "tool_calls": [{ "id": "b" }] },
                        { "role": "tool", "tool_call_id": "b", "content": "done" },
                    ],
                    "tools": [{ "type": "function", "function": { "name": "t" } }],
                }),
                request(&[("t", None)]),
            ),
            (
                "/v1beta/models/m:streamGenerateContent",
                json!({
                    "contents": [
                        { "role": "user", "parts": [{ "text": "run script-1" }] },
                        { "role": "model", "parts": [{ "functionCall": { "name": "t" } }] },
                        { "role": "user", "parts": [{ "functionResponse": { "name": "t", "response": { "output": "done" } } }] },
                    ],
                    "tools": [{ "functionDeclarations": [{ "name": "t" }] }],
                }),
                ModelRequest { results: vec![r#"{"output":"done"}"#.to_owned()], ..request(&[("t", None)]) },
            ),
        ] {
            assert_eq!(Wire::for_path(path).unwrap().decode(&body), want, "{path}");
        }
        assert_eq!(Wire::for_path("/v1/messages/count_tokens"), None);
        assert_eq!(Wire::Messages.decode(&Value::Null), ModelRequest::default());
    }

    #[test]
    fn a_search_for_tools_is_no_result() {
        let body = json!({ "messages": [
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "ToolSearch", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "found" }] },
        ] });
        assert_eq!(Wire::Messages.decode(&body), ModelRequest { is_searched: true, ..ModelRequest::default() });
    }

    #[test]
    fn each_wire_carries_calls_and_a_text() {
        let call = |id: &str, thing| ModelCall {
            id: id.to_owned(),
            tool: OfferedTool { name: "look".to_owned(), namespace: Some("mcp__s".to_owned()) },
            arguments: json!({ "thing": thing }),
        };
        let calls = ModelReply::Calls(vec![call("call-1", "door"), call("call-2", "lamp")]);
        let text = ModelReply::Text("finished".to_owned());
        for wire in [Wire::Messages, Wire::Responses, Wire::Chat, Wire::Gemini, Wire::GeminiStream] {
            let encoded = |reply| String::from_utf8(wire.encode(reply).body).unwrap();
            let (calls, text) = (encoded(&calls), encoded(&text));
            let is_whole = ["look", "door", "lamp"].iter().all(|part| calls.contains(part));
            assert!(is_whole && !calls.contains("finished"), "{wire:?}: {calls}");
            assert!(text.contains("finished") && !text.contains("look"), "{wire:?}: {text}");
            assert_eq!(text.starts_with('{'), wire == Wire::Gemini, "{wire:?}");
        }
    }
}
