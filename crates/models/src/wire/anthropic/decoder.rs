//! Reads Anthropic's stream. Its end is `message_stop`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Event, Failure, FailureKind, PartKind, Stop, Usage,
    failure::in_stream,
    wire::{Decode, Progress, parts::Parts, read, unfinished, withheld},
};

#[derive(Default)]
pub(crate) struct Decoder {
    parts: Parts,
    /// Parts by the wire's index of their block; `None` for blocks of a kind that is not read.
    blocks: BTreeMap<u64, Option<usize>>,
    /// The input that came whole with the start of a call, for endpoints that send no deltas.
    whole: BTreeMap<usize, String>,
    usage: Usage,
    stop: Option<String>,
}

/// Any event of the stream: `type` says which fields it has.
#[derive(Deserialize)]
struct Frame<'a> {
    r#type: String,
    index: Option<u64>,
    message: Option<Message>,
    #[serde(borrow)]
    content_block: Option<ContentBlock<'a>>,
    delta: Option<Delta>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Message {
    id: Option<String>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct ContentBlock<'a> {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Delta {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

/// Counts from the beginning of the answer. Absent and null leave what was said before.
#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Decode for Decoder {
    fn event(&mut self, data: &str) -> Result<Progress, Failure> {
        if data.trim() == "[DONE]" {
            return Ok(Progress::Open);
        }
        let frame: Frame<'_> = read(data)?;
        match frame.r#type.as_str() {
            "message_start" => {
                let message = frame.message.unwrap_or(Message { id: None, usage: None });
                self.parts.begin(message.id);
                self.used(message.usage);
            }
            "content_block_start" => {
                if let (Some(at), Some(block)) = (frame.index, frame.content_block) {
                    self.start(at, block);
                }
            }
            "content_block_delta" => self.delta(frame.index, frame.delta.unwrap_or_default())?,
            "content_block_stop" => {
                if let Some(index) = frame.index.and_then(|at| self.blocks.remove(&at)).flatten() {
                    if let Some(input) = self.whole.remove(&index).filter(|_| self.parts.text(index) == Some("")) {
                        self.parts.delta(index, &input);
                    }
                    self.parts.end(index);
                }
            }
            "message_delta" => {
                self.used(frame.usage);
                self.stop = frame.delta.unwrap_or_default().stop_reason.or_else(|| self.stop.take());
            }
            "message_stop" => return self.finish(),
            "error" => return Err(in_stream(data)),
            _ => {}
        }
        Ok(Progress::Open)
    }

    fn end(&mut self) -> Result<(), Failure> {
        Err(unfinished())
    }

    fn take(&mut self) -> Vec<Event> {
        self.parts.take()
    }
}

impl Decoder {
    fn start(&mut self, at: u64, block: ContentBlock<'_>) {
        let kind = match block.r#type.as_str() {
            "text" => Some(PartKind::Text),
            "thinking" => Some(PartKind::Thinking),
            "redacted_thinking" => Some(PartKind::Redacted),
            "tool_use" => {
                let id = block.id.unwrap_or_else(|| format!("toolu_{at}"));
                Some(PartKind::ToolCall { id, name: block.name.unwrap_or_default() })
            }
            _ => None,
        };
        let index = kind.map(|kind| self.parts.start(kind));
        if let Some(index) = index {
            for text in [&block.text, &block.thinking, &block.data].into_iter().flatten() {
                self.parts.delta(index, text);
            }
            self.parts.sign(index, block.signature.as_deref().unwrap_or_default());
            if let Some(input) = block.input.filter(|input| input.get() != "{}" && input.get().starts_with('{')) {
                self.whole.insert(index, input.get().to_owned());
            }
        }
        if let Some(left) = self.blocks.insert(at, index).flatten() {
            self.parts.end(left);
        }
    }

    fn delta(&mut self, at: Option<u64>, delta: Delta) -> Result<(), Failure> {
        let index = match at.map(|at| self.blocks.get(&at)) {
            Some(Some(Some(index))) => *index,
            // A block of a kind that is not read.
            Some(Some(None)) => return Ok(()),
            Some(None) | None => {
                let message = "content of a block that was not started (terminated)";
                return Err(Failure::new(FailureKind::Broken, message));
            }
        };
        for text in [&delta.text, &delta.thinking, &delta.partial_json].into_iter().flatten() {
            self.parts.delta(index, text);
        }
        self.parts.sign(index, delta.signature.as_deref().unwrap_or_default());
        Ok(())
    }

    fn used(&mut self, tokens: Option<Tokens>) {
        let Some(tokens) = tokens else { return };
        let Usage { input, output, cache_read, cache_write } = self.usage;
        self.usage = Usage {
            input: tokens.input_tokens.unwrap_or(input),
            output: tokens.output_tokens.unwrap_or(output),
            cache_read: tokens.cache_read_input_tokens.unwrap_or(cache_read),
            cache_write: tokens.cache_creation_input_tokens.unwrap_or(cache_write),
        };
        self.parts.usage(self.usage);
    }

    fn finish(&mut self) -> Result<Progress, Failure> {
        match self.stop.as_deref() {
            Some("refusal") => return Err(withheld("refusal")),
            // "length" is what some say who speak both wires.
            Some("max_tokens" | "model_context_window_exceeded" | "length") => self.parts.stop(Stop::Length),
            Some(_) | None => self.parts.stop(Stop::Stop),
        }
        Ok(Progress::Ended)
    }
}
