//! Finds content in members that no wire reads, so that unread content never ends as success, and errors and
//! remarks in events that are no part of an answer.
//!
//! It must not know a wire. One rule holds for all of them: a member holds content if its name says so, such as
//! `output_text` or `transcript`, or if it holds prose, which is a text with white space in it. Data without white space
//! under any other name is opaque: a seal, an id, a state. Data about an answer, and the thoughts of a model, are
//! no content.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserializer as _,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use super::{parse_json, unreadable_content};
use crate::ModelFailure;

/// Last words of names whose members hold the model's text or a call.
const CONTENT: [&str; 17] = [
    "text",
    "content",
    "transcript",
    "output",
    "answer",
    "message",
    "response",
    "completion",
    "refusal",
    "code",
    "json",
    "delta",
    "argument",
    "arg",
    "input",
    "parameter",
    CALL,
];

/// The last word of names whose members hold calls.
const CALL: &str = "call";

/// Words of [`CONTENT`] whose members hold calls or arguments: an object there counts even if no text is in it.
const ARGUMENTS: [&str; 5] = ["argument", "arg", "input", "parameter", CALL];

/// Words of [`CONTENT`] that some servers give to data about an answer, such as `"message": "Success"`.
const VAGUE: [&str; 7] = ["message", "code", "json", "argument", "arg", "input", "parameter"];

/// Words of [`CONTENT`] whose members hold a whole answer with its own members.
const HOLDERS: [&str; 10] =
    ["text", "content", "transcript", "output", "answer", "message", "response", "completion", "refusal", "delta"];

/// Words of names whose members report that the provider failed.
const FAILURES: [&str; 4] = ["error", "exception", "fault", "traceback"];

/// Last words of names of [`FAILURES`] in more words.
const FAILURE_TEXTS: [&str; 6] = ["message", "msg", "detail", "description", "text", "info"];

/// Texts of [`FAILURES`] that say that there is none.
const NO_FAILURE: [&str; 6] = ["success", "ok", "none", "no error", "false", "null"];

/// First words of names whose members, next to an answer, repeat the request.
const ECHOES: [&str; 4] = ["prompt", "input", "query", "instruction"];

/// Last words of names whose members only hold data about an answer.
const ABOUT: [&str; 28] = [
    "annotation",
    "citation",
    "reference",
    "rating",
    "logprob",
    "metadata",
    "usage",
    "role",
    "name",
    "type",
    "format",
    "language",
    "id",
    "index",
    "status",
    "phase",
    "reason",
    "model",
    "provider",
    "object",
    "context",
    "channel",
    "tool",
    "url",
    "created",
    "timestamp",
    "obfuscation",
    "padding",
];

/// Words of names whose members hold thoughts of a model, or data that only the provider can read.
const SEALED: [&str; 6] = ["reasoning", "thinking", "thought", "signature", "encrypted", "opaque"];

/// Rule for the part of a member that counts as content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentRule {
    /// The rule of this module.
    Content,
    /// Any text: nothing that is not known may be there.
    AnyText,
    /// A call, or a text whose name says that it is content: other texts there are mostly data about an answer.
    NamedText,
}

/// Returns the member of these that holds content.
pub(crate) fn find_unplaced(members: &Map<String, Value>, rule: ContentRule) -> Option<&str> {
    members.iter().find(|(name, value)| is_content(name, value, rule)).map(|(name, _)| name.as_str())
}

/// Refuses members that hold content and that are read nowhere.
///
/// # Errors
/// [`crate::FailureKind::Refused`], naming the member.
pub(crate) fn check_placed(members: &Map<String, Value>, rule: ContentRule) -> Result<(), ModelFailure> {
    find_unplaced(members, rule).map_or(Ok(()), |name| Err(unreadable_content(name)))
}

/// Returns the member of a JSON object that holds content, other than the `known` ones.
///
/// # Errors
/// [`crate::FailureKind::Broken`] if it is no object.
pub(crate) fn find_unplaced_in(
    raw: &RawValue,
    known: &[&str],
    rule: ContentRule,
) -> Result<Option<String>, ModelFailure> {
    let members: BTreeMap<String, &RawValue> = parse_json(raw.get())?;
    for (name, raw) in members.into_iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        if is_content(&name, &parse_json(raw.get())?, rule) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Role of an event for the answer in whose stream it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventRole {
    /// Part of the answer, or nothing that matters to it.
    Part,
    /// A message outside the answer: the reason why no end of it follows, if none does.
    Remark,
    /// An error by a name that is not one of the wire.
    Failure,
    /// An error in the form of the wire.
    Error,
}

/// Reports whether a value in JSON is an object without members or a text without letters.
fn is_empty_json(raw: &str) -> bool {
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::Object(members)) => members.is_empty(),
        Ok(Value::String(text)) => text.is_empty(),
        Ok(_) | Err(_) => false,
    }
}

