//! The arguments of a call, checked against a foreign JSON Schema, with errors that a model can act on.
//!
//! The arguments are passed on unchanged. Unknown keywords are skipped: the author of the schema sees the arguments too. It must
//! not know any tool. Source: JSON Schema 2020-12, and the forms of draft 7 that are still written.

use regex::Regex;
use serde_json::{Map, Value};

use crate::{
    outcome::CallFailure,
    schema::{brief_value, join_path},
};

/// Most steps of a check. Schemas can name themselves.
const STEPS: u32 = 100_000;
/// Deepest nesting of one form in another.
const DEPTH: u32 = 128;
/// Most reported problems.
const MOST_PROBLEMS: usize = 20;

/// Checks `arguments` of `tool` against `schema` and gives them back.
///
/// # Errors
/// [`CallFailure::Invalid`] that names every path and what is wrong with it.
pub fn conform_arguments(tool: &str, schema: &Value, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
    let mut check = SchemaChecker { root: schema, steps: STEPS, depth: 0, problems: Vec::new() };
    match arguments {
        Value::Object(_) => check.check_value(schema, arguments, ""),
        _ => check.problems.push("arguments must be an object".to_owned()),
    }
    if check.steps == 0 {
        check.problems.push("the schema is nested too deeply to check the arguments".to_owned());
    }
    match arguments {
        Value::Object(members) if check.problems.is_empty() => Ok(members.clone()),
        _ => {
            let lines = check.problems.iter().take(MOST_PROBLEMS).map(|problem| format!("\n- {problem}"));
            Err(CallFailure::Invalid(format!("Invalid arguments for {tool}:{}", lines.collect::<String>())))
        }
    }
}

struct SchemaChecker<'a> {
    root: &'a Value,
    steps: u32,
    depth: u32,
    problems: Vec<String>,
}

impl<'a> SchemaChecker<'a> {
    fn report_problem(&mut self, path: &str, what: impl std::fmt::Display) {
        let path = if path.is_empty() { "arguments" } else { path };
        self.problems.push(format!("{path} {what}"));
    }

    /// Reports whether `value` fits, without recording problems.
    fn fits_schema(&mut self, schema: &'a Value, value: &Value) -> bool {
        let before = self.problems.len();
        self.check_value(schema, value, "");
        let fits = self.problems.len() == before;
        self.problems.truncate(before);
        fits
    }

    fn check_value(&mut self, schema: &'a Value, value: &Value, path: &str) {
        if self.depth == DEPTH {
            self.steps = 0;
        }
        if self.steps == 0 {
            return;
        }
        self.steps -= 1;
        self.depth += 1;
        self.check_form(schema, value, path);
        self.depth -= 1;
    }

