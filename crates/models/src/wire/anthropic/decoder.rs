//! Reads Anthropic's stream. Its end is the reason in `message_delta`, after which `message_stop` comes.

use std::{borrow::Cow, collections::BTreeMap, vec::Drain};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::is_given;
use crate::{
    FailureKind, FinishReason, ModelEvent, ModelFailure, ModelUsage, PartKind,
    failure::{AnswerEnding, in_stream, read_ending},
    wire::{
        AnswerDecoder, AnswerProgress, cut_call, is_same_json, lenient, malformed_stream,
        object_only::ObjectOnly,
        parse_json,
        parts::PartAssembler,
        text_envelope::TextEnvelope,
        unfinished_stream,
        unplaced::{ContentRule, find_unplaced, find_unplaced_in},
        unreadable_content,
    },
};

#[derive(Default)]
pub(crate) struct AnthropicDecoder {
    parts: PartAssembler,
    /// Parts by the wire's index of their block.
    blocks: BTreeMap<u64, usize>,
    /// The input that came whole with the start of a call, for endpoints that send no deltas.
    whole: BTreeMap<usize, String>,
    usage: ModelUsage,
    stop: Option<String>,
    /// The provider's sentence about the reason.
    why: Option<String>,
    /// Around the texts of the block with this index.
    envelope: TextEnvelope<u64>,
}

/// Any event of the stream: `type` says which fields it has.
#[derive(Deserialize)]
struct AnthropicFrame<'a> {
    r#type: String,
    #[serde(default, deserialize_with = "lenient::index")]
    index: Option<u64>,
    message: Option<MessageStart>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    delta: Option<AnthropicDelta>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
struct MessageStart {
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage: Option<AnthropicUsage>,
    /// Empty: the blocks come later.
    content: Option<Value>,
}

#[derive(Deserialize)]
struct AnthropicBlock<'a> {
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
struct AnthropicDelta {
    r#type: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct StopDetails {
    explanation: Option<String>,
}

/// The most frequent event: more text, and nothing else. With any other member it is of another form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextFrame<'a> {
    r#type: &'a str,
    index: u64,
    #[serde(borrow)]
    delta: ObjectOnly<TextDelta<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextDelta<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// Counts from the beginning of the answer. Absent and null leave the earlier value.
#[derive(Deserialize)]
struct AnthropicUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cache_creation_input_tokens: Option<u64>,
}

impl AnswerDecoder for AnthropicDecoder {
    fn decode_event(&mut self, data: &str) -> Result<AnswerProgress, ModelFailure> {
        // Not Anthropic's own end: gateways that speak several wires put it after every stream.
        if data.trim() == "[DONE]" {
            return self.finish_whole();
        }
        let frame: AnthropicFrame<'_> = parse_json(data)?;
        // Other events hold no content: an answer with a delta that is not read is not whole.
        if frame.r#type != "content_block_delta" && frame.delta.as_ref().is_some_and(AnthropicDelta::has_content) {
            return Err(unreadable_content(&format!("content in an event of type {:?}", frame.r#type)));
        }
        match frame.r#type.as_str() {
            "message_start" => {
                let message = frame.message.unwrap_or(MessageStart { id: None, usage: None, content: None });
                let is_empty = |content: &Value| matches!(content, Value::Null) || *content == Value::Array(Vec::new());
                if message.content.is_some_and(|content| !is_empty(&content)) {
                    return Err(unreadable_content("content in an event of type \"message_start\""));
                }
                self.parts.begin_answer(message.id);
                self.update_usage(message.usage);
            }
            "content_block_start" => {
                if let Some(block) = frame.content_block {
                    self.start_block(frame.index.unwrap_or(0), block)?;
                }
            }
            "content_block_delta" => {
                match (
                    frame.delta,
                    find_unplaced_in(parse_json(data)?, &["type", "index", "delta"], ContentRule::Content)?,
                ) {
                    (_, Some(name)) => return Err(unreadable_content(&format!("an event with {name}"))),
                    (Some(delta), None) => self.apply_delta(frame.index.unwrap_or(0), delta)?,
                    (None, None) => {}
                }
            }
            "content_block_stop" => {
                if let Some(index) = self.blocks.remove(&frame.index.unwrap_or(0)) {
                    self.close_part(index)?;
                }
            }
            "message_delta" => {
                self.update_usage(frame.usage);
                let delta = frame.delta.unwrap_or_default();
                self.stop = delta.stop_reason.filter(|reason| !reason.is_empty()).or_else(|| self.stop.take());
                self.why = delta.stop_details.and_then(|details| details.explanation).or_else(|| self.why.take());
            }
            "message_stop" => return self.finish_answer(),
            "error" => return Err(in_stream(data)),
            _ => {}
        }
        Ok(if self.stop.is_some() { AnswerProgress::Whole } else { AnswerProgress::Open })
    }

    fn decode_text(&mut self, data: &str) -> bool {
        let (text, at) = match self.envelope.open_event(data) {
            Some(opened) => opened,
            None => {
                let Some((text, at)) = read_text(data) else { return false };
                self.envelope.learn_event(data, &text, at);
                (text, at)
            }
        };
        let Some(&index) = self.blocks.get(&at) else { return false };
        if self.stop.is_some() || self.parts.part_kind(index) != Some(&PartKind::Text) {
            return false;
        }
        self.parts.push_delta(index, &text);
        true
    }

    fn finish_stream(&mut self) -> Result<(), ModelFailure> {
        if self.stop.is_none() {
            return Err(unfinished_stream());
        }
        self.finish_whole().map(drop)
    }

    fn take_events(&mut self) -> Drain<'_, ModelEvent> {
        self.parts.take_events()
    }

