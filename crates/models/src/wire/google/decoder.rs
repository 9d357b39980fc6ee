//! Reads Google's stream. Its end is a `finishReason`.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    Event, Failure, FailureKind, PartKind, Stop, Usage,
    failure::in_stream,
    wire::{Decode, Progress, parts::Parts, read, unfinished, withheld},
};

#[derive(Default)]
pub(crate) struct Decoder {
    parts: Parts,
    response: Option<String>,
    /// The text or thinking that is open, and whether it is thinking.
    prose: Option<(bool, usize)>,
    calls: usize,
    finish: Option<String>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<Tokens>,
    response_id: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Piece<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece<'a> {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    #[serde(borrow)]
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
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
        // One candidate is asked for.
        if let Some(candidate) = frame.candidates.into_iter().flatten().next() {
            for piece in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
                self.piece(piece);
            }
            if let Some(reason) = candidate.finish_reason {
                self.parts.end_all();
                self.prose = None;
                check(&reason, candidate.finish_message.as_deref())?;
                self.finish = Some(reason);
            }
        }
        Ok(if self.finish.is_some() { Progress::Whole } else { Progress::Open })
    }

    fn end(&mut self) -> Result<(), Failure> {
        let stop = match self.finish.as_deref() {
            None => return Err(unfinished()),
            Some("MAX_TOKENS") => Stop::Length,
            Some(_) => Stop::Stop,
        };
        self.parts.finish(self.usage, stop);
        Ok(())
    }

    fn take(&mut self) -> Vec<Event> {
        self.parts.take()
    }
}

impl Decoder {
    fn piece(&mut self, piece: Piece<'_>) {
        let signature = piece.thought_signature.as_deref().unwrap_or_default();
        if let Some(call) = piece.function_call {
            self.prose = None;
            self.parts.end_all();
            let id = call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| {
                let response = self.response.as_deref().unwrap_or_default();
                format!("call_{response}_{}", self.calls)
            });
            self.calls += 1;
            let index = self.parts.start(PartKind::ToolCall { id, name: call.name.unwrap_or_default() });
            self.parts.delta(index, call.args.map_or("{}", RawValue::get));
            self.parts.sign(index, signature);
            self.parts.end(index);
            return;
        }
        let Some(text) = piece.text else { return };
        let thought = piece.thought.unwrap_or(false);
        if text.is_empty() {
            // A signature may come alone, after the text that it signs.
            match self.prose {
                Some((_, index)) => self.parts.sign(index, signature),
                None if signature.is_empty() => {}
                None => {
                    let index = self.open(thought);
                    self.parts.sign(index, signature);
                }
            }
            return;
        }
        let index = match self.prose {
            Some((open, index)) if open == thought => index,
            Some(_) | None => self.open(thought),
        };
        self.parts.delta(index, &text);
        self.parts.sign(index, signature);
    }

    fn open(&mut self, thought: bool) -> usize {
        self.parts.end_all();
        let index = self.parts.start(if thought { PartKind::Thinking } else { PartKind::Text });
        self.prose = Some((thought, index));
        index
    }
}

/// Refuses the reasons that end an answer without being its end.
fn check(reason: &str, message: Option<&str>) -> Result<(), Failure> {
    let said = message.map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}"));
    match reason {
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
            Err(withheld(&said))
        }
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "OTHER" => {
            let message = format!("the model broke off (terminated): {}", crate::failure::excerpt(&said));
            Err(Failure::new(FailureKind::Broken, message))
        }
        _ => Ok(()),
    }
}

fn usage(tokens: Tokens) -> Usage {
    let cache_read = tokens.cached_content_token_count.unwrap_or(0);
    let input = tokens.prompt_token_count.unwrap_or(0).saturating_add(tokens.tool_use_prompt_token_count.unwrap_or(0));
    let output = tokens.candidates_token_count.unwrap_or(0).saturating_add(tokens.thoughts_token_count.unwrap_or(0));
    Usage { input: input.saturating_sub(cache_read), output, cache_read, cache_write: 0 }
}
