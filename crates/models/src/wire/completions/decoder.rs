//! Reads the stream of Chat Completions. Its end is a `finish_reason`, or `[DONE]` if a server gives none; the
//! usage may follow the reason.

mod streamed_calls;
mod text_chunk;

use std::vec::Drain;

use serde_json::{Map, Value};

use super::{
    content,
    frame::{
        CompletionsChoice, CompletionsChunk, CompletionsDelta, ContentPart, DeltaContent, FunctionDelta, ToolCallDelta,
        read_usage,
    },
    provider_extensions,
};
use crate::{
    FinishReason, ModelEvent, ModelFailure, ModelUsage, PartKind,
    failure::{AnswerEnding, in_stream, known_ending, read_ending},
    wire::{
        AnswerDecoder, AnswerProgress, cut_call, is_same_json,
        kept_members::KeptMembers,
        malformed_stream, parse_json,
        parts::PartAssembler,
        says_something,
        text_envelope::TextEnvelope,
        unfinished_stream,
        unplaced::{ContentRule, check_placed, find_unplaced},
        unreadable_content,
    },
};
use streamed_calls::StreamedCall;
use text_chunk::read_text;

#[derive(Default)]
pub(crate) struct CompletionsDecoder {
    parts: PartAssembler,
    response: Option<String>,
    /// The part that text or thinking goes to.
    prose: Option<(ProseKind, usize)>,
    calls: Vec<StreamedCall>,
    finish: Option<String>,
    /// The reason in the words of a gateway's provider.
    native: Option<String>,
    usage: Option<ModelUsage>,
    /// Number of chunks that came.
    chunks: u64,
    /// All text so far, for servers that repeat it at the end.
    text: String,
    /// All thinking so far, for the same.
    thoughts: String,
    /// The part of the content that is open, if that is a thought.
    thought: KeptMembers,
    /// True if the provider ran tools itself, for which an answer may end too.
    ran_tools: bool,
    envelope: TextEnvelope<()>,
}

/// Members of a chunk that are read.
const EVENT: [&str; 8] = ["id", "object", "choices", "usage", "error", "text", "content", "output_text"];

#[derive(Clone, Copy, PartialEq)]
enum ProseKind {
    Text,
    /// With the name of the member in which it comes.
    Thinking(&'static str),
    /// Thinking that is a part of the content.
    Part,
}

impl AnswerDecoder for CompletionsDecoder {
    fn decode_event(&mut self, data: &str) -> Result<AnswerProgress, ModelFailure> {
        if data.trim() == "[DONE]" {
            // Some servers give no reason. Their word for the end counts, if their output is complete.
            if self.finish.is_none() {
                if !self.parts.has_whole_calls() || self.parts.has_blank_calls() {
                    return Err(cut_call());
                }
                self.finish = Some("stop".to_owned());
            }
            self.finish_stream()?;
            return Ok(AnswerProgress::Ended);
        }
        let chunk: CompletionsChunk = parse_json(data)?;
        self.chunks += 1;
        if chunk.error.as_ref().is_some_and(says_something) || chunk.object.as_deref() == Some("error") {
            return Err(in_stream(data));
        }
        if self.response.is_none() {
            self.response = chunk.id;
        }
        self.parts.begin_answer(self.response.clone());
        self.usage = chunk.usage.map(read_usage).or(self.usage);
        let beside = [("text", chunk.text), ("content", chunk.content), ("output_text", chunk.output_text)];
        for choice in chunk.choices.unwrap_or_default() {
            // The request has one choice.
            if choice.index.unwrap_or(0) == 0 {
                self.read_choice(choice, data)?;
            } else if choice.has_content() {
                return Err(unreadable_content("more than one choice"));
            }
        }
        beside.into_iter().try_for_each(|(name, value)| self.check_repeated(name, value.unwrap_or_default()))?;
        Ok(if self.finish.is_some() { AnswerProgress::Whole } else { AnswerProgress::Open })
    }

    fn decode_text(&mut self, data: &str) -> bool {
        if self.finish.is_some() || !matches!(self.prose, Some((ProseKind::Text, _))) {
            return false;
        }
        let text = match self.envelope.open_event(data) {
            Some((text, ())) => text,
            None => {
                let Some(text) = read_text(data) else { return false };
                self.envelope.learn_event(data, &text, ());
                text
            }
        };
        self.chunks += 1;
        self.push_prose(ProseKind::Text, &text);
        true
    }

    fn finish_stream(&mut self) -> Result<(), ModelFailure> {
        if self.finish.is_some() {
            self.close_prose();
            for at in 0..self.calls.len() {
                self.close_call(at);
            }
        }
        let Some(reason) = self.finish.as_deref() else { return Err(unfinished_stream()) };
        let native = self.native.as_deref();
        let stop = match read_ending(reason, native) {
            AnswerEnding::Failed(failure) => return Err(failure),
            AnswerEnding::Stopped(stop) => stop,
        };
        // A gateway may call an end regular that its provider calls a failure or the cap. Other words say nothing.
        let word = native.filter(|native| !native.eq_ignore_ascii_case(reason));
        let stop = match word.filter(|_| stop != FinishReason::Length).and_then(|word| known_ending(word, None)) {
            Some(AnswerEnding::Failed(failure)) => return Err(failure),
            Some(AnswerEnding::Stopped(FinishReason::Length)) => FinishReason::Length,
            Some(AnswerEnding::Stopped(FinishReason::Stop | FinishReason::ToolUse)) | None => stop,
        };
        let stop = if stop == FinishReason::ToolUse && self.ran_tools { FinishReason::Stop } else { stop };
        self.parts.finish_answer(self.usage, stop, word)
    }

