//! Requests, to the letter.

mod anthropic;
mod completions;
mod every_wire;
mod given_back;
mod google;
mod responses;

use countersign_models::{
    AnswerMessage, InputModality, LanguageModel, MessagePart, ModelApi, ModelRequest, ProviderClient, RequestMessage,
    ThinkingLevel, ThinkingParameter, ThinkingSupport,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::{
    entry,
    http::{ReplyServer, reply},
    request,
};

/// Returns the body that a provider gets for `request`.
async fn sent(change: impl FnOnce(&mut ModelRequest), api: ModelApi) -> Value {
    let server = ReplyServer::start(vec![reply("400 Bad Request", "application/json", r#"{"error":"enough"}"#)]).await;
    let mut request = request(entry(api, &server.url));
    change(&mut request);
    ProviderClient::default().stream(request).collect::<Vec<_>>().await;
    serde_json::from_str(&server.requests()[0].body).unwrap()
}

fn assistant_message(api: ModelApi, parts: Vec<MessagePart>) -> RequestMessage {
    RequestMessage::Assistant(AnswerMessage {
        parts,
        api,
        provider: "local".to_owned(),
        model: "small-1".to_owned(),
        payload: None,
    })
}

fn call(id: &str, arguments: &str) -> MessagePart {
    let (id, arguments) = (id.to_owned(), arguments.to_owned());
    MessagePart::ToolCall { id, name: "read".to_owned(), arguments, signature: Some("sig".to_owned()) }
}

fn result(id: &str, parts: Vec<MessagePart>, is_error: bool) -> RequestMessage {
    RequestMessage::ToolResult { id: id.to_owned(), name: "read".to_owned(), parts, is_error }
}

fn image() -> MessagePart {
    MessagePart::Image { mime_type: "image/png".to_owned(), data: "aW1n".to_owned() }
}

/// Returns a conversation with everything in it: an image, thinking, two calls (one with broken arguments), results out of
/// order with a prompt between them, an image in a result, a developer's word.
fn conversation(api: ModelApi) -> Vec<RequestMessage> {
    let signature = match api {
        ModelApi::OpenaiResponses => r#"{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"ZW5j"}"#,
        ModelApi::AnthropicMessages | ModelApi::OpenaiCompletions | ModelApi::GoogleGenerativeAi | ModelApi::Demo => {
            "c2ln"
        }
    };
    vec![
        RequestMessage::User(vec![MessagePart::text("look"), image()]),
        assistant_message(
            api,
            vec![
                MessagePart::Thinking { text: "Hm".to_owned(), signature: Some(signature.to_owned()) },
                MessagePart::text("I read."),
                call("a:1", r#"{"path":"x"}"#),
                call("b", "{broken"),
            ],
        ),
        result("b", vec![], true),
        RequestMessage::User(vec![MessagePart::text("hurry")]),
        result("a:1", vec![MessagePart::text("seen"), image()], false),
        RequestMessage::Developer(vec![MessagePart::text("go on")]),
    ]
}

fn thought(text: &str, signature: &str) -> MessagePart {
    MessagePart::Thinking { text: text.to_owned(), signature: Some(signature.to_owned()) }
}

fn signed(id: &str, signature: &str) -> MessagePart {
    let (id, name, arguments) = (id.to_owned(), "read".to_owned(), "{}".to_owned());
    MessagePart::ToolCall { id, name, arguments, signature: Some(signature.to_owned()) }
}

fn with_payload(message: RequestMessage, payload: &str) -> RequestMessage {
    match message {
        RequestMessage::Assistant(answer) => {
            RequestMessage::Assistant(AnswerMessage { payload: Some(payload.to_owned()), ..answer })
        }
        other => other,
    }
}

/// Returns the messages of the model in a request, without the members that are written from their parts.
fn given(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
    messages
        .map(|message| {
            let mut message = message.clone();
            let members = message.as_object_mut().unwrap();
            for name in ["role", "content"] {
                members.remove(name);
            }
            for call in members.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                let call = call.as_object_mut().unwrap();
                call.remove("type");
                if call["function"].as_object().unwrap().keys().eq(["name", "arguments"]) {
                    call.remove("function");
                }
            }
            message
        })
        .collect()
}
