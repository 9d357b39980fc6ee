//! The arguments of a call: checked against the subset of JSON Schema that our specs use, with errors that a model can
//! act on.
//!
//! It must not know any tool.

use countersign_core::tool::ToolSpec;
use serde_json::{Map, Value, json};

use crate::outcome::CallFailure;

/// Name of the argument in which a model gives the purpose of a call.
pub const INTENT: &str = "_i";

/// Adds the intent, a required short string, in front of the properties of an object schema.
pub fn with_intent(schema: &Value) -> Value {
    let mut made = schema.clone();
    let Some(object) = made.as_object_mut() else { return made };
    let mut properties = Map::new();
    let intent = json!({"type": "string", "description": "What this call is for, in a few words (present participle, 2-6 words)."});
    properties.insert(INTENT.to_owned(), intent);
    if let Some(Value::Object(others)) = object.get("properties") {
        properties.extend(others.clone());
    }
    object.insert("properties".to_owned(), Value::Object(properties));
    let mut required = vec![Value::from(INTENT)];
    if let Some(Value::Array(others)) = object.get("required") {
        required.extend(others.iter().filter(|name| *name != INTENT).cloned());
    }
    object.insert("required".to_owned(), Value::Array(required));
    made
}

/// Takes the intent out of the arguments. One that is empty or not a string is dropped.
pub fn strip_intent(mut arguments: Map<String, Value>) -> (Map<String, Value>, Option<String>) {
    let intent = match arguments.shift_remove(INTENT) {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Some(_) | None => None,
    };
    (arguments, intent)
}

/// Checks the arguments of a call against `spec.schema` and returns them ready for [`crate::AgentTool::run`].
///
/// An optional argument that is null counts as absent and is left out; a whole number written as `3.0` becomes `3`. The intent
/// passes with any value, and is not required. Integers must lie within 64 bits.
///
/// # Errors
/// [`CallFailure::Invalid`] that names every path and its problem.
pub fn validate_arguments(spec: &ToolSpec, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
    let mut problems = Vec::new();
    let checked = check_value(&spec.schema, arguments, "", &mut problems);
    match checked {
        Value::Object(map) if problems.is_empty() => Ok(map),
        _ if problems.is_empty() => {
            Err(CallFailure::Invalid(refusal_text(&spec.name, &["arguments must be an object".to_owned()])))
        }
        _ => Err(CallFailure::Invalid(refusal_text(&spec.name, &problems))),
    }
}

/// Gives `value` back without the members of objects that `schema` does not name.
pub(crate) fn keep_known(schema: &Value, value: &Value) -> Value {
    match (value, schema.get("properties").and_then(Value::as_object)) {
        (Value::Object(members), Some(properties)) => {
            let kept = members.iter().filter_map(|(name, value)| match properties.get(name) {
                Some(form) => Some((name.clone(), keep_known(form, value))),
                None => (name == INTENT).then(|| (name.clone(), value.clone())),
            });
            Value::Object(kept.collect())
        }
        (Value::Array(items), _) => match schema.get("items") {
            Some(form) => Value::Array(items.iter().map(|item| keep_known(form, item)).collect()),
            None => value.clone(),
        },
        (other, _) => other.clone(),
    }
}

fn refusal_text(tool: &str, problems: &[String]) -> String {
    let mut text = format!("Invalid arguments for {tool}:");
    for problem in problems {
        text.push_str("\n- ");
        text.push_str(problem);
    }
    text
}

