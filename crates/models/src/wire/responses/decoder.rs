//! Reads the stream of Responses. Its end is `response.completed` or `response.incomplete`, or `[DONE]` where a server
//! sends neither.

use std::{borrow::Cow, vec::Drain};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::items::{ItemAssembler, ItemKind};
use crate::{
    FinishReason, ModelEvent, ModelFailure, ModelUsage,
    failure::{AnswerEnding, in_stream, known_ending, read_ending},
    wire::{
        AnswerDecoder, AnswerProgress, cut_call, lenient, malformed_stream,
        object_only::ObjectOnly,
        parse_json, says_something, unfinished_stream,
        unplaced::{ContentRule, find_unplaced, find_unplaced_in},
        unreadable_content,
    },
};

#[derive(Default)]
pub(crate) struct ResponsesDecoder {
    items: ItemAssembler,
}

/// Any event of the stream: `type` says which fields it has.
#[derive(Deserialize)]
struct ResponsesFrame<'a> {
    r#type: String,
    #[serde(default, deserialize_with = "lenient::index")]
    output_index: Option<u64>,
    item_id: Option<String>,
    #[serde(default, deserialize_with = "lenient::index")]
    content_index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::index")]
    summary_index: Option<u64>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    delta: Option<Value>,
    arguments: Option<String>,
    name: Option<String>,
    text: Option<Value>,
    refusal: Option<String>,
    part: Option<OutputContent>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// The most frequent event: more text, and nothing else that matters. With any other member it is of another form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "fields that only have to fit")]
struct TextFrame<'a> {
    r#type: &'a str,
    sequence_number: Option<u64>,
    output_index: Option<u64>,
    item_id: Option<&'a str>,
    content_index: Option<u64>,
    #[serde(borrow)]
    delta: Cow<'a, str>,
    logprobs: Option<[(); 0]>,
    obfuscation: Option<&'a str>,
}

#[derive(Deserialize)]
struct ResponseObject<'a> {
    id: Option<String>,
    status: Option<String>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    incomplete_details: Option<IncompleteDetails>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<ResponsesUsage>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    output_text: Option<String>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct ResponsesUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::object")]
    input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    #[serde(default, deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
}