/// Judges the events of one answer.
///
/// Nearly all events of a stream have the same members, so that the names of texts beside the answer are judged once.
pub(crate) struct EventJudge {
    /// Members of events that the wire reads.
    known: &'static [&'static str],
    /// Names under which a text is neither content nor an error.
    harmless: Vec<String>,
}

impl EventJudge {
    /// The most names that are kept: a server may send another one with each event.
    const MOST: usize = 16;

    /// The longest name that is kept, in bytes.
    const LONGEST: usize = 64;

    /// Returns a judge of a wire that reads the `known` members.
    pub(crate) fn new(known: &'static [&'static str]) -> Self {
        Self { known, harmless: Vec::new() }
    }

    /// Returns the role of an event.
    ///
    /// # Errors
    /// [`crate::FailureKind::Refused`], naming another member that holds content.
    pub(crate) fn event_role(&mut self, data: &str) -> Result<EventRole, ModelFailure> {
        let known = self.known;
        if self.is_plain_part(data).unwrap_or(false) { Ok(EventRole::Part) } else { event_role(data, known) }
    }

    /// Reports whether an event is part of the answer for certain, without its values being read. If not, [`event_role`] decides.
    fn is_plain_part(&mut self, data: &str) -> serde_json::Result<bool> {
        let mut reader = serde_json::Deserializer::from_str(data);
        let is_plain = reader.deserialize_map(PlainEventVisitor(self))?;
        reader.end()?;
        Ok(is_plain)
    }

    /// Reports whether a text under this name is neither content nor an error.
    fn is_harmless(&mut self, name: &str) -> bool {
        if self.harmless.iter().any(|harmless| harmless == name) {
            return true;
        }
        let words = name_words(name);
        let is_named = |words: &[&str], word: Option<&String>| word.is_some_and(|word| words.contains(&word.as_str()));
        let (first, last) = (words.first(), words.last());
        let is_harmless = !is_named(&CONTENT, last) && !is_named(&FAILURES, last) && !is_named(&FAILURES, first);
        if is_harmless && self.harmless.len() < Self::MOST && name.len() <= Self::LONGEST {
            self.harmless.push(name.to_owned());
        }
        is_harmless
    }
}

/// Reads an event for [`EventJudge::is_plain_part`].
struct PlainEventVisitor<'a>(&'a mut EventJudge);

impl<'de> Visitor<'de> for PlainEventVisitor<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        let (mut has_answer, mut is_plain) = (false, true);
        while let Some(name) = members.next_key::<&str>()? {
            let raw = members.next_value::<&RawValue>()?.get();
            if raw == "null" {
                continue;
            }
            let is_known = self.0.known.contains(&name);
            has_answer |= is_known || name == "type";
            is_plain &= match name {
                "error" | "message" | "detail" => false,
                "type" | "object" => raw != "\"error\"",
                _ if is_known => true,
                _ if raw.starts_with('"') => self.0.is_harmless(name),
                _ => !raw.starts_with(['{', '[']),
            };
        }
        Ok(has_answer && is_plain)
    }
}

