//! What a server sent, read without a decoder: each piece of text and of a call must be in the answer.
//!
//! It must not share code with the decoders, whose mistakes it looks for.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use sse_stream::SseByteStream;

use crate::{Api, Event, Failure, Part};

/// A piece of what was sent.
#[derive(Debug)]
enum Piece {
    /// Text of the answer.
    Text(String),
    /// Thinking.
    Thought(String),
    /// The name of a call.
    Name(String),
    /// Arguments of a call, or a piece of them.
    Arguments(String),
}

/// Checks an answer that ended well.
///
/// # Panics
/// If something that was sent is not in it.
pub(super) fn check(api: Api, bytes: &[u8], items: &[Result<Event, Failure>]) {
    let mut answer = Answer::default();
    for item in items {
        match item {
            Ok(Event::PartEnd { part: Part::Text { text, .. }, .. }) => answer.texts.push(text),
            Ok(Event::PartEnd { part: Part::Thinking { text, .. }, .. }) => answer.thoughts.push(text),
            Ok(Event::PartEnd { part: Part::ToolCall { name, arguments, .. }, .. }) => {
                answer.calls.push((name, arguments));
            }
            Ok(_) | Err(_) => {}
        }
    }
    for piece in sent(api, bytes) {
        assert!(answer.holds(&piece), "{api}: {piece:?} was sent and is not in the answer {answer:?}");
    }
}

#[derive(Debug, Default)]
struct Answer<'a> {
    texts: Vec<&'a str>,
    thoughts: Vec<&'a str>,
    calls: Vec<(&'a str, &'a str)>,
}

impl Answer<'_> {
    fn holds(&self, piece: &Piece) -> bool {
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        match piece {
            // A text that is said again whole may have lost the space around it.
            Piece::Text(text) => self.texts.concat().contains(text.trim()),
            Piece::Thought(text) => self.thoughts.concat().contains(text.trim()),
            Piece::Name(name) => self.calls.iter().any(|(called, _)| called == name),
            Piece::Arguments(piece) => self.calls.iter().any(|(_, arguments)| {
                arguments.contains(piece) || json(piece).is_some_and(|piece| json(arguments) == Some(piece))
            }),
        }
    }
}

/// The pieces of the events up to the one that ends the answer.
fn sent(api: Api, bytes: &[u8]) -> Vec<Piece> {
    let mut whole = bytes.to_vec();
    whole.extend_from_slice(b"\n\n");
    let bytes = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(whole))]);
    let frames = SseByteStream::new(bytes).collect::<Vec<_>>().now_or_never().unwrap_or_default();
    let mut pieces = Vec::new();
    for frame in frames.into_iter().map_while(Result::ok) {
        let data = frame.data.unwrap_or_default();
        if data.trim() == "[DONE]" {
            break;
        }
        let Ok(event) = serde_json::from_str::<Value>(&data) else { continue };
        let is_last = match api {
            Api::AnthropicMessages => anthropic(&event, &mut pieces),
            Api::OpenaiCompletions => completions(&event, &mut pieces),
            Api::OpenaiResponses => responses(&event, &mut pieces),
            Api::GoogleGenerativeAi => google(&event, &mut pieces),
            Api::Demo => true,
        };
        if is_last {
            break;
        }
    }
    pieces
}