    fn take_events(&mut self) -> Drain<'_, ModelEvent> {
        self.parts.take_events()
    }

    fn held_bytes(&self) -> usize {
        self.parts.held_bytes() + self.thought.size() + self.calls.iter().map(|call| call.kept.size()).sum::<usize>()
    }

    fn known_members(&self) -> &'static [&'static str] {
        &EVENT
    }
}

impl CompletionsDecoder {
    /// Refuses a text next to the choices, unless it repeats their text so far.
    fn check_repeated(&self, name: &str, value: Value) -> Result<(), ModelFailure> {
        let dense = |text: &str| text.split_whitespace().collect::<String>();
        let is_repeated = match &value {
            Value::String(text) => self.text.contains(text.trim()) || dense(&self.text).contains(&dense(text)),
            _ => find_unplaced(&Map::from_iter([(name.to_owned(), value)]), ContentRule::NamedText).is_none(),
        };
        if is_repeated { Ok(()) } else { Err(unreadable_content(&format!("an event with {name}"))) }
    }

    fn read_choice(&mut self, choice: CompletionsChoice, data: &str) -> Result<(), ModelFailure> {
        if let Some(error) = choice.error.filter(says_something) {
            return Err(in_stream(&error.to_string()));
        }
        self.usage = choice.usage.map(read_usage).or(self.usage);
        check_placed(&choice.rest, ContentRule::NamedText)?;
        let before = self.text.len();
        if let Some(delta) = choice.delta {
            self.read_delta(delta, data)?;
        }
        // Some servers say the same in both places.
        let text = choice.text.unwrap_or_default();
        match self.text.get(before..).unwrap_or_default() {
            "" => self.push_prose(ProseKind::Text, &text),
            delta_text if delta_text.contains(text.trim()) => {}
            _ => return Err(malformed_stream("the text of a choice does not match its delta")),
        }
        if let Some(message) = choice.message {
            self.read_message(*message, data)?;
        }
        if let Some(Value::String(word)) = choice.native_finish_reason {
            self.native = Some(word);
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !["", "null"].contains(&reason.as_str())) {
            self.finish = Some(reason);
            self.close_prose();
            for at in 0..self.calls.len() {
                self.close_call(at);
            }
            self.parts.end_all();
        }
        Ok(())
    }

    fn read_delta(&mut self, mut delta: CompletionsDelta, data: &str) -> Result<(), ModelFailure> {
        let has_others = !delta.rest.is_empty();
        content::place_content(&mut delta)?;
        if let Some((name, thought)) = provider_extensions::take_thought(&mut delta.rest) {
            self.push_prose(ProseKind::Thinking(name), &thought);
        }
        match delta.content {
            Some(DeltaContent::Text(text)) => self.push_prose(ProseKind::Text, &text),
            Some(DeltaContent::Parts(parts)) => self.read_parts(&parts)?,
            None => {}
        }
        self.push_prose(ProseKind::Text, delta.refusal.as_deref().unwrap_or_default());
        for call in delta.tool_calls.unwrap_or_default() {
            self.read_call(call, data)?;
        }
        if let Some(function) = delta.function_call {
            self.read_call(ToolCallDelta::from_function(function), data)?;
        }
        if !has_others {
            return Ok(());
        }
        if let Some(name) = provider_extensions::unreadable_member(&delta.rest) {
            return Err(unreadable_content(name));
        }
        self.ran_tools |= delta.rest.contains_key(provider_extensions::RAN_TOOLS);
        let rest = provider_extensions::with_answer(delta.rest);
        check_placed(&rest, ContentRule::Content)?;
        self.parts.keep_members(rest);
        Ok(())
    }