/// One item of the output.
#[derive(Deserialize)]
pub(super) struct OutputItem {
    pub(super) r#type: String,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) content: Option<Vec<OutputContent>>,
    pub(super) summary: Option<Vec<OutputContent>>,
    pub(super) encrypted_content: Option<String>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct OutputContent {
    r#type: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl OutputItem {
    /// Reports whether its reasoning came with data that only the provider can read.
    pub(super) fn is_sealed(&self) -> bool {
        self.encrypted_content.as_ref().is_some_and(|sealed| !sealed.is_empty())
    }
}

impl OutputContent {
    fn is_thinking(&self) -> bool {
        matches!(self.r#type.as_deref(), Some("reasoning_text" | "summary_text"))
    }

    /// Refuses content that is read nowhere: that of another type, and that next to a text.
    pub(super) fn check_readable(&self) -> Result<(), ModelFailure> {
        let kinds = ["output_text", "text", "refusal", "reasoning_text", "summary_text"];
        let kind = self.r#type.as_deref().unwrap_or("text");
        let is_known = kinds.contains(&kind) || self.content_text().is_some();
        let stray = match is_known {
            true => find_unplaced(&self.rest, ContentRule::Content),
            false => self.rest.iter().find(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str()),
        };
        stray.map_or(Ok(()), |name| Err(unreadable_content(&format!("content of type {kind:?} with {name}"))))
    }

    pub(super) fn content_text(&self) -> Option<String> {
        let texts = [&self.text, &self.refusal].into_iter().flatten().map(String::as_str);
        Some(texts.collect::<String>()).filter(|text| !text.is_empty())
    }
}

impl AnswerDecoder for ResponsesDecoder {
    fn decode_event(&mut self, data: &str) -> Result<AnswerProgress, ModelFailure> {
        if data.trim() == "[DONE]" {
            if !self.items.has_whole_calls() {
                return Err(cut_call());
            }
            self.items.finish_answer(&[], None, FinishReason::Stop)?;
            return Ok(AnswerProgress::Ended);
        }
        let frame: ResponsesFrame<'_> = parse_json(data)?;
        let response = frame.response.map(|raw| parse_json::<ResponseObject<'_>>(raw.get())).transpose()?;
        let place = (frame.output_index, frame.item_id.as_deref());
        let delta = frame.delta.as_ref().and_then(Value::as_str).unwrap_or_default();
        // The addition of a delta that is no text is not known, and must not be missing.
        let is_lost = frame.delta.as_ref().is_some_and(|delta| !delta.is_null() && !delta.is_string());
        frame.part.as_ref().map_or(Ok(()), OutputContent::check_readable)?;
        let whole = [frame.text.as_ref().and_then(Value::as_str), frame.refusal.as_deref(), frame.arguments.as_deref()];
        let has_whole = whole.into_iter().flatten().any(|text| !text.is_empty());
        match frame.r#type.as_str() {
            // Text in another member than that of a delta would be left out.
            kind if kind.ends_with(".delta") && has_whole && delta.is_empty() => {
                return Err(malformed_stream(&format!("an event of type {kind:?} without its delta")));
            }
            kind @ ("response.output_text.delta"
            | "response.refusal.delta"
            | "response.function_call_arguments.delta")
                if is_lost =>
            {
                return Err(unreadable_content(&format!("a delta of {kind:?} that is not text")));
            }
            "response.created" | "response.in_progress" => {
                self.items.begin_answer(response.and_then(|response| response.id));
            }
            "response.output_item.added" => {
                if let Some(raw) = frame.item {
                    self.items.start_item(frame.output_index, &parse_json(raw.get())?, raw)?;
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.items.add_delta(ItemKind::Text, place, frame.content_index.unwrap_or(0), delta)?;
            }
            "response.reasoning_text.delta"
            | "response.reasoning_summary_text.delta"
            | "response.reasoning.delta"
            | "response.reasoning_summary.delta" => self.items.add_delta(ItemKind::Thinking, place, 0, delta)?,
            "response.function_call_arguments.delta" => self.items.add_arguments(place, delta),
            "response.reasoning_summary_part.added" if frame.summary_index.unwrap_or(0) > 0 => {
                self.items.add_delta(ItemKind::Thinking, place, 0, "\n\n")?;
            }
            "response.function_call_arguments.done" => {
                self.items.whole_arguments(place, frame.name, &frame.arguments.unwrap_or_default())?;
            }
            "response.output_text.done" | "response.refusal.done" => {
                let whole = frame.text.as_ref().and_then(Value::as_str).or(frame.refusal.as_deref());
                self.items.whole_text(place, frame.content_index.unwrap_or(0), whole.unwrap_or_default())?;
            }
            "response.content_part.added" | "response.content_part.done" if !self.items.is_thinking(place) => {
                let part = frame.part.as_ref().filter(|part| !part.is_thinking());
                let whole = part.and_then(OutputContent::content_text).unwrap_or_default();
                self.items.whole_text(place, frame.content_index.unwrap_or(0), &whole)?;
            }
            "response.output_item.done" => {
                if let Some(raw) = frame.item {
                    self.items.finish_item(frame.output_index, raw)?;
                }
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.check_response(frame.response, response.as_ref())?;
                return self.finish_answer(response, frame.r#type == "response.incomplete");
            }
            "response.failed" | "response.cancelled" => {
                let error = response.and_then(|response| response.error);
                return Err(in_stream(error.map_or("the response failed", RawValue::get)));
            }
            "error" => return Err(in_stream(data)),
            // Thinking is repeated whole.
            "response.reasoning_text.done"
            | "response.reasoning_summary_text.done"
            | "response.reasoning.done"
            | "response.reasoning_summary.done" => {}
            // Other events hold no content: an answer with a delta that is not read is not whole.
            other if !delta.is_empty() || has_whole => {
                return Err(unreadable_content(&format!("an event of type {other:?}")));
            }
            _ => {}
        }
        Ok(AnswerProgress::Open)
    }

    fn decode_text(&mut self, data: &str) -> bool {
        let Some(frame) = read_text(data) else { return false };
        let place = (frame.output_index, frame.item_id);
        // Text that has no place is refused without anything being read, and that reading says why.
        self.items.add_delta(ItemKind::Text, place, frame.content_index.unwrap_or(0), &frame.delta).is_ok()
    }

    fn finish_stream(&mut self) -> Result<(), ModelFailure> {
        Err(unfinished_stream())
    }

    fn take_events(&mut self) -> Drain<'_, ModelEvent> {
        self.items.take_events()
    }

    fn held_bytes(&self) -> usize {
        self.items.held_bytes()
    }

    fn known_members(&self) -> &'static [&'static str] {
        &EVENT
    }
}

/// Returns an event that holds more of a text and nothing else that matters. `None` for any other.
fn read_text(data: &str) -> Option<TextFrame<'_>> {
    let ObjectOnly(frame): ObjectOnly<TextFrame<'_>> = serde_json::from_str(data).ok()?;
    (frame.r#type == "response.output_text.delta").then_some(frame)
}

/// Members of events that are read.
const EVENT: [&str; 9] = ["type", "response", "item", "delta", "arguments", "name", "text", "refusal", "part"];

/// Members of a response that are read, or that repeat the request.
const RESPONSE: [&str; 7] = ["output", "output_text", "error", "text", "instructions", "input", "prompt"];

impl ResponsesDecoder {
    /// Refuses content of a whole response that no item of it holds.
    fn check_response(
        &self,
        raw: Option<&RawValue>,
        response: Option<&ResponseObject<'_>>,
    ) -> Result<(), ModelFailure> {
        let (Some(raw), Some(response)) = (raw, response) else { return Ok(()) };
        if let Some(name) = find_unplaced_in(raw, &RESPONSE, ContentRule::NamedText)? {
            return Err(unreadable_content(&format!("a response with {name}")));
        }
        // Some servers repeat the texts of all items.
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let whole = dense(response.output_text.as_deref().unwrap_or_default());
        if dense(&self.items.all_text()).contains(&whole) {
            return Ok(());
        }
        let output = response.output.iter().flatten().map(|raw| parse_json::<OutputItem>(raw.get()));
        let output = output.collect::<Result<Vec<_>, _>>()?;
        let texts = output.iter().flat_map(|item| &item.content).flatten().filter_map(OutputContent::content_text);
        if dense(&texts.collect::<String>()).contains(&whole) {
            return Ok(());
        }
        Err(unreadable_content("a response with output_text"))
    }