/// Returns the role of an event for an answer over a wire that has the `known` members there.
///
/// # Errors
/// [`crate::FailureKind::Refused`], naming another member that holds content.
fn event_role(data: &str, known: &[&str]) -> Result<EventRole, ModelFailure> {
    let Ok(mut all) = serde_json::from_str::<BTreeMap<String, &RawValue>>(data) else { return Ok(EventRole::Part) };
    // An error that says nothing is none.
    all.retain(|name, raw| raw.get() != "null" && !(name == "error" && is_empty_json(raw.get())));
    let is_error = |name: &str| all.get(name).is_some_and(|raw| raw.get() == "\"error\"");
    let is_known = |name: &str| known.contains(&name);
    // A wire whose events have types has no message without one.
    let is_part = all.contains_key("type")
        || all.iter().any(|(name, raw)| is_known(name) && !(name == "message" && raw.get().starts_with('"')));
    let known_names: Vec<&str> = known.iter().copied().filter(|name| all.contains_key(*name)).collect();
    let is_well = is_part && all.iter().any(|(name, raw)| is_zero_code(name, raw.get()));
    let is_other_error = is_known("error") && all.contains_key("error");
    let is_wire_error = is_other_error || ["type", "object"].iter().any(|name| is_known(name) && is_error(name));
    let is_typed_error = is_error("type");
    let is_remark = !is_part && ["message", "detail"].iter().any(|name| is_said(all.get(*name).copied()));
    let members: Map<String, Value> = all
        .into_iter()
        .filter(|(name, _)| !is_known(name))
        .filter_map(|(name, raw)| Some((name, serde_json::from_str(raw.get()).ok()?)))
        .collect();
    // The code that no error occurred says so of a text, not of an error in the form of a wire.
    let fails = |name: &str, value: &Value| {
        is_failure(name, value) && !(is_well && value.is_string() && !FAILURES.contains(&name))
    };
    if is_wire_error || members.get("error").is_some_and(|error| fails("error", error)) {
        return Ok(EventRole::Error);
    }
    if is_typed_error || members.iter().any(|(name, value)| fails(name, value)) {
        return Ok(EventRole::Failure);
    }
    // If an event holds only an id, a message may be the answer.
    let has_status = || !is_part || known_names.iter().any(|name| is_answer(name));
    let is_beside = |name: &str, value: &Value| is_echo(name) || (value.is_string() && is_status(name) && has_status());
    match members
        .iter()
        .find(|(name, value)| is_content(name, value, ContentRule::NamedText) && !is_beside(name, value))
    {
        Some((name, _)) => Err(unreadable_content(&format!("an event with {name}"))),
        None if is_remark => Ok(EventRole::Remark),
        None => Ok(EventRole::Part),
    }
}

/// Reports whether `data` ends a stream and gives no reason.
pub(crate) fn is_end_without_reason(data: &str) -> bool {
    let kind = || serde_json::from_str::<Value>(data).ok()?.get("type")?.as_str().map(|kind| kind == "message_stop");
    data.trim() == "[DONE]" || kind() == Some(true)
}

/// Reports whether a member of a wire holds some of an answer, and not only data about it.
fn is_answer(name: &str) -> bool {
    let words = name_words(name);
    let last = words.last().map_or("", String::as_str);
    name == "type" || !(ABOUT.contains(&last) || FAILURES.contains(&last))
}

/// Reports whether a member is the code that no error occurred.
fn is_zero_code(name: &str, json: &str) -> bool {
    ["0", "\"0\""].contains(&json) && name_words(name).last().is_some_and(|last| last == "code")
}

/// Reports whether a member repeats the request, by its name.
fn is_echo(name: &str) -> bool {
    name_words(name).first().is_some_and(|first| ECHOES.contains(&first.as_str()))
}

/// Reports whether a member is the status of a request, by its name.
fn is_status(name: &str) -> bool {
    ["message", "code"].contains(&name) || name_words(name).first().is_some_and(|first| first == "status")
}

fn is_said(raw: Option<&RawValue>) -> bool {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).is_some_and(|value| !is_empty(&value))
}

/// Reports whether a member says that the provider failed.
fn is_failure(name: &str, value: &Value) -> bool {
    // Nearly all members of an event are of this kind, and the words of a name cost more to find.
    if matches!(value, Value::Null | Value::Bool(_) | Value::Number(_)) || is_empty(value) {
        return false;
    }
    let words = name_words(name);
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return false };
    let is_text = FAILURES.contains(&first.as_str()) && FAILURE_TEXTS.contains(&last.as_str());
    let is_denied = || value.as_str().is_some_and(|text| NO_FAILURE.contains(&text.trim().to_lowercase().as_str()));
    (is_text || FAILURES.contains(&last.as_str())) && !is_denied()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn is_content(name: &str, value: &Value, rule: ContentRule) -> bool {
    if rule == ContentRule::NamedText {
        return is_named_text(name, value, false);
    }
    let Some(last) = content_word(name, value) else { return false };
    match value {
        Value::String(text) => {
            let is_named = CONTENT.contains(&last.as_str());
            !text.is_empty() && (is_named || rule == ContentRule::AnyText || text.contains(char::is_whitespace))
        }
        Value::Array(items) => items.iter().any(|item| is_content(name, item, rule)),
        Value::Object(members) => {
            (ARGUMENTS.contains(&last.as_str()) && !members.is_empty())
                || members.iter().any(|(name, value)| is_content(name, value, rule))
        }
        _ => false,
    }
}

