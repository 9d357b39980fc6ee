//! Finds content in members that no wire reads, so that what was sent and not read never ends as success.
//!
//! It must not know a wire. One rule holds for all of them: a member holds content if its name says so, such as
//! `output_text` or `transcript`, or if it holds prose, which is a text with white space in it. Data without white space
//! under any other name is opaque: a seal, an id, a state. What only tells about an answer, and what a model thought, is
//! no content.

use std::collections::BTreeMap;

use serde_json::{Map, Value, value::RawValue};

use super::{read, unread};
use crate::Failure;

/// Last words of names whose members hold what the model said or wants to be called.
const CONTENT: [&str; 16] = [
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
];

/// Those of [`CONTENT`] whose members hold arguments: an object there says something even if no text is in it.
const ARGUMENTS: [&str; 4] = ["argument", "arg", "input", "parameter"];

/// Last words of names whose members only tell about an answer.
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

/// Words of names whose members hold what a model thought, or what only the provider can read.
const SEALED: [&str; 6] = ["reasoning", "thinking", "thought", "signature", "encrypted", "opaque"];

/// How much of a member counts as content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// What the rule of this module says.
    Content,
    /// Any text: nothing that is not known may be there.
    AnyText,
    /// A text whose name says that it is content: what stands there mostly tells about an answer.
    NamedText,
}

/// The member of these that holds content.
pub(crate) fn unplaced(members: &Map<String, Value>, rule: Rule) -> Option<&str> {
    members.iter().find(|(name, value)| is_content(name, value, rule)).map(|(name, _)| name.as_str())
}

/// Refuses members that hold content and that are read nowhere.
///
/// # Errors
/// [`crate::FailureKind::Refused`], naming the member.
pub(crate) fn check_placed(members: &Map<String, Value>, rule: Rule) -> Result<(), Failure> {
    unplaced(members, rule).map_or(Ok(()), |name| Err(unread(name)))
}

/// The member of a JSON object that holds content, other than the `known` ones.
///
/// # Errors
/// [`crate::FailureKind::Broken`] if it is no object.
pub(crate) fn unplaced_in(raw: &RawValue, known: &[&str], rule: Rule) -> Result<Option<String>, Failure> {
    let members: BTreeMap<String, &RawValue> = read(raw.get())?;
    for (name, raw) in members.into_iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        if is_content(&name, &read(raw.get())?, rule) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn is_content(name: &str, value: &Value, rule: Rule) -> bool {
    let words = words(name);
    let last = words.last().map_or("", String::as_str);
    if ABOUT.contains(&last) || words.iter().any(|word| SEALED.contains(&word.as_str())) {
        return false;
    }
    let is_named = CONTENT.contains(&last);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) if rule == Rule::NamedText => is_named && !text.is_empty(),
        Value::String(text) => {
            !text.is_empty() && (is_named || rule == Rule::AnyText || text.contains(char::is_whitespace))
        }
        Value::Array(_) | Value::Object(_) if rule == Rule::NamedText => false,
        Value::Array(items) => items.iter().any(|item| is_content(name, item, rule)),
        Value::Object(members) => {
            (ARGUMENTS.contains(&last) && !members.is_empty())
                || members.iter().any(|(name, value)| is_content(name, value, rule))
        }
    }
}

/// The words of a name in `snake_case` or `camelCase`, in lower case and without the `s` of a plural.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let is_break = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        was_lower = c.is_lowercase();
        if is_break && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words
        .iter()
        .map(|word| word.strip_suffix('s').filter(|one| !one.ends_with('u')).unwrap_or(word).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Rule, unplaced};

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
        ] {
            let Value::Object(members) = members else { panic!("an object") };
            let got = [Rule::Content, Rule::AnyText, Rule::NamedText].map(|rule| unplaced(&members, rule).is_some());
            assert_eq!(got, [content, any, named], "{members:?}");
        }
    }
}
