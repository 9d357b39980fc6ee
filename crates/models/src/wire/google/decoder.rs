//! Reads Google's stream. Its end is a `finishReason`, or `[DONE]` if a gateway appends that.

use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Drain,
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, value::RawValue};

use super::GIVEN;
use crate::{
    FinishReason, ModelEvent, ModelFailure, ModelUsage, PartKind,
    failure::{AnswerEnding, in_stream, read_ending},
    wire::{
        AnswerDecoder, AnswerProgress, lenient, parse_json,
        parts::PartAssembler,
        says_something, unfinished_stream,
        unplaced::{ContentRule, find_unplaced_in},
        unreadable_content, withheld_answer,
    },
};

#[derive(Default)]
pub(crate) struct GoogleDecoder {
    parts: PartAssembler,
    response: Option<String>,
    /// The text or thinking that is open, and whether it is thinking.
    prose: Option<(bool, usize)>,
    finish: Option<FinishReason>,
    usage: Option<ModelUsage>,
    /// The ids of calls that the provider gave.
    given: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleFrame<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<&'a RawValue>>,
    prompt_feedback: Option<PromptFeedback>,
    #[serde(default, deserialize_with = "lenient::object")]
    usage_metadata: Option<GoogleUsage>,
    response_id: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleCandidate<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct CandidateContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GooglePart<'a> {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StreamedFunctionCall<'a> {
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    partial_args: Option<Value>,
    will_continue: Option<Value>,
}

impl StreamedFunctionCall<'_> {
    /// Returns the member with pieces of arguments that is not read: no request has arguments in pieces.
    fn unread_member(&self) -> Option<&'static str> {
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if self.partial_args.as_ref().is_some_and(|value| !is_empty(value)) {
            return Some("partialArgs");
        }
        self.will_continue.as_ref().is_some_and(|value| *value != Value::Bool(false)).then_some("willContinue")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cached_content_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    thoughts_token_count: Option<u64>,
}

impl AnswerDecoder for GoogleDecoder {
    fn decode_event(&mut self, data: &str) -> Result<AnswerProgress, ModelFailure> {
        if data.trim() == "[DONE]" {
            self.finish = self.finish.or(Some(FinishReason::Stop));
            self.finish_stream()?;
            return Ok(AnswerProgress::Ended);
        }
        let frame: GoogleFrame<'_> = parse_json(data)?;
        if frame.error.as_ref().is_some_and(says_something) {
            return Err(in_stream(data));
        }
        if self.response.is_none() {
            self.response = frame.response_id;
        }
        self.parts.begin_answer(self.response.clone());
        self.usage = frame.usage_metadata.map(read_usage).or(self.usage);
        if let Some(reason) = frame.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            return Err(withheld_answer(&reason));
        }
        for (at, raw) in frame.candidates.into_iter().flatten().enumerate() {
            let candidate: GoogleCandidate<'_> = parse_json(raw.get())?;
            check_members("a candidate", raw, &["content", "finishMessage"], ContentRule::NamedText)?;
            let pieces: Vec<_> = match candidate.content {
                Some(raw) => {
                    check_members("a candidate", raw, &["parts"], ContentRule::Content)?;
                    parse_json::<CandidateContent<'_>>(raw.get())?.parts.unwrap_or_default()
                }
                None => Vec::new(),
            };
            // The request has one candidate.
            if at > 0 {
                if pieces.is_empty() {
                    continue;
                }
                return Err(unreadable_content("more than one candidate"));
            }
            for piece in pieces {
                self.read_part(piece)?;
            }
            // Some servers write out that there is no reason yet.
            let is_reason = |reason: &String| !["", "FINISH_REASON_UNSPECIFIED"].contains(&reason.as_str());
            if let Some(reason) = candidate.finish_reason.filter(is_reason) {
                self.parts.end_all();
                self.prose = None;
                match read_ending(&reason, candidate.finish_message.as_deref()) {
                    AnswerEnding::Failed(failure) => return Err(failure),
                    AnswerEnding::Stopped(stop) => self.finish = Some(stop),
                }
            }
        }
        Ok(if self.finish.is_some() { AnswerProgress::Whole } else { AnswerProgress::Open })
    }

    fn finish_stream(&mut self) -> Result<(), ModelFailure> {
        let Some(stop) = self.finish else { return Err(unfinished_stream()) };
        let given: Vec<Value> = std::mem::take(&mut self.given).into_iter().map(Value::from).collect();
        if !given.is_empty() {
            self.parts.keep_members(Map::from_iter([(GIVEN.to_owned(), given.into())]));
        }
        self.parts.finish_answer(self.usage, stop, None)
    }

    fn take_events(&mut self) -> Drain<'_, ModelEvent> {
        self.parts.take_events()
    }

    fn held_bytes(&self) -> usize {
        self.parts.held_bytes()
    }

    fn known_members(&self) -> &'static [&'static str] {
        &EVENT
    }
}