    fn finish_answer(
        &mut self,
        response: Option<ResponseObject<'_>>,
        incomplete: bool,
    ) -> Result<AnswerProgress, ModelFailure> {
        let Some(response) = response else {
            self.items.finish_answer(&[], None, if incomplete { FinishReason::Length } else { FinishReason::Stop })?;
            return Ok(AnswerProgress::Ended);
        };
        if let Some(error) =
            response.error.filter(|error| serde_json::from_str(error.get()).is_ok_and(|error| says_something(&error)))
        {
            return Err(in_stream(error.get()));
        }
        let reason = response.incomplete_details.and_then(|details| details.reason).filter(|reason| !reason.is_empty());
        let incomplete = match response.status.as_deref().filter(|status| !status.is_empty()) {
            Some("incomplete") => true,
            // Not every server keeps the status up to date that it began with.
            None | Some("in_progress" | "queued") => incomplete || reason.is_some(),
            Some(status) => match read_ending(status, reason.as_deref()) {
                AnswerEnding::Failed(failure) => return Err(failure),
                AnswerEnding::Stopped(stop) => incomplete || stop == FinishReason::Length || reason.is_some(),
            },
        };
        let stop = match reason.as_deref().map(|reason| (reason, known_ending(reason, None))) {
            Some((_, Some(AnswerEnding::Failed(failure)))) => return Err(failure),
            // An early end of an answer that is no limit is the provider's failure, in its own word.
            Some((reason, Some(AnswerEnding::Stopped(FinishReason::Stop | FinishReason::ToolUse)) | None)) => {
                return Err(match read_ending("error", Some(reason)) {
                    AnswerEnding::Failed(failure) => failure,
                    AnswerEnding::Stopped(_) => unfinished_stream(),
                });
            }
            Some((_, Some(AnswerEnding::Stopped(FinishReason::Length)))) => FinishReason::Length,
            None if incomplete => FinishReason::Length,
            None => FinishReason::Stop,
        };
        let usage = response.usage.map(|tokens| {
            let cache_read = tokens.input_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0);
            ModelUsage {
                input: tokens.input_tokens.unwrap_or(0).saturating_sub(cache_read),
                output: tokens.output_tokens.unwrap_or(0),
                cache_read,
                cache_write: 0,
            }
        });
        self.items.finish_answer(&response.output.unwrap_or_default(), usage, stop)?;
        Ok(AnswerProgress::Ended)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::read_text;

    #[test]
    fn an_event_with_anything_but_text_is_of_another_form() {
        let event = json!({
            "type": "response.output_text.delta", "sequence_number": 4, "item_id": "m", "output_index": 1,
            "content_index": 2, "delta": "two \"words\"", "logprobs": [], "obfuscation": "x",
        });
        let text = event.to_string();
        let read = read_text(&text).unwrap();
        assert_eq!((read.output_index, read.item_id, read.content_index), (Some(1), Some("m"), Some(2)));
        assert_eq!(read.delta, "two \"words\"");
        for (name, value) in [
            ("type", json!("response.output_text.done")),
            ("type", json!("response.reasoning_text.delta")),
            ("output_index", json!("1")),
            ("delta", json!(["more"])),
            ("delta", Value::Null),
            ("logprobs", json!([{"token": "more"}])),
            ("text", json!("more")),
            ("error", json!({"message": "down"})),
        ] {
            let mut other = event.clone();
            other[name] = value;
            assert!(read_text(&other.to_string()).is_none(), "{other}");
        }
        assert!(read_text(&json!([event["type"], 4, 1, "m", 2, "more", [], "x"]).to_string()).is_none());
    }
}