/// Returns the last word of a member's name. `None` if the member holds no content: by its value, or by its name.
fn content_word(name: &str, value: &Value) -> Option<String> {
    // Nearly all members of an event are of this kind, and the words of a name cost more to find.
    if matches!(value, Value::Null | Value::Bool(_) | Value::Number(_)) {
        return None;
    }
    let mut words = name_words(name);
    let is_sealed = words.iter().any(|word| SEALED.contains(&word.as_str()));
    Some(words.pop().unwrap_or_default()).filter(|last| !is_sealed && !ABOUT.contains(&last.as_str()))
}

/// Reports whether a member is a call or a text by its name, or holds one. `is_inside` of a member that holds a whole answer.
fn is_named_text(name: &str, value: &Value, is_inside: bool) -> bool {
    let Some(last) = content_word(name, value) else { return false };
    let last = last.as_str();
    match value {
        Value::String(text) if VAGUE.contains(&last) => text.trim().contains(char::is_whitespace),
        Value::String(text) => CONTENT.contains(&last) && !text.is_empty(),
        Value::Array(items) => items.iter().any(|item| is_named_text(name, item, is_inside)),
        Value::Object(members) => {
            let is_inside = is_inside || HOLDERS.contains(&last);
            (last == CALL && !members.is_empty())
                || (is_inside && members.iter().any(|(name, value)| is_named_text(name, value, true)))
        }
        _ => false,
    }
}

