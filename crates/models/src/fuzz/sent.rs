//! Bytes that a server sent, read without a decoder: each piece of text and of a call must be in the answer.
//!
//! It must not share code with the decoders, whose mistakes it looks for.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use sse_stream::SseByteStream;

use crate::{MessagePart, ModelApi, ModelEvent, ModelFailure};

/// A piece of the sent bytes.
#[derive(Debug)]
enum SentPiece {
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
pub(super) fn check_sent(api: ModelApi, bytes: &[u8], items: &[Result<ModelEvent, ModelFailure>]) {
    let mut answer = DecodedAnswer::default();
    for item in items {
        match item {
            Ok(ModelEvent::PartEnd { part: MessagePart::Text { text, .. }, .. }) => answer.texts.push(text),
            Ok(ModelEvent::PartEnd { part: MessagePart::Thinking { text, .. }, .. }) => answer.thoughts.push(text),
            Ok(ModelEvent::PartEnd { part: MessagePart::ToolCall { name, arguments, .. }, .. }) => {
                answer.calls.push((name, arguments));
            }
            Ok(_) | Err(_) => {}
        }
    }
    for piece in sent_pieces(api, bytes) {
        assert!(answer.contains_piece(&piece), "{api}: {piece:?} was sent and is not in the answer {answer:?}");
    }
}

#[derive(Debug, Default)]
struct DecodedAnswer<'a> {
    texts: Vec<&'a str>,
    thoughts: Vec<&'a str>,
    calls: Vec<(&'a str, &'a str)>,
}

impl DecodedAnswer<'_> {
    fn contains_piece(&self, piece: &SentPiece) -> bool {
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        match piece {
            // A text that is repeated whole may have lost the space around it.
            SentPiece::Text(text) => self.texts.concat().contains(text.trim()),
            SentPiece::Thought(text) => self.thoughts.concat().contains(text.trim()),
            SentPiece::Name(name) => self.calls.iter().any(|(called, _)| called == name),
            SentPiece::Arguments(piece) => self.calls.iter().any(|(_, arguments)| {
                arguments.contains(piece) || json(piece).is_some_and(|piece| json(arguments) == Some(piece))
            }),
        }
    }
}

/// Returns the pieces of the events up to the one that ends the answer.
fn sent_pieces(api: ModelApi, bytes: &[u8]) -> Vec<SentPiece> {
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
            ModelApi::AnthropicMessages => read_anthropic(&event, &mut pieces),
            ModelApi::OpenaiCompletions => read_completions(&event, &mut pieces),
            ModelApi::OpenaiResponses => read_responses(&event, &mut pieces),
            ModelApi::GoogleGenerativeAi => read_google(&event, &mut pieces),
            ModelApi::Demo => true,
        };
        if is_last {
            break;
        }
    }
    pieces
}

fn push_text(pieces: &mut Vec<SentPiece>, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        pieces.push(SentPiece::Text(text.to_owned()));
    }
}

fn push_name(pieces: &mut Vec<SentPiece>, value: &Value) {
    if let Some(name) = value.as_str().filter(|name| !name.is_empty()) {
        pieces.push(SentPiece::Name(name.to_owned()));
    }
}

fn push_arguments(pieces: &mut Vec<SentPiece>, value: &Value) {
    match value {
        Value::String(text) if !text.trim().is_empty() => pieces.push(SentPiece::Arguments(text.clone())),
        _ => push_object(pieces, value),
    }
}

fn push_object(pieces: &mut Vec<SentPiece>, value: &Value) {
    if value.as_object().is_some_and(|members| !members.is_empty()) {
        pieces.push(SentPiece::Arguments(value.to_string()));
    }
}