    fn held_bytes(&self) -> usize {
        self.parts.held_bytes() + self.whole.values().map(String::len).sum::<usize>()
    }

    fn known_members(&self) -> &'static [&'static str] {
        &EVENT
    }
}

impl AnthropicDelta {
    fn has_content(&self) -> bool {
        [&self.text, &self.thinking, &self.partial_json].into_iter().flatten().any(|text| !text.is_empty())
    }

    /// Reports whether it is of a kind that adds to a block, or only says where a text comes from.
    fn is_known(&self) -> bool {
        let kinds = ["text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"];
        self.r#type.as_deref().is_none_or(|kind| kinds.contains(&kind))
    }
}

/// Returns the text of an event that holds more of a text block and nothing else, and the index of the block. `None` for any other.
fn read_text(data: &str) -> Option<(Cow<'_, str>, u64)> {
    let ObjectOnly(frame): ObjectOnly<TextFrame<'_>> = serde_json::from_str(data).ok()?;
    let TextFrame { r#type, index, delta: ObjectOnly(delta) } = frame;
    (r#type == "content_block_delta" && delta.r#type == "text_delta").then_some((delta.text, index))
}

/// Members of events that are read.
const EVENT: [&str; 6] = ["type", "index", "message", "content_block", "delta", "usage"];

/// Members of a block that are read.
const MEMBERS: [&str; 8] = ["type", "text", "thinking", "signature", "data", "id", "name", "input"];

/// Refuses text, thinking, sealed data and input in a block of another type.
fn check_block_fits(kind: &PartKind, texts: [&Option<String>; 3], has_input: bool) -> Result<(), ModelFailure> {
    let [has_text, has_thinking, has_data] = texts.map(|text| text.as_ref().is_some_and(|text| !text.is_empty()));
    let fits = match kind {
        PartKind::Text => !(has_thinking || has_data || has_input),
        PartKind::Thinking => !(has_text || has_data || has_input),
        PartKind::Redacted => !(has_text || has_thinking || has_input),
        PartKind::ToolCall { .. } => !(has_text || has_thinking || has_data),
    };
    if fits { Ok(()) } else { Err(malformed_stream("content in a block of another type")) }
}

impl AnthropicDecoder {
    fn start_block(&mut self, at: u64, raw: &RawValue) -> Result<(), ModelFailure> {
        let block: AnthropicBlock<'_> = parse_json(raw.get())?;
        let kind = match block.r#type.as_str() {
            "text" => PartKind::Text,
            "thinking" => PartKind::Thinking,
            "redacted_thinking" => PartKind::Redacted,
            "tool_use" => PartKind::ToolCall { id: block.id.unwrap_or_default(), name: block.name.unwrap_or_default() },
            other => return Err(unreadable_content(&format!("a block of type {other:?}"))),
        };
        let input = block.input.filter(|input| !matches!(input.get(), "{}" | "null" | "\"\""));
        check_block_fits(&kind, [&block.text, &block.thinking, &block.data], input.is_some())?;
        if let Some(name) = find_unplaced_in(raw, &MEMBERS, ContentRule::Content)? {
            return Err(unreadable_content(&format!("a block with {name}")));
        }
        if let Some(left) = self.blocks.remove(&at) {
            self.close_part(left)?;
        }
        let index = self.parts.start_part(kind);
        for text in [&block.text, &block.thinking, &block.data].into_iter().flatten() {
            self.parts.push_delta(index, text);
        }
        self.parts.add_signature(index, block.signature.as_deref().unwrap_or_default());
        if matches!(self.parts.part_kind(index), Some(PartKind::Text | PartKind::ToolCall { .. })) {
            let mut given: Map<String, Value> = parse_json(raw.get())?;
            given.retain(|name, value| !value.is_null() && is_given(name));
            if !given.is_empty() {
                self.parts.add_signature(index, &Value::from(given).to_string());
            }
        }
        if let Some(input) = input {
            let text = serde_json::from_str(input.get()).unwrap_or_else(|_| input.get().to_owned());
            self.whole.insert(index, text);
        }
        self.blocks.insert(at, index);
        Ok(())
    }

    /// Closes a part, with the input that came with its start if no delta brought any. Thinking that came without a
    /// signature is whole all the same: not everyone who speaks this wire signs.
    fn close_part(&mut self, index: usize) -> Result<(), ModelFailure> {
        if let Some(input) = self.whole.remove(&index) {
            match self.parts.part_text(index) {
                Some("") => self.parts.push_delta(index, &input),
                Some(text) if !is_same_json(text, &input) => {
                    return Err(malformed_stream("the input of a call does not match its deltas"));
                }
                Some(_) | None => {}
            }
        }
        if self.parts.part_kind(index) == Some(&PartKind::Thinking) {
            self.parts.leave_unsigned(index);
        }
        self.parts.end_part(index);
        Ok(())
    }

    fn close_all(&mut self) -> Result<(), ModelFailure> {
        for index in std::mem::take(&mut self.blocks).into_values() {
            self.close_part(index)?;
        }
        Ok(())
    }

    fn apply_delta(&mut self, at: u64, delta: AnthropicDelta) -> Result<(), ModelFailure> {
        let Some(index) = self.blocks.get(&at).copied() else {
            let message = "content of a block that was not started (terminated)";
            return Err(ModelFailure::new(FailureKind::Broken, message));
        };
        if !delta.is_known() {
            return Err(unreadable_content(&format!("a delta of type {:?}", delta.r#type.unwrap_or_default())));
        }
        let kind = self.parts.part_kind(index).unwrap_or(&PartKind::Redacted);
        let has_input = delta.partial_json.as_ref().is_some_and(|text| !text.is_empty());
        check_block_fits(kind, [&delta.text, &delta.thinking, &None], has_input)?;
        if let Some(name) = find_unplaced(&delta.rest, ContentRule::Content) {
            return Err(unreadable_content(&format!("a delta with {name}")));
        }
        for text in [&delta.text, &delta.thinking, &delta.partial_json].into_iter().flatten() {
            self.parts.push_delta(index, text);
        }
        self.parts.add_signature(index, delta.signature.as_deref().unwrap_or_default());
        Ok(())
    }

    fn update_usage(&mut self, tokens: Option<AnthropicUsage>) {
        let Some(tokens) = tokens else { return };
        let ModelUsage { input, output, cache_read, cache_write } = self.usage;
        self.usage = ModelUsage {
            input: tokens.input_tokens.unwrap_or(input),
            output: tokens.output_tokens.unwrap_or(output),
            cache_read: tokens.cache_read_input_tokens.unwrap_or(cache_read),
            cache_write: tokens.cache_creation_input_tokens.unwrap_or(cache_write),
        };
        self.parts.report_usage(self.usage);
    }

    /// Ends an answer without `message_stop`, if its calls are whole.
    fn finish_whole(&mut self) -> Result<AnswerProgress, ModelFailure> {
        self.close_all()?;
        // Without a reason nothing says that a call without input has none.
        if !self.parts.has_whole_calls() || (self.stop.is_none() && self.parts.has_blank_calls()) {
            return Err(cut_call());
        }
        self.finish_answer()
    }

    fn finish_answer(&mut self) -> Result<AnswerProgress, ModelFailure> {
        self.close_all()?;
        let stop = match self.stop.as_deref().map(|reason| read_ending(reason, self.why.as_deref())) {
            Some(AnswerEnding::Failed(failure)) => return Err(failure),
            Some(AnswerEnding::Stopped(stop)) => stop,
            None => FinishReason::Stop,
        };
        self.parts.stop_answer(stop, None)?;
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
            "type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "two \"words\""},
        });
        assert_eq!(read_text(&event.to_string()), Some(("two \"words\"".into(), 2)));
        for (place, value) in [
            ("/type", json!("content_block_stop")),
            ("/index", json!("2")),
            ("/error", json!({"message": "down"})),
            ("/text", json!("more")),
            ("/delta", json!(["text_delta", "more"])),
            ("/delta", Value::Null),
            ("/delta/type", json!("thinking_delta")),
            ("/delta/text", Value::Null),
            ("/delta/thinking", json!("thought")),
            ("/delta/partial_json", json!("{}")),
        ] {
            let mut other = event.clone();
            match other.pointer_mut(place) {
                Some(found) => *found = value,
                None => {
                    let (parent, name) = place.rsplit_once('/').unwrap();
                    other.pointer_mut(parent).unwrap()[name] = value;
                }
            }
            assert_eq!(read_text(&other.to_string()), None, "{other}");
        }
        assert_eq!(read_text(r#"["content_block_delta",2,{"type":"text_delta","text":"more"}]"#), None);
    }
}
