//! Reads the stream of Responses. Its end is `response.completed` or `response.incomplete`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Event, Failure, PartKind, Stop, Usage,
    failure::in_stream,
    wire::{Decode, Progress, parts::Parts, read, unfinished, withheld},
};

#[derive(Default)]
pub(crate) struct Decoder {
    parts: Parts,
    /// Parts by the wire's index of their item; `None` for items of a kind that is not read.
    items: BTreeMap<u64, Option<usize>>,
}

/// Any event of the stream: `type` says which fields it has.
#[derive(Deserialize)]
struct Frame<'a> {
    r#type: String,
    output_index: Option<u64>,
    summary_index: Option<u64>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    delta: Option<String>,
    arguments: Option<String>,
    text: Option<String>,
    response: Option<Response<'a>>,
}

#[derive(Deserialize)]
struct Response<'a> {
    id: Option<String>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    incomplete_details: Option<IncompleteDetails>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Item {
    r#type: String,
    id: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    content: Option<Vec<Content>>,
    summary: Option<Vec<Content>>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    text: Option<String>,
    refusal: Option<String>,
}

impl Decode for Decoder {
    fn event(&mut self, data: &str) -> Result<Progress, Failure> {
        if data.trim() == "[DONE]" {
            return Ok(Progress::Open);
        }
        let frame: Frame<'_> = read(data)?;
        match frame.r#type.as_str() {
            "response.created" | "response.in_progress" => {
                self.parts.begin(frame.response.and_then(|response| response.id));
            }
            "response.output_item.added" => {
                if let (Some(at), Some(raw)) = (frame.output_index, frame.item) {
                    self.start(at, &read(raw.get())?);
                }
            }
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.reasoning_text.delta"
            | "response.reasoning_summary_text.delta"
            | "response.function_call_arguments.delta" => {
                if let (Some(index), Some(text)) = (self.part(frame.output_index), frame.delta) {
                    self.parts.delta(index, &text);
                }
            }
            "response.reasoning_summary_part.added" if frame.summary_index.unwrap_or(0) > 0 => {
                if let Some(index) = self.part(frame.output_index) {
                    self.parts.delta(index, "\n\n");
                }
            }
            "response.function_call_arguments.done" => {
                if let (Some(index), Some(whole)) = (self.part(frame.output_index), frame.arguments) {
                    self.parts.complete(index, &whole);
                }
            }
            "response.output_text.done" => {
                // Only an answer that had no deltas is filled in: a message may hold several texts.
                if let (Some(index), Some(whole)) = (self.part(frame.output_index), frame.text)
                    && self.parts.text(index) == Some("")
                {
                    self.parts.delta(index, &whole);
                }
            }
            "response.output_item.done" => {
                if let (Some(at), Some(raw)) = (frame.output_index, frame.item) {
                    self.done(at, raw)?;
                }
            }
            "response.completed" | "response.incomplete" => {
                return self.finish(frame.response, frame.r#type == "response.incomplete");
            }
            "response.failed" => {
                let error = frame.response.and_then(|response| response.error);
                return Err(in_stream(error.map_or("the response failed", RawValue::get)));
            }
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
    fn part(&self, at: Option<u64>) -> Option<usize> {
        self.items.get(&at?).copied().flatten()
    }

    fn start(&mut self, at: u64, item: &Item) {
        let kind = match item.r#type.as_str() {
            "message" => Some(PartKind::Text),
            "reasoning" => Some(PartKind::Thinking),
            "function_call" => {
                let id = item.call_id.clone().or_else(|| item.id.clone()).unwrap_or_else(|| format!("call_{at}"));
                Some(PartKind::ToolCall { id, name: item.name.clone().unwrap_or_default() })
            }
            _ => None,
        };
        let index = kind.map(|kind| self.parts.start(kind));
        if let Some(left) = self.items.insert(at, index).flatten() {
            self.parts.end(left);
        }
    }

    /// Closes an item, filled up with what no delta brought. Reasoning is signed with the whole item: that is what
    /// OpenAI wants back.
    fn done(&mut self, at: u64, raw: &RawValue) -> Result<(), Failure> {
        let item: Item = read(raw.get())?;
        if !self.items.contains_key(&at) {
            self.start(at, &item);
        }
        let Some(index) = self.items.insert(at, None).flatten() else { return Ok(()) };
        let texts = |contents: &Option<Vec<Content>>, between: &str| {
            let text = |content: &Content| content.text.clone().or_else(|| content.refusal.clone());
            contents.iter().flatten().filter_map(text).collect::<Vec<_>>().join(between)
        };
        match item.r#type.as_str() {
            "reasoning" => {
                let summary = texts(&item.summary, "\n\n");
                let whole = if summary.is_empty() { texts(&item.content, "\n\n") } else { summary };
                self.parts.complete(index, &whole);
                if item.encrypted_content.is_some() {
                    self.parts.sign(index, raw.get());
                }
            }
            "function_call" => self.parts.complete(index, item.arguments.as_deref().unwrap_or_default()),
            _ => self.parts.complete(index, &texts(&item.content, "")),
        }
        self.parts.end(index);
        Ok(())
    }

    fn finish(&mut self, response: Option<Response<'_>>, incomplete: bool) -> Result<Progress, Failure> {
        let (details, tokens) = response.map_or((None, None), |response| (response.incomplete_details, response.usage));
        let reason = details.and_then(|details| details.reason).unwrap_or_default();
        if incomplete && reason == "content_filter" {
            return Err(withheld(&reason));
        }
        let usage = tokens.map(|tokens| {
            let cache_read = tokens.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0);
            Usage {
                input: tokens.input_tokens.unwrap_or(0).saturating_sub(cache_read),
                output: tokens.output_tokens.unwrap_or(0),
                cache_read,
                cache_write: 0,
            }
        });
        self.parts.finish(usage, if incomplete { Stop::Length } else { Stop::Stop });
        Ok(Progress::Ended)
    }
}