/// Returns `value` in the form for use; problems go to `problems`.
fn check_value(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) -> Value {
    if let Some(Value::Array(forms)) = schema.get("anyOf") {
        return check_any(forms, value, path, problems);
    }
    if let Some(Value::Array(words)) = schema.get("enum")
        && !words.contains(value)
    {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        problems.push(format!("{} must be one of {}, not {}", path_label(path), words.join(", "), brief_value(value)));
        return value.clone();
    }
    let Some(kind) = schema.get("type").and_then(Value::as_str) else { return value.clone() };
    match (kind, value) {
        ("object", Value::Object(members)) => Value::Object(check_object(schema, members, path, problems)),
        ("array", Value::Array(items)) => {
            let form = schema.get("items").unwrap_or(&Value::Null);
            let check_item = |(at, item)| check_value(form, item, &format!("{path}[{at}]"), problems);
            Value::Array(items.iter().enumerate().map(check_item).collect())
        }
        ("integer", Value::Number(_)) => check_integer(schema, value, path, problems),
        ("number", Value::Number(_)) => {
            check_bounds(schema, value, path, problems);
            value.clone()
        }
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("null", Value::Null) => value.clone(),
        (kind, value) => {
            let article = if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
            problems.push(format!("{} must be {article} {kind}, not {}", path_label(path), brief_value(value)));
            value.clone()
        }
    }
}

fn check_any(forms: &[Value], value: &Value, path: &str, problems: &mut Vec<String>) -> Value {
    let mut closest: Option<Vec<String>> = None;
    for form in forms {
        let mut found = Vec::new();
        let checked = check_value(form, value, path, &mut found);
        if found.is_empty() {
            return checked;
        }
        // A form of the right kind with something wrong inside explains more than one of another kind.
        let inside = |found: &[String]| {
            found.iter().all(|problem| !problem.starts_with(&format!("{} must be a", path_label(path))))
        };
        if closest.as_ref().is_none_or(|closest| !inside(closest) && inside(&found)) {
            closest = Some(found);
        }
    }
    problems.extend(closest.unwrap_or_default());
    value.clone()
}

fn check_object(
    schema: &Value,
    members: &Map<String, Value>,
    path: &str,
    problems: &mut Vec<String>,
) -> Map<String, Value> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let open = schema.get("additionalProperties");
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for name in &required {
        if *name != INTENT && !members.contains_key(*name) {
            problems.push(format!("{} is required", path_label(&join_path(path, name))));
        }
    }
    let mut made = Map::new();
    for (name, value) in members {
        let at = join_path(path, name);
        match properties.get(name) {
            _ if path.is_empty() && name == INTENT => {
                made.insert(name.clone(), value.clone());
            }
            Some(_) if value.is_null() && !required.contains(&name.as_str()) => {}
            Some(form) => {
                made.insert(name.clone(), check_value(form, value, &at, problems));
            }
            None => match open {
                Some(form @ Value::Object(_)) => {
                    made.insert(name.clone(), check_value(form, value, &at, problems));
                }
                Some(Value::Bool(true)) => {
                    made.insert(name.clone(), value.clone());
                }
                Some(_) | None => {
                    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                    problems.push(format!("{} is not an argument; known: {}", path_label(&at), known.join(", ")));
                }
            },
        }
    }
    made
}

fn check_integer(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) -> Value {
    /// Above this a float no longer names one whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = match value.as_f64() {
        _ if value.is_i64() || value.is_u64() => value.clone(),
        #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact range")]
        Some(float) if float.fract() == 0.0 && float.abs() < EXACT => Value::from(float as i64),
        Some(_) | None => {
            problems.push(format!("{} must be an integer, not {}", path_label(path), brief_value(value)));
            return value.clone();
        }
    };
    check_bounds(schema, &whole, path, problems);
    whole
}

fn check_bounds(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let bound = |name| schema.get(name).and_then(Value::as_f64);
    let Some(number) = value.as_f64() else { return };
    if let Some(least) = bound("minimum")
        && number < least
    {
        problems.push(format!("{} must be at least {least}, not {value}", path_label(path)));
    }
    if let Some(most) = bound("maximum")
        && number > most
    {
        problems.push(format!("{} must be at most {most}, not {value}", path_label(path)));
    }
}

/// Returns the path of a member.
pub(crate) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn path_label(path: &str) -> &str {
    if path.is_empty() { "arguments" } else { path }
}

