//! Extensions of providers to OpenAI's wire that they need back: thoughts under several names, signatures of
//! calls, sealed reasoning.
//!
//! Its forms are those that hosts of omp keep in session files as well:
//!
//! - a thought is signed with the name of the member that it came in, or with all of it if it is a part of the content;
//! - a call is signed with its `extra_content`, or with all members of it that are not read here;
//! - data of the whole answer is the [payload](crate::ModelEvent::Payload).
//!
//! Sources: the pages of DeepSeek (thinking mode), Moonshot (Kimi thinking), Google (thought signatures), OpenRouter
//! (reasoning tokens), vLLM (interleaved thinking), Databricks (reasoning models), Envoy AI Gateway (Bedrock's thinking),
//! GitHub Copilot's `reasoning_opaque`.

use serde_json::{Map, Value};

use crate::wire::kept_members::{self, LateMembers};

/// Members of a delta that hold thoughts of a model, in the order in which they are looked for. Some servers send the
/// same under two of them.
const THOUGHTS: [&str; 4] = ["reasoning_content", "reasoning", "reasoning_text", "thinking"];

/// Types of parts of a content that hold thoughts of a model.
pub(super) const THINKING: [&str; 3] = ["thinking", "reasoning", "redacted_thinking"];

/// The member of a call, and of its answer, in which Google's endpoint has the signature of a thought.
const EXTRA: &str = "extra_content";

/// The list in which OpenRouter and others have sealed reasoning.
const DETAILS: &str = "reasoning_details";

/// Members of a delta that hold content which no conversation here has a place for.
const CONTENT: [&str; 2] = ["audio", "images"];

/// The list in which Groq reports the tools that it ran itself.
pub(super) const RAN_TOOLS: &str = "executed_tools";

/// Members of a delta that only hold data about it, and that are not part of a message that goes back.
const ABOUT: [&str; 9] = [
    "role",
    "annotations",
    "citations",
    "search_results",
    RAN_TOOLS,
    "channel",
    "token_ids",
    "logprobs",
    "prompt_token_ids",
];

/// Members of a message that are written from its parts, and never taken from the kept ones.
const WRITTEN: [&str; 8] =
    ["role", "content", "refusal", "name", "tool_calls", "function_call", "tool_call_id", "audio"];

/// Members of a call that are written from its part.
const WRITTEN_CALL: [&str; 3] = ["index", "id", "type"];

/// The member of a call that names its tool, in which some servers put members that others put next to it.
const FUNCTION: &str = "function";

/// Members of that member that are written from the part of the call.
const WRITTEN_FUNCTION: [&str; 2] = ["name", "arguments"];

/// Reports whether a member of this name only holds data about a delta.
pub(super) fn only_tells(name: &str) -> bool {
    ABOUT.contains(&name)
}

/// Takes the thought out of a delta, with the name of its member. Others under which the same came are left out.
///
/// An empty thought stays: a provider that sends one may ask for it. So does one that is an object, which goes back as it
/// came.
pub(super) fn take_thought(rest: &mut Map<String, Value>) -> Option<(&'static str, String)> {
    let mut found = None;
    for name in THOUGHTS {
        match rest.get(name) {
            Some(Value::String(text)) if !text.is_empty() => {
                if let Some(Value::String(text)) = rest.shift_remove(name) {
                    found = found.or(Some((name, text)));
                }
            }
            Some(Value::Object(members)) => found = found.or_else(|| Some((name, text_of(members)?.to_owned()))),
            Some(_) | None => {}
        }
    }
    found
}

/// Returns the text of a thought that is an object, as gateways to Bedrock send it: in pieces or whole.
fn text_of(members: &Map<String, Value>) -> Option<&str> {
    let whole = || members.get("reasoningText")?.get("text");
    members.get("text").or_else(whole)?.as_str().filter(|text| !text.is_empty())
}

/// Drops the members of a call's function that repeat the tool of the request: its description and the schema of its arguments.
pub(super) fn drop_echo(function: &mut Map<String, Value>) {
    function.retain(|name, value| match name.as_str() {
        "description" | "strict" => false,
        "parameters" => !is_schema(value),
        _ => true,
    });
}

/// Reports whether this is the schema of arguments. Some models call their arguments parameters.
fn is_schema(value: &Value) -> bool {
    const WORDS: [&str; 8] =
        ["type", "properties", "required", "additionalProperties", "$schema", "$defs", "title", "description"];
    let Value::Object(members) = value else { return false };
    let is_part = |value: &Value| value.is_object() || value.is_boolean();
    members.get("type").is_some_and(|kind| kind == "object")
        && members.keys().all(|name| WORDS.contains(&name.as_str()))
        && members.get("properties").is_none_or(|all| all.as_object().is_some_and(|all| all.values().all(is_part)))
}

/// Returns the member of a delta that holds content which cannot be read, if there is one.
pub(super) fn unreadable_member(rest: &Map<String, Value>) -> Option<&'static str> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    CONTENT.into_iter().find(|name| rest.get(*name).is_some_and(|value| !is_empty(value)))
}

