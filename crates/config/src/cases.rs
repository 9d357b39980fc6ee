//! Cases that a rules file is tested with: a request, and the expected action.
//!
//! ```yaml
//! tests:
//!   - { request: "ha_call_service domain=light service=turn_on entity_id=light.bedroom", expect: ask }
//!   - { request: { tool: ha_fire_event, args: { event_type: x, count: 3 } }, expect: deny, description: never }
//! ```
//!
//! `agent` names the agent of the request; the default is the one called `default`. In the short form every value is text, as on the
//! command line; quotes hold blanks together.

use std::path::PathBuf;

use countersign_core::policy::RuleAction;
use serde_json::{Map, Value};

use super::{config_field::ConfigField, typed_values::read_action};

/// The id of the agent that has no other: that of the section `agent`.
pub const DEFAULT_AGENT: &str = "default";

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyCase {
    /// Tool of the request.
    pub tool: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The id of the agent that asks.
    pub agent: String,
    /// Expected action.
    pub expect: RuleAction,
    /// For people.
    pub description: Option<String>,
    /// The file of the case.
    pub file: PathBuf,
    /// Its line, counted from 1.
    pub line: u64,
}

/// A request in the short form is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request is empty.
    #[error("expected the name of a tool")]
    Empty,
    /// A word after the tool is not `key=value`.
    #[error("expected key=value after the tool")]
    Argument,
    /// A key is there twice.
    #[error("duplicate argument")]
    Twice,
    /// A quote is not closed.
    #[error("unclosed quote")]
    Quote,
}

/// Reads `TOOL key=value …`.
///
/// # Errors
/// [`RequestError`]
pub fn parse_request(text: &str) -> Result<(String, Map<String, Value>), RequestError> {
    let mut words = split_words(text)?.into_iter();
    let tool = words.next().filter(|tool| !tool.is_empty()).ok_or(RequestError::Empty)?;
    let mut args = Map::new();
    for word in words {
        let (key, value) = word.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or(RequestError::Argument)?;
        if args.insert(key.to_owned(), Value::String(value.to_owned())).is_some() {
            return Err(RequestError::Twice);
        }
    }
    Ok((tool, args))
}

/// Words between blanks; quotes of either kind hold blanks together and are taken off.
fn split_words(text: &str) -> Result<Vec<String>, RequestError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in text.chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => word.get_or_insert_default().push(letter),
            None if letter.is_whitespace() => words.extend(word.take()),
            None if letter == '"' || letter == '\'' => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            None => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(RequestError::Quote);
    }
    words.extend(word);
    Ok(words)
}

pub(super) fn read_cases(place: &ConfigField<'_>) -> Vec<PolicyCase> {
    place.items().iter().filter_map(read_case).collect()
}

fn read_case(place: &ConfigField<'_>) -> Option<PolicyCase> {
    if !place.check_item(&["request", "agent", "expect", "description"]) {
        return None;
    }
    let request_field = place.at("request");
    let request = if request_field.is_mapping() { long_request(&request_field) } else { short_request(&request_field) };
    let expect = read_action(&place.at("expect"), "Invalid expectation");
    let (tool, args) = request?;
    Some(PolicyCase {
        tool,
        args,
        agent: place.at("agent").text().unwrap_or_else(|| DEFAULT_AGENT.to_owned()),
        expect: expect?,
        description: place.at("description").text(),
        file: place.notes.file.clone(),
        line: place.line,
    })
}

fn short_request(place: &ConfigField<'_>) -> Option<(String, Map<String, Value>)> {
    parse_request(&place.needed_text()?).map_err(|error| place.report_refusal(error.to_string())).ok()
}

fn long_request(place: &ConfigField<'_>) -> Option<(String, Map<String, Value>)> {
    place.check_mapping(&["tool", "args"]);
    let args = place.at("args");
    let map = match Some(&args).filter(|args| !args.is_absent()).and_then(ConfigField::to_json) {
        None => Some(Map::new()),
        Some(Value::Object(map)) => Some(map),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            args.members();
            None
        }
    };
    Some((place.at("tool").needed_text()?, map?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::{RequestError, parse_request};

    #[test]
    fn a_short_request_is_a_tool_and_texts() {
        for (text, want) in [
            ("t", Ok(("t", vec![]))),
            ("  t  a=1   b=x=y ", Ok(("t", vec![("a", "1"), ("b", "x=y")]))),
            ("t a='two words' b=\"it's\" c=", Ok(("t", vec![("a", "two words"), ("b", "it's"), ("c", "")]))),
            ("bash command='ls -l | wc'", Ok(("bash", vec![("command", "ls -l | wc")]))),
            ("", Err(RequestError::Empty)),
            ("''", Err(RequestError::Empty)),
            ("t a", Err(RequestError::Argument)),
            ("t =a", Err(RequestError::Argument)),
            ("t a=1 a=2", Err(RequestError::Twice)),
            ("t a='x", Err(RequestError::Quote)),
        ] {
            let want = want.map(|(tool, args)| {
                let args: Map<String, Value> =
                    args.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
                (tool.to_owned(), args)
            });
            assert_eq!(parse_request(text), want, "{text}");
        }
    }
}