    fn check_form(&mut self, schema: &'a Value, value: &Value, path: &str) {
        let keywords = match schema {
            Value::Bool(false) => return self.report_problem(path, "is not allowed"),
            Value::Object(keywords) => keywords,
            _ => return,
        };
        if let Some(target) = keywords.get("$ref").and_then(Value::as_str).and_then(|name| self.resolve_ref(name)) {
            self.check_value(target, value, path);
        }
        let kinds: Vec<&str> = match keywords.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
            return self
                .report_problem(path, format_args!("must be {}, not {}", kinds.join(" or "), brief_value(value)));
        }
        if let Some(Value::Array(words)) = keywords.get("enum")
            && !words.iter().any(|word| is_same_value(word, value))
        {
            let words: Vec<String> = words.iter().map(Value::to_string).collect();
            self.report_problem(path, format_args!("must be one of {}, not {}", words.join(", "), brief_value(value)));
        }
        if let Some(constant) = keywords.get("const").filter(|constant| !is_same_value(constant, value)) {
            self.report_problem(path, format_args!("must be {constant}, not {}", brief_value(value)));
        }
        match value {
            Value::Object(members) => self.check_object(keywords, members, path),
            Value::Array(items) => self.check_array(keywords, items, path),
            Value::String(text) => self.check_text(keywords, text, path),
            Value::Number(number) => self.check_number(keywords, number.as_f64().unwrap_or_default(), path),
            Value::Null | Value::Bool(_) => {}
        }
        self.check_combined(keywords, value, path);
    }

    /// Returns a part of the same schema, by its reference.
    fn resolve_ref(&self, name: &str) -> Option<&'a Value> {
        let pointer = name.strip_prefix('#')?;
        self.root.pointer(&pointer.replace("%25", "%"))
    }

    fn check_combined(&mut self, keywords: &'a Map<String, Value>, value: &Value, path: &str) {
        let forms = |name| keywords.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for form in forms("allOf") {
            self.check_value(form, value, path);
        }
        let any = forms("anyOf");
        if !any.is_empty() && !any.iter().any(|form| self.fits_schema(form, value)) {
            self.report_closest(any, value, path);
        }
        let one = forms("oneOf");
        let fitting = one.iter().filter(|form| self.fits_schema(form, value)).count();
        if !one.is_empty() && fitting == 0 {
            self.report_closest(one, value, path);
        } else if fitting > 1 {
            self.report_problem(
                path,
                format_args!("matches {fitting} of the allowed forms, but must match exactly one"),
            );
        }
        if keywords.get("not").is_some_and(|form| self.fits_schema(form, value)) {
            self.report_problem(path, "has a form that is not allowed");
        }
    }

    /// Reports the problems of the form that comes closest.
    fn report_closest(&mut self, forms: &'a [Value], value: &Value, path: &str) {
        let before = self.problems.len();
        let mut best: Option<Vec<String>> = None;
        for form in forms {
            self.check_value(form, value, path);
            let found = self.problems.split_off(before);
            // A form that is wrong inside tells more than one of another kind.
            let is_inside = |found: &[String]| !found.iter().any(|problem| problem.contains("must be"));
            if best.as_ref().is_none_or(|best| !is_inside(best) && is_inside(&found)) {
                best = Some(found);
            }
        }
        self.problems.extend(best.unwrap_or_default());
    }

    fn check_object(&mut self, keywords: &'a Map<String, Value>, members: &Map<String, Value>, path: &str) {
        let required = keywords.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                self.report_problem(&join_path(path, name), "is required");
            }
        }
        let properties = keywords.get("properties").and_then(Value::as_object);
        let patterns = keywords.get("patternProperties").and_then(Value::as_object);
        let patterns: Vec<(Regex, &'a Value)> = patterns
            .into_iter()
            .flatten()
            .filter_map(|(pattern, form)| Some((Regex::new(pattern).ok()?, form)))
            .collect();
        for (name, value) in members {
            let at = join_path(path, name);
            let mut is_known = false;
            if let Some(form) = properties.and_then(|properties| properties.get(name)) {
                is_known = true;
                self.check_value(form, value, &at);
            }
            for (_, form) in patterns.iter().filter(|(pattern, _)| pattern.is_match(name)) {
                is_known = true;
                self.check_value(form, value, &at);
            }
            match keywords.get("additionalProperties") {
                Some(Value::Bool(false)) if !is_known => {
                    let known: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                    self.report_problem(&at, format_args!("is not an argument; known: {}", known.join(", ")));
                }
                Some(form @ Value::Object(_)) if !is_known => self.check_value(form, value, &at),
                _ => {}
            }
        }
        self.check_count(keywords, members.len(), ["minProperties", "maxProperties"], "members", path);
    }

    fn check_array(&mut self, keywords: &'a Map<String, Value>, items: &[Value], path: &str) {
        let first = keywords.get("prefixItems").or_else(|| keywords.get("items")).and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        let rest = keywords.get("items").filter(|form| !form.is_array()).or_else(|| keywords.get("additionalItems"));
        for (at, item) in items.iter().enumerate() {
            if let Some(form) = first.get(at).or(rest) {
                self.check_value(form, item, &format!("{path}[{at}]"));
            }
        }
        let is_set = keywords.get("uniqueItems") == Some(&Value::Bool(true));
        if is_set
            && items.iter().enumerate().any(|(at, item)| items[..at].iter().any(|before| is_same_value(before, item)))
        {
            self.report_problem(path, "must not contain duplicates");
        }
        self.check_count(keywords, items.len(), ["minItems", "maxItems"], "items", path);
    }

    fn check_text(&mut self, keywords: &'a Map<String, Value>, text: &str, path: &str) {
        self.check_count(keywords, text.chars().count(), ["minLength", "maxLength"], "characters", path);
        let pattern = keywords.get("pattern").and_then(Value::as_str);
        if let Some(pattern) = pattern.filter(|pattern| Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))) {
            self.report_problem(path, format_args!("must match {pattern}"));
        }
    }

    fn check_count(
        &mut self,
        keywords: &Map<String, Value>,
        count: usize,
        [least, most]: [&str; 2],
        of: &str,
        path: &str,
    ) {
        let bound = |name: &str| keywords.get(name).and_then(Value::as_u64);
        let count = count as u64;
        if let Some(least) = bound(least).filter(|least| count < *least) {
            self.report_problem(path, format_args!("must have at least {least} {of}, not {count}"));
        }
        if let Some(most) = bound(most).filter(|most| count > *most) {
            self.report_problem(path, format_args!("must have at most {most} {of}, not {count}"));
        }
    }

    fn check_number(&mut self, keywords: &'a Map<String, Value>, number: f64, path: &str) {
        let bound = |name: &str| keywords.get(name).and_then(Value::as_f64);
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            self.report_problem(path, format_args!("must be at least {least}, not {number}"));
        }
        if let Some(most) = bound("maximum").filter(|most| number > *most) {
            self.report_problem(path, format_args!("must be at most {most}, not {number}"));
        }
        if let Some(least) = bound("exclusiveMinimum").filter(|least| number <= *least) {
            self.report_problem(path, format_args!("must be more than {least}, not {number}"));
        }
        if let Some(most) = bound("exclusiveMaximum").filter(|most| number >= *most) {
            self.report_problem(path, format_args!("must be less than {most}, not {number}"));
        }
        if let Some(step) = bound("multipleOf").filter(|step| *step > 0.0)
            && ((number / step) - (number / step).round()).abs() > 1e-9
        {
            self.report_problem(path, format_args!("must be a multiple of {step}, not {number}"));
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match (kind, value) {
        ("integer", Value::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
        ("string", Value::String(_))
        | ("number", Value::Number(_))
        | ("boolean", Value::Bool(_))
        | ("null", Value::Null)
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        _ => false,
    }
}

/// Returns true if two values are the same: 1 is 1.0.
fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::conform_arguments;

    #[track_caller]
    fn checked_text(schema: &Value, given: &Value) -> String {
        match conform_arguments("t", schema, given) {
            Ok(members) => Value::Object(members).to_string(),
            Err(failure) => failure.to_string().replace("Invalid arguments for t:\n- ", ""),
        }
    }

    #[test]
    fn arguments_that_fit_come_back_as_they_were_given() {
        let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "required": ["v"],
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        }}});
        for (schema, given) in [
            (json!({}), json!({"any": [1, "a", null]})),
            (json!({"type": "object", "properties": {"a": {"type": "string"}}}), json!({"a": "x", "b": 1})),
            (json!({"properties": {"n": {"type": ["integer", "null"], "minimum": 1}}}), json!({"n": null})),
            (json!({"properties": {"n": {"type": "integer", "multipleOf": 0.5}}}), json!({"n": 3.0})),
            (json!({"properties": {"e": {"enum": [1, "a"]}}}), json!({"e": 1.0})),
            (
                json!({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false}),
                json!({"x-a": "1"}),
            ),
            (
                json!({"properties": {"a": {"prefixItems": [{"type": "string"}], "items": {"type": "number"}}}}),
                json!({"a": ["x", 1]}),
            ),
            (json!({"properties": {"a": {"pattern": "(?=unreadable"}}}), json!({"a": "x"})),
            (json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}), json!({"a": 1})),
            (tree.clone(), json!({"v": 1, "next": {"v": 2, "next": null}})),
        ] {
            assert_eq!(checked_text(&schema, &given), given.to_string(), "{schema}");
        }
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused_by_path_and_problem() {
        let of = |form: Value| json!({"type": "object", "properties": {"a": form}});
        for (schema, given, want) in [
            (json!({"type": "object", "required": ["a"]}), json!({}), "a is required"),
            (
                json!({"additionalProperties": false, "properties": {"b": {}}}),
                json!({"a": 1}),
                "a is not an argument; known: b",
            ),
            (json!({"additionalProperties": {"type": "string"}}), json!({"a": 1}), "a must be string, not 1"),
            (of(json!({"type": "string"})), json!({"a": null}), "a must be string, not null"),
            (of(json!({"type": "integer"})), json!({"a": 1.5}), "a must be integer, not 1.5"),
            (of(json!({"type": ["string", "null"]})), json!({"a": 1}), "a must be string or null, not 1"),
            (of(json!({"enum": ["x", "y"]})), json!({"a": "z"}), "a must be one of \"x\", \"y\", not \"z\""),
            (of(json!({"const": 1})), json!({"a": 2}), "a must be 1, not 2"),
            (of(json!({"minLength": 2})), json!({"a": "ä"}), "a must have at least 2 characters, not 1"),
            (of(json!({"pattern": "^[a-z]+$"})), json!({"a": "A"}), "a must match ^[a-z]+$"),
            (of(json!({"exclusiveMaximum": 3})), json!({"a": 3}), "a must be less than 3, not 3"),
            (of(json!({"maxItems": 1})), json!({"a": [1, 2]}), "a must have at most 1 items, not 2"),
            (of(json!({"uniqueItems": true})), json!({"a": [1, 1.0]}), "a must not contain duplicates"),
            (of(json!({"items": {"required": ["id"]}})), json!({"a": [{"id": 1}, {}]}), "a[1].id is required"),
            (of(json!({"not": {"type": "null"}})), json!({"a": null}), "a has a form that is not allowed"),
            (of(json!(false)), json!({"a": 1}), "a is not allowed"),
            (of(json!({"anyOf": [{"type": "string"}, {"required": ["p"]}]})), json!({"a": {}}), "a.p is required"),
            (
                of(json!({"oneOf": [{"minimum": 1}, {"maximum": 5}]})),
                json!({"a": 3}),
                "a matches 2 of the allowed forms, but must match exactly one",
            ),
            (
                of(json!({"allOf": [{"type": "number"}, {"minimum": 2}]})),
                json!({"a": 1}),
                "a must be at least 2, not 1",
            ),
        ] {
            assert_eq!(checked_text(&schema, &given), want, "{schema}");
        }
        assert_eq!(checked_text(&json!({}), &json!([])), "arguments must be an object");
    }

    #[test]
    fn a_schema_that_names_itself_without_end_is_given_up() {
        for schema in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})] {
            assert!(checked_text(&schema, &json!({})).contains("too deeply"), "{schema}");
        }
    }
}
