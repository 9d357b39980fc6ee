//! Checks the parts of a content and places the members next to it: the list in which Snowflake repeats the content, with
//! its calls among it, and calls that are parts.
//!
//! It must not know the answer that the deltas make. Sources: the pages of Databricks (reasoning models) and Snowflake
//! (Cortex REST API).

use serde_json::{Map, Value};

use super::{
    frame::{CompletionsDelta, ContentPart, DeltaContent, FunctionDelta, ToolCallDelta},
    provider_extensions,
};
use crate::{
    ModelFailure,
    wire::{
        is_same_json, malformed_stream,
        unplaced::{ContentRule, check_placed},
        unreadable_content,
    },
};

/// Types of deltas of Snowflake, each with the members in which such a delta is a part of its list once more.
const OWN: [(&str, &[&str]); 3] = [
    ("text", &["type", "text"]),
    ("tool_use", &["type", "text", "tool_use_id", "name", "input"]),
    ("anthropic", &["type", "text", "thinking", "signature"]),
];

/// The member of a part that holds a call, if the part does not hold it itself.
const TOOL_USE: &str = "tool_use";

/// Checks that everything in a part can be read.
///
/// # Errors
/// [`crate::FailureKind::Refused`], naming the member or the type.
pub(super) fn check_part(part: &ContentPart) -> Result<(), ModelFailure> {
    check_placed(&part.rest, ContentRule::Content)?;
    if part.thought_text().is_some() || part.answer_texts().next().is_some() || only_tells(part) {
        return Ok(());
    }
    Err(unreadable_content(&format!("a part of type {:?}", part.r#type.as_deref().unwrap_or_default())))
}

/// Reports whether a part only holds the source of a text.
fn only_tells(part: &ContentPart) -> bool {
    match part.r#type.as_deref() {
        Some("reference") => true,
        Some("text" | "output_text") | None => part.rest.keys().all(|name| provider_extensions::only_tells(name)),
        Some(_) => false,
    }
}

/// Puts all data of a delta into its `content` and its `tool_calls`, each once.
///
/// # Errors
/// [`crate::FailureKind::Broken`] if the list says another text than the content, and what [`check_part`] refuses.
pub(super) fn place_content(delta: &mut CompletionsDelta) -> Result<(), ModelFailure> {
    let own = own_part(&mut delta.rest);
    if let Some(DeltaContent::Parts(parts)) = &mut delta.content {
        let calls = take_calls(parts)?;
        merge_calls(&mut delta.tool_calls, calls);
    }
    if let Some(list) = delta.content_list.take() {
        add_parts(delta, list)?;
    }
    own.map_or(Ok(()), |own| add_parts(delta, vec![own]))
}

/// Takes the part that a delta is itself.
fn own_part(rest: &mut Map<String, Value>) -> Option<ContentPart> {
    let kind = rest.get("type").and_then(Value::as_str)?;
    let (_, names) = OWN.into_iter().find(|(own, _)| *own == kind)?;
    let members = names.iter().filter_map(|name| Some(((*name).to_owned(), rest.get(*name)?.clone())));
    let part = serde_json::from_value(Value::Object(members.collect())).ok()?;
    rest.retain(|name, _| !names.contains(&name.as_str()));
    Some(part)
}

/// Adds parts that may repeat other texts of the delta.
fn add_parts(delta: &mut CompletionsDelta, mut parts: Vec<ContentPart>) -> Result<(), ModelFailure> {
    let calls = take_calls(&mut parts)?;
    merge_calls(&mut delta.tool_calls, calls);
    parts.iter().try_for_each(check_part)?;
    let listed: String = parts.iter().flat_map(ContentPart::answer_texts).collect();
    let known = match delta.content.take() {
        Some(DeltaContent::Text(text)) if text.is_empty() => Vec::new(),
        Some(DeltaContent::Text(text)) => vec![ContentPart { text: Some(text), ..ContentPart::default() }],
        Some(DeltaContent::Parts(parts)) => parts,
        None => Vec::new(),
    };
    let known_text: String = known.iter().flat_map(ContentPart::answer_texts).collect();
    if known.iter().any(|part| part.thought_text().is_some()) {
        parts.retain(|part| part.thought_text().is_none());
    }
    let all: Vec<_> = if known_text.is_empty() {
        known.into_iter().chain(parts).collect()
    } else if known_text.contains(listed.trim()) {
        parts.retain(|part| part.thought_text().is_some());
        // Thinking comes before the text.
        parts.into_iter().map(ContentPart::without_answer_texts).chain(known).collect()
    } else {
        return Err(malformed_stream("the content list of a delta does not match its content"));
    };
    delta.content = (!all.is_empty()).then_some(DeltaContent::Parts(all));
    Ok(())
}

/// Takes the calls out of a list of parts. What else their parts say stays.
fn take_calls(parts: &mut Vec<ContentPart>) -> Result<Vec<ToolCallDelta>, ModelFailure> {
    let mut calls = Vec::new();
    for part in parts.iter_mut().filter(|part| is_call(part)) {
        let call = call_of(std::mem::take(&mut part.rest));
        check_placed(&call.rest, ContentRule::Content)?;
        calls.push(call);
        part.r#type = None;
    }
    parts.retain(|part| part.r#type.is_some() || !part.is_empty());
    Ok(calls)
}

/// Reports whether a part is a call or a piece of one. Snowflake's pieces have no type.
fn is_call(part: &ContentPart) -> bool {
    let has = |name: &str| part.rest.contains_key(name);
    match part.r#type.as_deref() {
        Some(kind) => kind == TOOL_USE,
        None => has(TOOL_USE) || has("tool_use_id") || has("input"),
    }
}

fn call_of(mut members: Map<String, Value>) -> ToolCallDelta {
    if let Some(Value::Object(inner)) = members.shift_remove(TOOL_USE) {
        members.extend(inner);
    }
    let mut text = |names: &[&str]| {
        names.iter().find_map(|name| match members.shift_remove(*name) {
            Some(Value::String(text)) => Some(text),
            Some(_) | None => None,
        })
    };
    let (id, name) = (text(&["tool_use_id", "id"]), text(&["name"]));
    // A call often begins with an empty object: its arguments come in pieces, or there are none.
    let is_empty = |input: &Value| input.as_object().is_some_and(Map::is_empty);
    let arguments = members.shift_remove("input").filter(|input| !is_empty(input));
    let function = FunctionDelta { name, arguments, rest: Map::new() };
    ToolCallDelta { index: None, id, function: Some(function), rest: members }
}

/// Adds calls, other than those that are known already: each known call is repeated once at the most.
fn merge_calls(known: &mut Option<Vec<ToolCallDelta>>, calls: Vec<ToolCallDelta>) {
    if calls.is_empty() {
        return;
    }
    let known = known.get_or_insert_default();
    let mut open: Vec<usize> = (0..known.len()).collect();
    for call in calls {
        match open.iter().position(|at| is_same(&known[*at], &call)) {
            Some(at) => {
                let function = known[open.remove(at)].function.get_or_insert_default();
                if function.arguments_text().is_none_or(|text| text.trim().is_empty()) {
                    function.arguments = call.function.and_then(|function| function.arguments);
                }
            }
            None => known.push(call),
        }
    }
}

/// Reports whether one call may be the other: no member that both have differs.
fn is_same(one: &ToolCallDelta, other: &ToolCallDelta) -> bool {
    let same = |one: Option<&String>, other: Option<&String>| match (one, other) {
        (Some(one), Some(other)) => one.is_empty() || other.is_empty() || one == other,
        (Some(_), None) | (None, Some(_)) | (None, None) => true,
    };
    let name = |call: &ToolCallDelta| call.function.as_ref().and_then(|function| function.name.clone());
    let arguments =
        |call: &ToolCallDelta| call.function.as_ref().and_then(FunctionDelta::arguments_text).unwrap_or_default();
    let (left, right) = (arguments(one), arguments(other));
    same(one.id.as_ref(), other.id.as_ref())
        && same(name(one).as_ref(), name(other).as_ref())
        && (left.trim().is_empty() || right.trim().is_empty() || is_same_json(&left, &right))
}
