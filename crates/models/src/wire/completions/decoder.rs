//! Reads the stream of Chat Completions. Its end is a `finish_reason`; `[DONE]` and what was used may follow.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Event, Failure, FailureKind, PartKind, Stop, Usage,
    failure::in_stream,
    wire::{Decode, Progress, parts::Parts, read, unfinished, withheld},
};

#[derive(Default)]
pub(crate) struct Decoder {
    parts: Parts,
    response: Option<String>,
    /// The part that text or thinking goes to.
    prose: Option<(Prose, usize)>,
    calls: Vec<Call>,
    finish: Option<String>,
    usage: Option<Usage>,
}

#[derive(Clone, Copy, PartialEq)]
enum Prose {
    Text,
    Thinking,
}

/// A call by the wire's index. Servers that give none tell calls apart by their ids.
struct Call {
    at: Option<u64>,
    id: Option<String>,
    part: usize,
}

#[derive(Deserialize)]
struct Chunk {
    id: Option<String>,
    object: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Tokens>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
    /// Some servers say here what others say beside the choices.
    usage: Option<Tokens>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Content>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    reasoning_text: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    /// Mistral's, where thinking has parts of its own.
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    text: Option<String>,
    thinking: Option<Vec<ContentPart>>,
}

#[derive(Deserialize)]
struct ToolCall {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    /// A piece of text, or from some servers the whole object.
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl Decode for Decoder {
    fn event(&mut self, data: &str) -> Result<Progress, Failure> {
        if data.trim() == "[DONE]" {
            self.end()?;
            return Ok(Progress::Ended);
        }
        let chunk: Chunk = read(data)?;
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            return Err(in_stream(data));
        }
        if self.response.is_none() {
            self.response = chunk.id;
        }
        self.parts.begin(self.response.clone());
        self.usage = chunk.usage.map(usage).or(self.usage);
        for choice in chunk.choices.unwrap_or_default() {
            if choice.index.unwrap_or(0) == 0 {
                self.choice(choice, data)?;
            }
        }
        Ok(if self.finish.is_some() { Progress::Whole } else { Progress::Open })
    }

    fn end(&mut self) -> Result<(), Failure> {
        let stop = match self.finish.as_deref() {
            None => return Err(unfinished()),
            Some("content_filter") => return Err(withheld("content_filter")),
            Some(reason @ ("error" | "network_error")) => {
                return Err(Failure::new(FailureKind::Server, format!("provider returned error: {reason}")));
            }
            Some("length" | "model_length") => Stop::Length,
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
    fn choice(&mut self, choice: Choice, data: &str) -> Result<(), Failure> {
        if let Some(error) = choice.error {
            return Err(in_stream(&error.to_string()));
        }
        self.usage = choice.usage.map(usage).or(self.usage);
        if let Some(delta) = choice.delta {
            let thought = [&delta.reasoning_content, &delta.reasoning, &delta.reasoning_text];
            if let Some(thought) = thought.into_iter().flatten().find(|text| !text.is_empty()) {
                self.say(Prose::Thinking, thought);
            }
            match delta.content {
                Some(Content::Text(text)) => self.say(Prose::Text, &text),
                Some(Content::Parts(parts)) => self.mixed(&parts),
                None => {}
            }
            self.say(Prose::Text, delta.refusal.as_deref().unwrap_or_default());
            for call in delta.tool_calls.unwrap_or_default() {
                self.call(call, data)?;
            }
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason);
            self.prose = None;
            self.parts.end_all();
        }
        Ok(())
    }

    fn mixed(&mut self, parts: &[ContentPart]) {
        for part in parts {
            for thought in part.thinking.iter().flatten() {
                self.say(Prose::Thinking, thought.text.as_deref().unwrap_or_default());
            }
            self.say(Prose::Text, part.text.as_deref().unwrap_or_default());
        }
    }

    fn say(&mut self, prose: Prose, text: &str) {
        if text.is_empty() {
            return;
        }
        let index = match self.prose {
            Some((open, index)) if open == prose => index,
            Some(_) | None => {
                self.parts.end_all();
                let index = self.parts.start(match prose {
                    Prose::Text => PartKind::Text,
                    Prose::Thinking => PartKind::Thinking,
                });
                self.prose = Some((prose, index));
                index
            }
        };
        self.parts.delta(index, text);
    }

    /// Gives a piece to its call: by index, else by id, else to the last one.
    fn call(&mut self, piece: ToolCall, data: &str) -> Result<(), Failure> {
        let function = piece.function.unwrap_or(Function { name: None, arguments: None });
        let name = function.name.filter(|name| !name.is_empty());
        let id = piece.id.filter(|id| !id.is_empty());
        let known = match (piece.index, &id) {
            // Some servers number all their calls 0: another id with a name is another call.
            (Some(at), Some(id)) => self.calls.iter().rfind(|call| {
                call.at == Some(at) && (name.is_none() || call.id.as_ref().is_none_or(|known| known == id))
            }),
            (Some(at), None) => self.calls.iter().rfind(|call| call.at == Some(at)),
            (None, Some(id)) => self.calls.iter().rfind(|call| call.id.as_ref() == Some(id)),
            (None, None) if name.is_none() => self.calls.last(),
            (None, None) => None,
        };
        let part = match (known, name) {
            (Some(call), _) => call.part,
            (None, Some(name)) => self.open(piece.index, id, name),
            (None, None) => {
                let excerpt = crate::failure::excerpt(data);
                return Err(broken(format!("a tool call without a name (terminated): {excerpt}")));
            }
        };
        let more = match function.arguments {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) => text,
            Some(whole @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => whole.to_string(),
        };
        if !self.parts.is_open(part) && !more.trim().is_empty() {
            return Err(broken("arguments of a tool call after its end (terminated)".to_owned()));
        }
        self.parts.delta(part, &more);
        Ok(())
    }

    /// Opens a call and closes what is complete: prose, and calls whose arguments are a whole JSON value. A call that
    /// is not complete stays open beside this one, since some servers mix the pieces of several.
    fn open(&mut self, at: Option<u64>, id: Option<String>, name: String) -> usize {
        if let Some((_, index)) = self.prose.take() {
            self.parts.end(index);
        }
        for call in &self.calls {
            let whole = |text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            if self.parts.text(call.part).is_some_and(whole) {
                self.parts.end(call.part);
            }
        }
        let given = id.clone().unwrap_or_else(|| {
            let response = self.response.as_deref().unwrap_or_default();
            format!("call_{response}_{}", self.calls.len())
        });
        let part = self.parts.start(PartKind::ToolCall { id: given, name });
        self.calls.push(Call { at, id, part });
        part
    }
}

fn broken(message: String) -> Failure {
    Failure::new(FailureKind::Broken, message)
}

fn usage(tokens: Tokens) -> Usage {
    let details = tokens.prompt_tokens_details.as_ref();
    let cache_read = details.and_then(|details| details.cached_tokens).or(tokens.prompt_cache_hit_tokens).unwrap_or(0);
    let cache_write = details.and_then(|details| details.cache_write_tokens).unwrap_or(0);
    Usage {
        input: tokens.prompt_tokens.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
        output: tokens.completion_tokens.unwrap_or(0),
        cache_read,
        cache_write,
    }
}
