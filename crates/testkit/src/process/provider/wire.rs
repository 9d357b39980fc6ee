//! The two wires of the scripted provider, and the meaning of their requests.

use serde_json::{Value, json};

use super::{ProviderReply, ReplyPart};

/// Wire of a request to the provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProviderWire {
    OpenAi,
    Anthropic,
}

/// Writes one reply as a stream of events.
pub(super) struct ReplyEncoder<'a> {
    wire: ProviderWire,
    reply: &'a ProviderReply,
    blocks: usize,
    calls: usize,
}

impl<'a> ReplyEncoder<'a> {
    pub(super) const fn new(wire: ProviderWire, reply: &'a ProviderReply) -> Self {
        Self { wire, reply, blocks: 0, calls: 0 }
    }

    pub(super) fn start_events(&self) -> String {
        let (input, _, cached) = self.reply.usage;
        match self.wire {
            ProviderWire::OpenAi => openai_chunk(&json!({ "role": "assistant", "content": "" }), None),
            ProviderWire::Anthropic => sse_event(&json!({ "type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "content": [],
                "usage": { "input_tokens": input - cached, "output_tokens": 1, "cache_read_input_tokens": cached },
            }})),
        }
    }

    pub(super) fn part_events(&mut self, part: &ReplyPart) -> String {
        match self.wire {
            ProviderWire::OpenAi => self.openai_part(part),
            ProviderWire::Anthropic => self.anthropic_part(part),
        }
    }

    pub(super) fn error_event(&self, message: &str) -> String {
        match self.wire {
            ProviderWire::OpenAi => sse_event(&json!({ "error": { "message": message, "type": "server_error" } })),
            ProviderWire::Anthropic => {
                sse_event(&json!({ "type": "error", "error": { "type": "overloaded_error", "message": message } }))
            }
        }
    }

    pub(super) fn end_events(&self) -> String {
        let (input, output, cached) = self.reply.usage;
        match self.wire {
            ProviderWire::OpenAi => {
                let stop = self.reply.stop.unwrap_or(if self.calls > 0 { "tool_calls" } else { "stop" });
                let usage = json!({ "id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": {
                    "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
                    "prompt_tokens_details": { "cached_tokens": cached },
                }});
                format!("{}{}data: [DONE]\n\n", openai_chunk(&json!({}), Some(stop)), sse_event(&usage))
            }
            ProviderWire::Anthropic => {
                let stop = self.reply.stop.unwrap_or(if self.calls > 0 { "tool_use" } else { "end_turn" });
                let delta = json!({ "type": "message_delta", "delta": { "stop_reason": stop }, "usage": { "output_tokens": output } });
                sse_event(&delta) + &sse_event(&json!({ "type": "message_stop" }))
            }
        }
    }

    fn openai_part(&mut self, part: &ReplyPart) -> String {
        match part {
            ReplyPart::Text(deltas) => {
                deltas.iter().map(|delta| openai_chunk(&json!({ "content": delta }), None)).collect()
            }
            ReplyPart::Think(deltas) => {
                deltas.iter().map(|delta| openai_chunk(&json!({ "reasoning_content": delta }), None)).collect()
            }
            ReplyPart::Call { id, name, arguments } => {
                let index = self.calls;
                self.calls += 1;
                let begin = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
                let pieces = split_arguments(arguments)
                    .map(|piece| json!({ "index": index, "function": { "arguments": piece } }));
                std::iter::once(begin)
                    .chain(pieces)
                    .map(|call| openai_chunk(&json!({ "tool_calls": [call] }), None))
                    .collect()
            }
            _ => String::new(),
        }
    }

    fn anthropic_part(&mut self, part: &ReplyPart) -> String {
        let index = self.blocks;
        self.blocks += 1;
        let (block, deltas): (Value, Vec<Value>) = match part {
            ReplyPart::Text(deltas) => (
                json!({ "type": "text", "text": "" }),
                deltas.iter().map(|delta| json!({ "type": "text_delta", "text": delta })).collect(),
            ),
            ReplyPart::Think(deltas) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                deltas
                    .iter()
                    .map(|delta| json!({ "type": "thinking_delta", "thinking": delta }))
                    .chain([json!({ "type": "signature_delta", "signature": "c2lnbmVk" })])
                    .collect(),
            ),
            ReplyPart::Call { id, name, arguments } => {
                self.calls += 1;
                (
                    json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
                    split_arguments(arguments)
                        .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }))
                        .collect(),
                )
            }
            _ => return String::new(),
        };
        let mut text = sse_event(&json!({ "type": "content_block_start", "index": index, "content_block": block }));
        for delta in deltas {
            text += &sse_event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        text + &sse_event(&json!({ "type": "content_block_stop", "index": index }))
    }
}

fn split_arguments(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let size = 7.max(characters.len() / 2000);
    characters.chunks(size).map(|piece| piece.iter().collect()).collect::<Vec<String>>().into_iter()
}

fn openai_chunk(delta: &Value, finish: Option<&str>) -> String {
    sse_event(&json!({
        "id": "c1", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    }))
}

fn sse_event(value: &Value) -> String {
    match value["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {value}\n\n"),
        None => format!("data: {value}\n\n"),
    }
}

fn content_blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the results in `messages`: the id of the call, and the text.
pub(super) fn tool_results(messages: &[Value]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            found.push((message["tool_call_id"].as_str().unwrap().to_owned(), flat_text(&message["content"])));
        }
        for block in content_blocks(message).iter().filter(|block| block["type"] == "tool_result") {
            found.push((block["tool_use_id"].as_str().unwrap().to_owned(), flat_text(&block["content"])));
        }
    }
    found
}

/// Reports whether a real provider would take these messages: no call without its result before the next message, no result
/// without its call.
pub(super) fn is_paired(messages: &[Value]) -> bool {
    let mut owed: Vec<String> = Vec::new();
    for message in messages {
        let given = tool_results(std::slice::from_ref(message));
        for (id, _) in &given {
            match owed.iter().position(|call| call == id) {
                Some(at) => drop(owed.remove(at)),
                None => return false,
            }
        }
        if given.is_empty() && !owed.is_empty() {
            return false;
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let uses = content_blocks(message).iter().filter(|block| block["type"] == "tool_use");
        owed.extend(calls.chain(uses).map(|call| call["id"].as_str().unwrap().to_owned()));
    }
    owed.is_empty()
}

fn flat_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}