/// Returns the members of a delta that are kept with the answer.
pub(super) fn with_answer(mut rest: Map<String, Value>) -> Map<String, Value> {
    rest.retain(|name, _| !ABOUT.contains(&name.as_str()) && !CONTENT.contains(&name.as_str()));
    rest
}

/// Returns the members of a call's piece that are kept with it.
pub(super) fn with_call(mut rest: Map<String, Value>) -> Map<String, Value> {
    rest.retain(|name, _| !WRITTEN_CALL.contains(&name.as_str()));
    if let Some(function) = rest.shift_remove(FUNCTION) {
        let function = with_function(function);
        if !function.is_empty() {
            rest.insert(FUNCTION.to_owned(), function.into());
        }
    }
    rest
}

/// Returns the members of a function that are kept with its call.
fn with_function(function: Value) -> Map<String, Value> {
    let Value::Object(mut members) = function else { return Map::new() };
    members.retain(|name, value| !value.is_null() && !WRITTEN_FUNCTION.contains(&name.as_str()));
    members
}

/// Takes the members that go back with the function of a call out of those that go back with the call.
pub(super) fn take_function_members(call: &mut Map<String, Value>) -> Map<String, Value> {
    call.shift_remove(FUNCTION).map(with_function).unwrap_or_default()
}

/// Returns the signature of a call with these members. One that has Google's alone is signed with it as it is.
pub(super) fn signature_of(members: Map<String, Value>) -> Option<String> {
    match members.get(EXTRA) {
        Some(extra @ Value::Object(inner)) if members.len() == 1 && inner.contains_key("google") => {
            Some(extra.to_string())
        }
        Some(_) | None => (!members.is_empty()).then(|| Value::from(members).to_string()),
    }
}

/// Returns the part of the content that a thought is signed with, if it is one: Mistral's or Databricks'.
pub(super) fn content_part(signature: Option<&str>) -> Option<Value> {
    let part = kept_members::parse_object(signature);
    let is_thinking = part.get("type").and_then(Value::as_str).is_some_and(|kind| THINKING.contains(&kind));
    (is_thinking || part.contains_key("thinking")).then(|| part.into())
}

/// Members that go back with a message in addition to those written from its parts.
#[derive(Default)]
pub(super) struct ReturnedMembers {
    members: Map<String, Value>,
    late: Vec<LateMembers>,
}

impl ReturnedMembers {
    /// Begins with the members that were kept with the whole answer.
    pub(super) fn new(payload: Option<&str>) -> Self {
        let mut members = kept_members::payload_members(payload);
        members.retain(|name, _| !WRITTEN.contains(&name.as_str()));
        Self { members, late: kept_members::late_members(payload) }
    }

    /// Adds a thought, under the name of the member that it came in.
    pub(super) fn add_thought(&mut self, text: &str, signature: Option<&str>) {
        let Some(name) = signature.and_then(|signature| THOUGHTS.into_iter().find(|name| *name == signature)) else {
            return;
        };
        match self.members.get_mut(name) {
            Some(Value::String(thought)) => thought.push_str(text),
            Some(_) => {}
            None => drop(self.members.insert(name.to_owned(), text.into())),
        }
    }

    /// Returns the members of the call with this id, that is signed so, and those that came late for it.
    pub(super) fn call_members(&mut self, id: &str, signature: Option<&str>) -> Map<String, Value> {
        let mut members = self.call_signed(signature);
        for late in self.late.iter_mut().filter(|late| late.call.as_deref() == Some(id)) {
            members.extend(with_call(std::mem::take(&mut late.members)));
        }
        members
    }

    /// Returns the members of a call that is signed so. Sealed reasoning of other programs is kept with a call there, and goes
    /// back with the message.
    fn call_signed(&mut self, signature: Option<&str>) -> Map<String, Value> {
        let members = kept_members::parse_object(signature);
        if members.contains_key("google") {
            return Map::from_iter([(EXTRA.to_owned(), members.into())]);
        }
        if members.get("type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("reasoning.")) {
            if let Value::Array(details) = self.members.entry(DETAILS).or_insert_with(|| Value::Array(Vec::new())) {
                details.push(members.into());
            }
            return Map::new();
        }
        with_call(members)
    }

    /// Ends a message. Thoughts go back with calls only: a provider that asks for them asks for those that led to
    /// calls, and DeepSeek's older models refuse any other. `owed` is the member in which this provider wants a thought
    /// with every call, if only an empty one.
    pub(super) fn into_members(mut self, calls: usize, owed: Option<&'static str>) -> Map<String, Value> {
        if calls == 0 {
            self.members.retain(|name, _| !THOUGHTS.contains(&name.as_str()));
        } else if let Some(name) = owed {
            self.members.entry(name).or_insert_with(|| "".into());
        }
        self.members
    }

    /// Reports whether a thought is among the members under this name.
    pub(super) fn has_member(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }
}
