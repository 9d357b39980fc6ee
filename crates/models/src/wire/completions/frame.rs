//! The form of a chunk of Chat Completions, as servers send it and as some of them vary it.
//!
//! It must not know the answer that the chunks make.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::{Map, Value};

use super::provider_extensions;
use crate::{
    ModelUsage,
    wire::{
        lenient,
        unplaced::{ContentRule, find_unplaced},
    },
};

#[derive(Deserialize)]
pub(super) struct CompletionsChunk {
    #[serde(default, deserialize_with = "lenient::id")]
    pub(super) id: Option<String>,
    pub(super) object: Option<String>,
    pub(super) choices: Option<Vec<CompletionsChoice>>,
    #[serde(default, deserialize_with = "lenient::object")]
    pub(super) usage: Option<CompletionsUsage>,
    pub(super) error: Option<Value>,
    /// Of servers that repeat the text of the choices next to them, as the next two.
    pub(super) text: Option<Value>,
    pub(super) content: Option<Value>,
    pub(super) output_text: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct CompletionsChoice {
    #[serde(default, deserialize_with = "lenient::index")]
    pub(super) index: Option<u64>,
    pub(super) delta: Option<CompletionsDelta>,
    /// The whole answer, which some servers send in the place of deltas or after them.
    pub(super) message: Option<Box<CompletionsDelta>>,
    /// Of servers that answer as the older Completions did.
    pub(super) text: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) native_finish_reason: Option<Value>,
    /// Some servers send here the usage that others send next to the choices.
    #[serde(default, deserialize_with = "lenient::object")]
    pub(super) usage: Option<CompletionsUsage>,
    pub(super) error: Option<Value>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Default, Deserialize)]
pub(super) struct CompletionsDelta {
    pub(super) content: Option<DeltaContent>,
    /// Snowflake's: the content once more, with its calls among it.
    pub(super) content_list: Option<Vec<ContentPart>>,
    pub(super) refusal: Option<String>,
    pub(super) tool_calls: Option<Vec<ToolCallDelta>>,
    /// The one call of servers that know no lists of them.
    pub(super) function_call: Option<FunctionDelta>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

pub(super) enum DeltaContent {
    Text(String),
    /// Mistral's and Databricks', where thinking has parts of its own.
    Parts(Vec<ContentPart>),
}

impl<'de> Deserialize<'de> for DeltaContent {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(DeltaContentVisitor)
    }
}

/// Reads a [`DeltaContent`] without a copy, which every event of a stream has.
struct DeltaContentVisitor;

impl<'de> Visitor<'de> for DeltaContentVisitor {
    type Value = DeltaContent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<DeltaContent, E> {
        Ok(DeltaContent::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<DeltaContent, E> {
        Ok(DeltaContent::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<DeltaContent, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(parts)).map(DeltaContent::Parts)
    }
}

#[derive(Default, Deserialize, Serialize)]
pub(super) struct ContentPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) r#type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<ThinkingValue>,
    /// Databricks' thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<ThinkingValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refusal: Option<String>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum ThinkingValue {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
pub(super) struct ToolCallDelta {
    #[serde(default, deserialize_with = "lenient::index")]
    pub(super) index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::id")]
    pub(super) id: Option<String>,
    pub(super) function: Option<FunctionDelta>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Default, Deserialize)]
pub(super) struct FunctionDelta {
    pub(super) name: Option<String>,
    /// A piece of text, or from some servers the whole object.
    pub(super) arguments: Option<Value>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct CompletionsUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::object")]
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct PromptDetails {
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) cache_write_tokens: Option<u64>,
}

impl ContentPart {
    /// Returns its text of the model's thoughts, if it is about those. A signature is the end of a thought.
    pub(super) fn thought_text(&self) -> Option<String> {
        let is_thinking = self.is_thinking();
        let signature = self.rest.get("signature").and_then(Value::as_str);
        let is_signature = self.text.is_none() && signature.is_some_and(|signature| !signature.is_empty());
        (is_thinking || is_signature || self.thinking.is_some() || self.summary.is_some()).then(|| {
            let members = [&self.thinking, &self.summary].into_iter().flatten().map(ThinkingValue::to_text);
            members.chain(self.text.clone().filter(|_| is_thinking)).collect()
        })
    }

    /// Returns its texts of the answer.
    pub(super) fn answer_texts(&self) -> impl Iterator<Item = &str> {
        let text = self.text.as_deref().filter(|_| !self.is_thinking());
        [text, self.refusal.as_deref()].into_iter().flatten()
    }

    /// Returns the same part without its texts of the answer.
    pub(super) fn without_answer_texts(self) -> Self {
        let text = if self.is_thinking() { self.text } else { None };
        Self { text, refusal: None, ..self }
    }

    /// Reports whether it holds nothing, for any type.
    pub(super) fn is_empty(&self) -> bool {
        self.answer_texts().all(str::is_empty) && self.thought_text().is_none() && self.rest.is_empty()
    }

    fn is_thinking(&self) -> bool {
        self.r#type.as_deref().is_some_and(|kind| provider_extensions::THINKING.contains(&kind))
    }
}

impl ThinkingValue {
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().filter_map(|part| part.text.as_deref()).collect(),
        }
    }
}

impl ToolCallDelta {
    /// Returns the one call of a server that knows no lists of them.
    pub(super) fn from_function(function: FunctionDelta) -> Self {
        Self { index: None, id: None, function: Some(function), rest: Map::new() }
    }
}

impl FunctionDelta {
    /// Returns the arguments as text.
    pub(super) fn arguments_text(&self) -> Option<String> {
        match &self.arguments {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(whole @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
                Some(whole.to_string())
            }
        }
    }
}

impl CompletionsChoice {
    pub(super) fn has_content(&self) -> bool {
        let has = |delta: &CompletionsDelta| {
            delta
                .content
                .as_ref()
                .is_some_and(|content| !matches!(content, DeltaContent::Text(text) if text.is_empty()))
                || delta.content_list.as_ref().is_some_and(|parts| !parts.is_empty())
                || delta.refusal.as_ref().is_some_and(|text| !text.is_empty())
                || delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
                || delta.function_call.is_some()
                || find_unplaced(&delta.rest, ContentRule::Content).is_some()
        };
        self.delta.iter().chain(self.message.as_deref()).any(has)
            || self.text.as_ref().is_some_and(|text| !text.is_empty())
            || find_unplaced(&self.rest, ContentRule::NamedText).is_some()
    }
}

/// Reads the usage.
pub(super) fn read_usage(tokens: CompletionsUsage) -> ModelUsage {
    let details = tokens.prompt_tokens_details.as_ref();
    let cache_read = details.and_then(|details| details.cached_tokens).or(tokens.prompt_cache_hit_tokens).unwrap_or(0);
    let cache_write = details.and_then(|details| details.cache_write_tokens).unwrap_or(0);
    ModelUsage {
        input: tokens.prompt_tokens.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
        output: tokens.completion_tokens.unwrap_or(0),
        cache_read,
        cache_write,
    }
}