/// Returns the words of a name in `snake_case` or `camelCase`, in lower case and without the `s` of a plural.
pub(super) fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let is_break = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        was_lower = c.is_lowercase();
        if is_break && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            if c.is_ascii() {
                word.push(c.to_ascii_lowercase());
            } else {
                word.extend(c.to_lowercase());
            }
        }
    }
    for word in &mut words {
        if word.strip_suffix('s').is_some_and(|one| !one.ends_with('u')) {
            word.pop();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ContentRule, EventRole, event_role, find_unplaced};

    #[test]
    fn a_member_holds_content_if_its_name_or_its_text_says_so() {
        let seal = "c2VhbA==";
        for (members, content, any, named) in [
            (json!({"output_text": "Hi"}), true, true, true),
            (json!({"outputText": "Hi"}), true, true, true),
            (json!({"audio": {"id": "a", "transcript": "Hi"}}), true, true, false),
            (json!({"parameters": {"p": 1}}), true, true, false),
            (json!({"toolInput": [{"p": 1}]}), true, true, false),
            (json!({"whatever": "two words"}), true, true, false),
            (json!({"whatever": [{"inner": "two words"}]}), true, true, false),
            (json!({"seal": seal}), false, true, false),
            (json!({"data": {"more": seal}}), false, true, false),
            (json!({"output_text": "", "arguments": {}, "content": null, "code": 7}), false, false, false),
            (json!({"reasoning_text": "a thought", "thoughtSignature": seal}), false, false, false),
            (json!({"encrypted_content": seal, "reasoning_details": [{"text": "a b"}]}), false, false, false),
            (json!({"role": "assistant", "finish_reason": "a b", "citations": [{"text": "a b"}]}), false, false, false),
            (json!({"output_index": 1, "input_id": "x", "phase": "final answer"}), false, false, false),
            (json!({"message": {"role": "assistant", "content": "Hi"}}), true, true, true),
            (json!({"output": {"choices": [{"delta": {"text": "Hi"}}]}}), true, true, true),
            (json!({"tool_calls": [{"id": "a", "function": {"name": "ls"}}]}), true, true, true),
            (json!({"content": [{"type": "image", "data": seal}]}), false, true, false),
            (json!({"message": "Success", "code": "ok", "tool_calls": []}), true, true, false),
        ] {
            let Value::Object(members) = members else { panic!("an object") };
            let got = [ContentRule::Content, ContentRule::AnyText, ContentRule::NamedText]
                .map(|rule| find_unplaced(&members, rule).is_some());
            assert_eq!(got, [content, any, named], "{members:?}");
        }
    }

    #[test]
    fn members_next_to_an_answer_are_harmless_unless_they_are_prose_or_an_error() {
        for harmless in [
            json!({"id": "r", "model": "m", "system_fingerprint": "fp_1", "service_tier": "default", "created": 1}),
            json!({"x_groq": {"id": "req_1", "usage": {"queue_time": 0.1}}, "provider": "Some Provider Inc"}),
            json!({"prompt_filter_results": [{"content_filter_results": {"hate": {"severity": "safe"}}}]}),
            json!({"citations": ["https://a.example"], "search_results": [{"title": "a b", "snippet": "c d"}]}),
            json!({"web_search": [{"title": "a b", "content": "what a page says"}]}),
            json!({"timings": {"prompt_n": 1}, "usage": {"prompt_tokens_details": {"text_tokens": 1}}}),
            json!({"code": 0, "message": "Success", "sid": "cha000"}),
            json!({"id": "r", "code": "", "message": "", "error": null, "errors": [], "detail": null}),
            json!({"base_resp": {"status_code": 0, "status_msg": ""}, "error_code": 0, "error_msg": ""}),
            json!({"amazon-bedrock-trace": {"guardrail": {"input": {"text": "a b"}}}, "warnings": ["a b"]}),
            json!({"type": "heartbeat", "detail": "please go on waiting for it"}),
            json!({"response_format": {"type": "text"}, "max_tool_calls": 3, "parallel_tool_calls": true}),
            json!({"id": "r", "prompt_text": "a b", "input_text": "a", "queryText": "a b", "instructions": "a b"}),
            json!({"id": "r", "input": [{"content": "a b"}]}),
            json!({"choices": [], "code": "200 OK", "message": "request completed successfully"}),
            json!({"choices": [], "status_code": "200 OK", "status_message": "ok all good", "status": "a b"}),
            json!({"choices": [], "error_code": 0, "error_msg": "success"}),
            json!({"choices": [], "errorMessage": "None", "has_error": "false", "error_info": "No error "}),
            json!({"choices": [], "error_code": 0, "error_msg": "finished without one"}),
            json!({"choices": [], "code": "0", "error_msg": "finished without one"}),
            json!({"error_code": 0, "error_msg": "success"}),
        ] {
            let got = event_role(&harmless.to_string(), &["id", "choices", "sid", "usage", "code"]);
            assert_eq!(got, Ok(EventRole::Part), "{harmless}");
        }
        let lost = "the answer holds content that cannot be read: an event with ";
        for (data, want) in [
            (json!({"id": "r", "output_text": "lost"}), format!("{lost}output_text")),
            (json!({"id": "r", "content": "lost"}), format!("{lost}content")),
            (json!({"id": "r", "message": "lost words"}), format!("{lost}message")),
            (json!({"id": "r", "message": {"content": "lost"}}), format!("{lost}message")),
            (json!({"text": "lost"}), format!("{lost}text")),
            (json!({"id": "r", "tool_calls": [{"id": "a"}]}), format!("{lost}tool_calls")),
            (json!({"message": {"content": "lost"}}), format!("{lost}message")),
            (json!({"message": "queued", "output_text": "lost"}), format!("{lost}output_text")),
            (json!({"choices": [], "message": {"content": "lost"}}), format!("{lost}message")),
            (json!({"choices": [], "message": [{"text": "lost words"}]}), format!("{lost}message")),
            (json!({"choices": [], "status": "ok", "answer": "lost"}), format!("{lost}answer")),
        ] {
            let got = event_role(&data.to_string(), &["id", "choices"]).unwrap_err();
            assert_eq!(got.message, want, "{data}");
        }
        for (data, want) in [
            (json!({"detail": "engine died badly"}), EventRole::Remark),
            (json!({"detail": [{"msg": "no"}]}), EventRole::Remark),
            (json!({"message": "queued"}), EventRole::Remark),
            (json!({"level": "info", "message": "request finished in time"}), EventRole::Remark),
            (json!({"code": "200 OK", "message": "request finished in time"}), EventRole::Remark),
            (json!({"id": "r", "type": "error", "message": "boom"}), EventRole::Failure),
            (json!({"error_msg": "boom"}), EventRole::Failure),
            (json!({"code": 0, "error_msg": "boom"}), EventRole::Failure),
            (json!({"choices": [], "error_code": 7, "error_msg": "boom"}), EventRole::Failure),
            (json!({"choices": [], "code": 0, "errors": ["boom"]}), EventRole::Failure),
            (json!({"id": "r", "error": "boom"}), EventRole::Error),
            (json!({"id": "r", "code": 0, "error": "boom"}), EventRole::Error),
        ] {
            assert_eq!(event_role(&data.to_string(), &["id", "choices"]), Ok(want), "{data}");
        }
        for (data, want) in [
            (json!({"message": "done"}), EventRole::Remark),
            (json!({"type": "error", "message": "boom"}), EventRole::Error),
            (json!({"message": {"id": "m"}}), EventRole::Part),
        ] {
            assert_eq!(event_role(&data.to_string(), &["type", "message"]), Ok(want), "{data}");
        }
    }
}