    /// Reads a whole answer: all of it if nothing came before, else the missing parts.
    fn read_message(&mut self, mut message: CompletionsDelta, data: &str) -> Result<(), ModelFailure> {
        content::place_content(&mut message)?;
        if let Some(name) = provider_extensions::unreadable_member(&message.rest) {
            return Err(unreadable_content(name));
        }
        let thought = provider_extensions::take_thought(&mut message.rest);
        let rest = provider_extensions::with_answer(std::mem::take(&mut message.rest));
        check_placed(&rest, ContentRule::Content)?;
        self.parts.keep_whole(rest);
        if let Some(DeltaContent::Parts(parts)) = &mut message.content {
            let known_thoughts = self.thoughts.clone();
            parts.retain(|part| {
                known_thoughts.is_empty()
                    || part.thought_text().is_none_or(|thought| !known_thoughts.contains(thought.trim()))
            });
        }
        if !self.parts.has_answer() && self.text.is_empty() {
            self.whole_thought(thought);
            return self.read_delta(message, data);
        }
        let mut thoughts = Vec::new();
        let mut whole = match message.content.take() {
            Some(DeltaContent::Text(text)) => text,
            Some(DeltaContent::Parts(parts)) => {
                parts.iter().try_for_each(content::check_part)?;
                let whole = parts.iter().flat_map(ContentPart::answer_texts).collect();
                let parts = parts.into_iter().filter(|part| part.thought_text().is_some());
                thoughts.extend(parts.map(ContentPart::without_answer_texts));
                whole
            }
            None => String::new(),
        };
        whole.push_str(message.refusal.as_deref().unwrap_or_default());
        match whole.strip_prefix(self.text.as_str()) {
            Some(rest) => self.push_prose(ProseKind::Text, rest),
            None if self.text.contains(whole.trim()) => {}
            None => return Err(malformed_stream("the text of the message does not match its deltas")),
        }
        let single = message.function_call.map(ToolCallDelta::from_function);
        // Each call that came is one of the message: of two that are the same none is left out.
        let mut open: Vec<usize> = (0..self.calls.len()).collect();
        for call in message.tool_calls.into_iter().flatten().chain(single) {
            let function = call.function.as_ref();
            let name = function.and_then(|function| function.name.clone()).unwrap_or_default();
            let whole = function.and_then(FunctionDelta::arguments_text).unwrap_or_default();
            let is_there = |at: &usize| {
                let known = &self.calls[*at];
                known.name == name && (call.id.is_none() || known.id == call.id)
            };
            let is_said = |at: &usize| whole.trim().is_empty() || is_same_json(&self.calls[*at].arguments, &whole);
            match open.iter().position(|at| is_there(at) && is_said(at)) {
                Some(at) => {
                    let at = open.remove(at);
                    self.keep_with_call(at, call);
                }
                None if open.iter().any(is_there) => {
                    return Err(malformed_stream("the arguments of a call do not match its deltas"));
                }
                None => self.read_call(call, data)?,
            }
        }
        // After the calls, which end where a thought begins.
        self.whole_thought(thought);
        self.read_parts(&thoughts)
    }

    /// Reads the thought of a whole answer, or the missing rest of it.
    fn whole_thought(&mut self, thought: Option<(&'static str, String)>) {
        let Some((name, whole)) = thought else { return };
        if !self.thoughts.contains(whole.trim()) {
            let rest = whole.strip_prefix(self.thoughts.as_str()).unwrap_or(&whole).to_owned();
            self.push_prose(ProseKind::Thinking(name), &rest);
        }
    }

    fn read_parts<'a>(&mut self, parts: impl IntoIterator<Item = &'a ContentPart>) -> Result<(), ModelFailure> {
        for part in parts {
            content::check_part(part)?;
            if let Some(thought) = part.thought_text() {
                self.read_thought(part, &thought);
            }
            part.answer_texts().for_each(|text| self.push_prose(ProseKind::Text, text));
        }
        Ok(())
    }

    /// Reads a thought that is a part of the content, or a piece of one. A sealed one has ended, and so has one of
    /// another type.
    fn read_thought(&mut self, part: &ContentPart, thought: &str) {
        if self.thought.is_sealed() || self.thought.is_other_type(part.r#type.as_deref()) {
            self.close_prose();
        }
        if let Ok(Value::Object(members)) = serde_json::to_value(part) {
            let index = self.continue_prose(ProseKind::Part);
            self.thought.go_on(members);
            self.thoughts.push_str(thought);
            self.parts.push_delta(index, thought);
        }
    }

    fn push_prose(&mut self, prose: ProseKind, text: &str) {
        if text.is_empty() {
            return;
        }
        match prose {
            ProseKind::Text => self.text.push_str(text),
            ProseKind::Thinking(_) | ProseKind::Part => self.thoughts.push_str(text),
        }
        let index = self.continue_prose(prose);
        self.parts.push_delta(index, text);
    }

    /// Returns the part that such prose goes to: the one that is open, or a new one.
    fn continue_prose(&mut self, prose: ProseKind) -> usize {
        if let Some((_, index)) = self.prose.filter(|(open, _)| *open == prose) {
            return index;
        }
        self.close_prose();
        for at in 0..self.calls.len() {
            self.close_call(at);
        }
        self.parts.end_all();
        let index = self.parts.start_part(match prose {
            ProseKind::Text => PartKind::Text,
            ProseKind::Thinking(_) | ProseKind::Part => PartKind::Thinking,
        });
        if let ProseKind::Thinking(name) = prose {
            self.parts.add_signature(index, name);
        }
        self.prose = Some((prose, index));
        index
    }

    /// Closes the open text or thinking. A part of the content is signed with all of it.
    fn close_prose(&mut self) {
        if let Some((_, index)) = self.prose.take() {
            self.parts.add_signature(index, &self.thought.take_object().unwrap_or_default());
            self.parts.end_part(index);
        }
    }
}
