//! Reads Google's stream. Its end is a `finishReason`, or `[DONE]` where a gateway puts that behind.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, value::RawValue};

use super::GIVEN;
use crate::{
    Event, Failure, PartKind, Stop, Usage,
    failure::{Ending, ending, in_stream},
    wire::{
        Decode, Progress,
        parts::Parts,
        read, unfinished,
        unplaced::{Rule, unplaced_in},
        unread, withheld,
    },
};

#[derive(Default)]
pub(crate) struct Decoder {
    parts: Parts,
    response: Option<String>,
    /// The text or thinking that is open, and whether it is thinking.
    prose: Option<(bool, usize)>,
    finish: Option<Stop>,
    usage: Option<Usage>,
    /// The ids of calls that the provider gave.
    given: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<&'a RawValue>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<Tokens>,
    response_id: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece<'a> {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCall<'a> {
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
    partial_args: Option<Value>,
    will_continue: Option<Value>,
}

impl FunctionCall<'_> {
    /// The member with pieces of arguments that is not read: nobody asks for arguments in pieces.
    fn unread(&self) -> Option<&'static str> {
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
struct Tokens {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl Decode for Decoder {
    fn event(&mut self, data: &str) -> Result<Progress, Failure> {
        if data.trim() == "[DONE]" {
            self.finish = self.finish.or(Some(Stop::Stop));
            self.end()?;
            return Ok(Progress::Ended);
        }
        let frame: Frame<'_> = read(data)?;
        if frame.error.is_some() {
            return Err(in_stream(data));
        }
        if self.response.is_none() {
            self.response = frame.response_id;
        }
        self.parts.begin(self.response.clone());
        self.usage = frame.usage_metadata.map(usage).or(self.usage);
        if let Some(reason) = frame.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            return Err(withheld(&reason));
        }
        for (at, raw) in frame.candidates.into_iter().flatten().enumerate() {
            let candidate: Candidate<'_> = read(raw.get())?;
            placed("a candidate", raw, &["content", "finishMessage"], Rule::NamedText)?;
            let pieces: Vec<_> = match candidate.content {
                Some(raw) => {
                    placed("a candidate", raw, &["parts"], Rule::Content)?;
                    read::<Content<'_>>(raw.get())?.parts.unwrap_or_default()
                }
                None => Vec::new(),
            };
            // One candidate is asked for.
            if at > 0 {
                if pieces.is_empty() {
                    continue;
                }
                return Err(unread("more than one candidate"));
            }
            for piece in pieces {
                self.piece(piece)?;
            }
            // Some servers write out that there is no reason yet.
            let is_reason = |reason: &String| !["", "FINISH_REASON_UNSPECIFIED"].contains(&reason.as_str());
            if let Some(reason) = candidate.finish_reason.filter(is_reason) {
                self.parts.end_all();
                self.prose = None;
                match ending(&reason, candidate.finish_message.as_deref()) {
                    Ending::Failed(failure) => return Err(failure),
                    Ending::Stopped(stop) => self.finish = Some(stop),
                }
            }
        }
        Ok(if self.finish.is_some() { Progress::Whole } else { Progress::Open })
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Some(stop) = self.finish else { return Err(unfinished()) };
        let given: Vec<Value> = std::mem::take(&mut self.given).into_iter().map(Value::from).collect();
        if !given.is_empty() {
            self.parts.keep(Map::from_iter([(GIVEN.to_owned(), given.into())]));
        }
        self.parts.finish(self.usage, stop, None)
    }

    fn take(&mut self) -> Vec<Event> {
        self.parts.take()
    }

    fn held(&self) -> usize {
        self.parts.held()
    }

    fn members(&self) -> &'static [&'static str] {
        &EVENT
    }
}

impl Decoder {
    fn piece(&mut self, raw: &RawValue) -> Result<(), Failure> {
        let piece: Piece<'_> = read(raw.get())?;
        let signature = piece.thought_signature.as_deref().unwrap_or_default();
        let text = piece.text.as_deref().unwrap_or_default();
        let thought = piece.thought.unwrap_or(false);
        if piece.text.is_none() && piece.function_call.is_none() {
            known(raw)?;
        }
        placed("a part", raw, &KNOWN, Rule::AnyText)?;
        // With a call it is the call that is signed.
        self.say(thought, text, if piece.function_call.is_some() { "" } else { signature });
        if let Some(raw) = piece.function_call {
            let call: FunctionCall<'_> = read(raw.get())?;
            placed("a function call", raw, &CALL, Rule::AnyText)?;
            if let Some(member) = call.unread() {
                return Err(unread(&format!("a function call with {member}")));
            }
            self.prose = None;
            self.parts.end_all();
            let (id, name) = (call.id.unwrap_or_default(), call.name.unwrap_or_default());
            if !id.is_empty() {
                self.given.insert(id.clone());
            }
            let index = self.parts.start(PartKind::ToolCall { id, name });
            self.parts.delta(index, call.args.map_or("", RawValue::get));
            self.parts.sign(index, signature);
            self.parts.end(index);
        }
        Ok(())
    }

    /// Adds to the text or the thinking that is open. One signature signs one part: nothing is added behind it.
    fn say(&mut self, thought: bool, text: &str, signature: &str) {
        if text.is_empty() && signature.is_empty() {
            return;
        }
        let index = match self.prose.filter(|(_, index)| !self.parts.is_signed(*index)) {
            Some((open, index)) if open == thought => index,
            // A signature may come alone, after the text that it signs.
            Some((_, index)) if text.is_empty() => index,
            Some(_) | None => self.open(thought),
        };
        self.parts.delta(index, text);
        self.parts.sign(index, signature);
    }

    fn open(&mut self, thought: bool) -> usize {
        self.parts.end_all();
        let index = self.parts.start(if thought { PartKind::Thinking } else { PartKind::Text });
        self.prose = Some((thought, index));
        index
    }
}

/// Members of a chunk that are read.
const EVENT: [&str; 5] = ["candidates", "promptFeedback", "usageMetadata", "responseId", "error"];

/// Members of a part that are read, or that only tell about it.
const KNOWN: [&str; 6] = ["text", "thought", "thoughtSignature", "functionCall", "partMetadata", "videoMetadata"];

/// Members of a function call that are read.
const CALL: [&str; 5] = ["id", "name", "args", "partialArgs", "willContinue"];

/// Refuses content in members that are read nowhere.
fn placed(what: &str, raw: &RawValue, known: &[&str], rule: Rule) -> Result<(), Failure> {
    unplaced_in(raw, known, rule)?.map_or(Ok(()), |name| Err(unread(&format!("{what} with {name}"))))
}

/// Refuses a part of a kind that cannot be read, such as an image or code that was run elsewhere.
fn known(raw: &RawValue) -> Result<(), Failure> {
    let members: BTreeMap<String, Option<IgnoredAny>> = read(raw.get())?;
    match members.into_iter().find(|(name, value)| value.is_some() && !KNOWN.contains(&name.as_str())) {
        Some((name, _)) => Err(unread(&format!("a part with {name}"))),
        None => Ok(()),
    }
}

fn usage(tokens: Tokens) -> Usage {
    let cache_read = tokens.cached_content_token_count.unwrap_or(0);
    let input = tokens.prompt_token_count.unwrap_or(0).saturating_add(tokens.tool_use_prompt_token_count.unwrap_or(0));
    let output = tokens.candidates_token_count.unwrap_or(0).saturating_add(tokens.thoughts_token_count.unwrap_or(0));
    Usage { input: input.saturating_sub(cache_read), output, cache_read, cache_write: 0 }
}