impl GoogleDecoder {
    fn read_part(&mut self, raw: &RawValue) -> Result<(), ModelFailure> {
        let piece: GooglePart<'_> = parse_json(raw.get())?;
        let signature = piece.thought_signature.as_deref().unwrap_or_default();
        let text = piece.text.as_deref().unwrap_or_default();
        let thought = piece.thought.unwrap_or(false);
        if piece.text.is_none() && piece.function_call.is_none() {
            check_part_kind(raw)?;
        }
        check_members("a part", raw, &KNOWN, ContentRule::AnyText)?;
        // With a call it is the call that is signed.
        self.push_prose(thought, text, if piece.function_call.is_some() { "" } else { signature });
        if let Some(raw) = piece.function_call {
            let call: StreamedFunctionCall<'_> = parse_json(raw.get())?;
            check_members("a function call", raw, &CALL, ContentRule::AnyText)?;
            if let Some(member) = call.unread_member() {
                return Err(unreadable_content(&format!("a function call with {member}")));
            }
            self.prose = None;
            self.parts.end_all();
            let (id, name) = (call.id.unwrap_or_default(), call.name.unwrap_or_default());
            if !id.is_empty() {
                self.given.insert(id.clone());
            }
            let index = self.parts.start_part(PartKind::ToolCall { id, name });
            self.parts.push_delta(index, call.args.map_or("", RawValue::get));
            self.parts.add_signature(index, signature);
            self.parts.end_part(index);
        }
        Ok(())
    }

    /// Adds to the text or the thinking that is open. One signature signs one part: nothing is added after it.
    fn push_prose(&mut self, thought: bool, text: &str, signature: &str) {
        if text.is_empty() && signature.is_empty() {
            return;
        }
        let index = match self.prose.filter(|(_, index)| !self.parts.is_signed(*index)) {
            Some((open, index)) if open == thought => index,
            // A signature may come alone, after the text that it signs.
            Some((_, index)) if text.is_empty() => index,
            Some(_) | None => self.open_prose(thought),
        };
        self.parts.push_delta(index, text);
        self.parts.add_signature(index, signature);
    }

    fn open_prose(&mut self, thought: bool) -> usize {
        self.parts.end_all();
        let index = self.parts.start_part(if thought { PartKind::Thinking } else { PartKind::Text });
        self.prose = Some((thought, index));
        index
    }
}

/// Members of a chunk that are read.
const EVENT: [&str; 5] = ["candidates", "promptFeedback", "usageMetadata", "responseId", "error"];

/// Members of a part that are read, or that only hold data about it.
const KNOWN: [&str; 6] = ["text", "thought", "thoughtSignature", "functionCall", "partMetadata", "videoMetadata"];

/// Members of a function call that are read.
const CALL: [&str; 5] = ["id", "name", "args", "partialArgs", "willContinue"];

/// Refuses content in members that are read nowhere.
fn check_members(what: &str, raw: &RawValue, known: &[&str], rule: ContentRule) -> Result<(), ModelFailure> {
    find_unplaced_in(raw, known, rule)?.map_or(Ok(()), |name| Err(unreadable_content(&format!("{what} with {name}"))))
}

/// Refuses a part of a kind that cannot be read, such as an image or code that was run elsewhere.
fn check_part_kind(raw: &RawValue) -> Result<(), ModelFailure> {
    let members: BTreeMap<String, Option<IgnoredAny>> = parse_json(raw.get())?;
    match members.into_iter().find(|(name, value)| value.is_some() && !KNOWN.contains(&name.as_str())) {
        Some((name, _)) => Err(unreadable_content(&format!("a part with {name}"))),
        None => Ok(()),
    }
}

fn read_usage(tokens: GoogleUsage) -> ModelUsage {
    let cache_read = tokens.cached_content_token_count.unwrap_or(0);
    let input = tokens.prompt_token_count.unwrap_or(0).saturating_add(tokens.tool_use_prompt_token_count.unwrap_or(0));
    let output = tokens.candidates_token_count.unwrap_or(0).saturating_add(tokens.thoughts_token_count.unwrap_or(0));
    ModelUsage { input: input.saturating_sub(cache_read), output, cache_read, cache_write: 0 }
}