/// Formats the value for a message, shortened.
pub(crate) fn brief_value(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::String(text) if text.chars().count() > 40 => {
            format!("{}…", Value::from(text.chars().take(40).collect::<String>()))
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
    use serde_json::{Value, json};

    use super::{strip_intent, validate_arguments, with_intent};
    use crate::outcome::CallFailure;

    fn spec() -> ToolSpec {
        ToolSpec {
            name: "t".to_owned(),
            description: String::new(),
            schema: json!({"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 10},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
                "items": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}},
                "free": {"type": "object", "additionalProperties": true},
                "loc": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["pos"], "properties": {"pos": {"type": "integer"}}}]},
            }}),
            concurrency: CallConcurrency::Shared,
            repeat: RepeatMode::Idempotent,
            effect: ToolEffect::Reads,
            signature: &[],
        }
    }

    #[test]
    fn arguments_that_fit_come_back_ready_for_use() {
        for (given, want) in [
            (json!({"path": "x"}), json!({"path": "x"})),
            (json!({"path": "x", "limit": 3.0}), json!({"path": "x", "limit": 3})),
            (json!({"path": "x", "limit": null}), json!({"path": "x"})),
            (json!({"path": "x", "_i": "looking"}), json!({"path": "x", "_i": "looking"})),
            (json!({"path": "x", "_i": 5}), json!({"path": "x", "_i": 5})),
            (json!({"path": "x", "env": {"A": "1"}}), json!({"path": "x", "env": {"A": "1"}})),
            (json!({"path": "x", "free": {"a": [1]}}), json!({"path": "x", "free": {"a": [1]}})),
            (json!({"path": "x", "loc": {"pos": 4.0}}), json!({"path": "x", "loc": {"pos": 4}})),
            (json!({"path": "x", "mode": "b"}), json!({"path": "x", "mode": "b"})),
        ] {
            assert_eq!(validate_arguments(&spec(), &given).map(Value::Object), Ok(want), "{given}");
        }
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused_by_path_and_problem() {
        for (given, want) in [
            (json!({}), "path is required"),
            (json!(null), "arguments must be an object, not null"),
            (json!({"path": null}), "path must be a string, not null"),
            (json!({"path": 5}), "path must be a string, not 5"),
            (json!({"path": "x", "limit": 0}), "limit must be at least 1, not 0"),
            (json!({"path": "x", "limit": 11}), "limit must be at most 10, not 11"),
            (json!({"path": "x", "limit": 2.5}), "limit must be an integer, not 2.5"),
            (json!({"path": "x", "limit": "2"}), "limit must be an integer, not \"2\""),
            (json!({"path": "x", "mode": "c"}), "mode must be one of \"a\", \"b\", not \"c\""),
            (json!({"path": "x", "env": {"A": 1}}), "env.A must be a string, not 1"),
            (json!({"path": "x", "items": [{"id": "a"}, {}]}), "items[1].id is required"),
            (json!({"path": "x", "items": [{"id": "a", "no": 1}]}), "items[0].no is not an argument; known: id"),
            (json!({"path": "x", "loc": {"pos": "p"}}), "loc.pos must be an integer, not \"p\""),
            (json!({"path": "x", "loc": 5}), "loc must be a string, not 5"),
            (
                json!({"path": "x", "colour": 1}),
                "colour is not an argument; known: path, limit, mode, env, items, free, loc",
            ),
        ] {
            let want = CallFailure::Invalid(format!("Invalid arguments for t:\n- {want}"));
            assert_eq!(validate_arguments(&spec(), &given), Err(want), "{given}");
        }
    }

    #[test]
    fn the_intent_is_offered_first_and_required() {
        let offered = with_intent(&spec().schema);
        assert_eq!(offered["required"], json!(["_i", "path"]));
        assert_eq!(offered["properties"].as_object().unwrap().keys().next().unwrap(), "_i");
        assert_eq!(offered, with_intent(&offered));
    }

    #[test]
    fn the_intent_is_stripped_before_a_tool_runs() {
        for (given, want) in [
            (json!({"_i": " looking ", "a": 1}), Some("looking".to_owned())),
            (json!({"_i": "", "a": 1}), None),
            (json!({"_i": 7, "a": 1}), None),
            (json!({"a": 1}), None),
        ] {
            let (rest, intent) = strip_intent(given.as_object().unwrap().clone());
            assert_eq!((Value::Object(rest), intent), (json!({"a": 1}), want), "{given}");
        }
    }
}