fn array_items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Texts whose names say that they are content, and prose, in members that no wire has, at any depth below `value`.
fn push_strays(pieces: &mut Vec<SentPiece>, value: &Value) {
    const NAMES: [&str; 5] = ["output_text", "transcript", "answer", "inputText", "tool_input"];
    const ARGUMENTS: [&str; 3] = ["args", "input", "arguments"];
    match value {
        Value::Array(items) => items.iter().for_each(|item| push_strays(pieces, item)),
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !ARGUMENTS.contains(&name.as_str())) {
                let is_prose = name == "stray" && value.as_str().is_some_and(|text| text.contains(' '));
                if is_prose || NAMES.contains(&name.as_str()) {
                    push_text(pieces, value);
                }
                push_strays(pieces, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn read_completions(event: &Value, pieces: &mut Vec<SentPiece>) -> bool {
    for choice in array_items(&event["choices"]) {
        push_strays(pieces, &choice["delta"]);
        push_strays(pieces, &choice["message"]);
        for delta in [&choice["delta"], &choice["message"]] {
            push_text(pieces, &delta["content"]);
            array_items(&delta["content"])
                .chain(array_items(&delta["content_list"]))
                .for_each(|part| push_content_part(pieces, part));
            push_text(pieces, &delta["text"]);
            push_text(pieces, &delta["refusal"]);
            for function in
                array_items(&delta["tool_calls"]).map(|call| &call["function"]).chain([&delta["function_call"]])
            {
                push_name(pieces, &function["name"]);
                push_arguments(pieces, &function["arguments"]);
            }
        }
        push_text(pieces, &choice["text"]);
    }
    false
}

/// Adds the pieces of a part of the content of Chat Completions.
fn push_content_part(pieces: &mut Vec<SentPiece>, part: &Value) {
    let kind = part["type"].as_str().unwrap_or_default();
    match part["text"].as_str().filter(|text| !text.is_empty()) {
        Some(thought) if kind.contains("thinking") || kind == "reasoning" => {
            pieces.push(SentPiece::Thought(thought.to_owned()));
        }
        _ => push_text(pieces, &part["text"]),
    }
    push_text(pieces, &part["refusal"]);
    let call = if part["tool_use"].is_object() { &part["tool_use"] } else { part };
    if kind == "tool_use" || call["tool_use_id"].is_string() {
        push_name(pieces, &call["name"]);
    }
    if kind.is_empty() || kind == "tool_use" {
        push_arguments(pieces, &call["input"]);
    }
}

fn read_anthropic(event: &Value, pieces: &mut Vec<SentPiece>) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    if kind == "content_block_start" {
        let block = &event["content_block"];
        push_strays(pieces, block);
        push_text(pieces, &block["text"]);
        if let Some(thought) = block["thinking"].as_str().filter(|text| !text.is_empty()) {
            pieces.push(SentPiece::Thought(thought.to_owned()));
        }
        if block["type"].as_str().is_some_and(|kind| kind.ends_with("tool_use")) {
            push_name(pieces, &block["name"]);
            push_object(pieces, &block["input"]);
        }
    } else if kind == "content_block_delta" {
        push_strays(pieces, event);
        push_text(pieces, &event["delta"]["text"]);
        push_arguments(pieces, &event["delta"]["partial_json"]);
        if let Some(thought) = event["delta"]["thinking"].as_str().filter(|text| !text.is_empty()) {
            pieces.push(SentPiece::Thought(thought.to_owned()));
        }
    }
    kind == "message_stop"
}

fn read_responses(event: &Value, pieces: &mut Vec<SentPiece>) -> bool {
    let kind = event["type"].as_str().unwrap_or_default();
    push_strays(pieces, &event["part"]);
    match kind {
        "response.output_text.delta" | "response.refusal.delta" => push_text(pieces, &event["delta"]),
        "response.output_text.done" => push_text(pieces, &event["text"]),
        "response.refusal.done" => push_text(pieces, &event["refusal"]),
        "response.function_call_arguments.delta" => push_arguments(pieces, &event["delta"]),
        "response.function_call_arguments.done" => push_arguments(pieces, &event["arguments"]),
        "response.output_item.done" => push_item(pieces, &event["item"]),
        "response.completed" | "response.incomplete" | "response.done" => {
            array_items(&event["response"]["output"]).for_each(|output| push_item(pieces, output));
            return true;
        }
        _ => {}
    }
    false
}

fn push_item(pieces: &mut Vec<SentPiece>, item: &Value) {
    push_strays(pieces, item);
    match item["type"].as_str() {
        Some("message") => {
            for content in array_items(&item["content"]) {
                push_text(pieces, &content["text"]);
                push_text(pieces, &content["refusal"]);
            }
        }
        Some(kind) if kind.ends_with("_call") => {
            push_name(pieces, &item["name"]);
            push_arguments(pieces, &item["arguments"]);
        }
        Some(_) | None => {}
    }
}

fn read_google(event: &Value, pieces: &mut Vec<SentPiece>) -> bool {
    for part in array_items(&event["candidates"]).flat_map(|candidate| array_items(&candidate["content"]["parts"])) {
        push_strays(pieces, part);
        if part["thought"] != true {
            push_text(pieces, &part["text"]);
        }
        push_name(pieces, &part["functionCall"]["name"]);
        push_object(pieces, &part["functionCall"]["args"]);
    }
    false
}