fn text(pieces: &mut Vec<Piece>, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

fn name(pieces: &mut Vec<Piece>, value: &Value) {
    if let Some(name) = value.as_str().filter(|name| !name.is_empty()) {
        pieces.push(Piece::Name(name.to_owned()));
    }
}

fn arguments(pieces: &mut Vec<Piece>, value: &Value) {
    match value {
        Value::String(text) if !text.trim().is_empty() => pieces.push(Piece::Arguments(text.clone())),
        _ => object(pieces, value),
    }
}

fn object(pieces: &mut Vec<Piece>, value: &Value) {
    if value.as_object().is_some_and(|members| !members.is_empty()) {
        pieces.push(Piece::Arguments(value.to_string()));
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Texts whose names say that they are content, and prose, in members that no wire has, at any depth below `value`.
fn strays(pieces: &mut Vec<Piece>, value: &Value) {
    const NAMES: [&str; 5] = ["output_text", "transcript", "answer", "inputText", "tool_input"];
    const ARGUMENTS: [&str; 3] = ["args", "input", "arguments"];
    match value {
        Value::Array(items) => items.iter().for_each(|item| strays(pieces, item)),
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !ARGUMENTS.contains(&name.as_str())) {
                let is_prose = name == "stray" && value.as_str().is_some_and(|text| text.contains(' '));
                if is_prose || NAMES.contains(&name.as_str()) {
                    text(pieces, value);
                }
                strays(pieces, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn completions(event: &Value, pieces: &mut Vec<Piece>) -> bool {
    for choice in list(&event["choices"]) {
        strays(pieces, &choice["delta"]);
        strays(pieces, &choice["message"]);
        for delta in [&choice["delta"], &choice["message"]] {
            text(pieces, &delta["content"]);
            list(&delta["content"]).chain(list(&delta["content_list"])).for_each(|part| content(pieces, part));
            text(pieces, &delta["text"]);
            text(pieces, &delta["refusal"]);
            for function in list(&delta["tool_calls"]).map(|call| &call["function"]).chain([&delta["function_call"]]) {
                name(pieces, &function["name"]);
                arguments(pieces, &function["arguments"]);
            }
        }
        text(pieces, &choice["text"]);
    }
    false
}

/// A part of the content of Chat Completions.
fn content(pieces: &mut Vec<Piece>, part: &Value) {
    let kind = part["type"].as_str().unwrap_or_default();
    match part["text"].as_str().filter(|text| !text.is_empty()) {
        Some(thought) if kind.contains("thinking") || kind == "reasoning" => {
            pieces.push(Piece::Thought(thought.to_owned()));
        }
        _ => text(pieces, &part["text"]),
    }
    text(pieces, &part["refusal"]);
    let call = if part["tool_use"].is_object() { &part["tool_use"] } else { part };
    if kind == "tool_use" || call["tool_use_id"].is_string() {
        name(pieces, &call["name"]);
    }
    if kind.is_empty() || kind == "tool_use" {
        arguments(pieces, &call["input"]);
    }
}

fn anthropic(event: &Value, pieces: &mut Vec<Piece>) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    if kind == "content_block_start" {
        let block = &event["content_block"];
        strays(pieces, block);
        text(pieces, &block["text"]);
        if let Some(thought) = block["thinking"].as_str().filter(|text| !text.is_empty()) {
            pieces.push(Piece::Thought(thought.to_owned()));
        }
        if block["type"].as_str().is_some_and(|kind| kind.ends_with("tool_use")) {
            name(pieces, &block["name"]);
            object(pieces, &block["input"]);
        }
    } else if kind == "content_block_delta" {
        strays(pieces, event);
        text(pieces, &event["delta"]["text"]);
        arguments(pieces, &event["delta"]["partial_json"]);
        if let Some(thought) = event["delta"]["thinking"].as_str().filter(|text| !text.is_empty()) {
            pieces.push(Piece::Thought(thought.to_owned()));
        }
    }
    kind == "message_stop"
}

fn responses(event: &Value, pieces: &mut Vec<Piece>) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    strays(pieces, &event["part"]);
    match kind {
        "response.output_text.delta" | "response.refusal.delta" => text(pieces, &event["delta"]),
        "response.output_text.done" => text(pieces, &event["text"]),
        "response.refusal.done" => text(pieces, &event["refusal"]),
        "response.function_call_arguments.delta" => arguments(pieces, &event["delta"]),
        "response.function_call_arguments.done" => arguments(pieces, &event["arguments"]),
        "response.output_item.done" => item(pieces, &event["item"]),
        "response.completed" | "response.incomplete" | "response.done" => {
            list(&event["response"]["output"]).for_each(|output| item(pieces, output));
            return true;
        }
        _ => {}
    }
    false
}

fn item(pieces: &mut Vec<Piece>, item: &Value) {
    strays(pieces, item);
    match item["type"].as_str() {
        Some("message") => {
            for content in list(&item["content"]) {
                text(pieces, &content["text"]);
                text(pieces, &content["refusal"]);
            }
        }
        Some(kind) if kind.ends_with("_call") => {
            name(pieces, &item["name"]);
            arguments(pieces, &item["arguments"]);
        }
        Some(_) | None => {}
    }
}

fn google(event: &Value, pieces: &mut Vec<Piece>) -> bool {
    for part in list(&event["candidates"]).flat_map(|candidate| list(&candidate["content"]["parts"])) {
        strays(pieces, part);
        if part["thought"] != true {
            text(pieces, &part["text"]);
        }
        name(pieces, &part["functionCall"]["name"]);
        object(pieces, &part["functionCall"]["args"]);
    }
    false
}
