//! Check of arguments against a server's schema, with errors that a model can act on. They are never changed.
//!
//! It is not the whole of JSON Schema: the server checks the rest. What it refuses here, the schema refuses as well.

use countersign_runtime::tools::schema::INTENT;
use serde_json::{Map, Value};

use crate::schema_check::{properties_of, resolve_reference};

/// Deepest nesting that is looked into, references included.
const DEEPEST: usize = 32;
/// Most problems that are named.
const MOST: usize = 10;

/// Returns the problems of `arguments`, each with its place; empty if there are none.
pub(crate) fn find_problems(schema: &Value, arguments: &Map<String, Value>) -> Vec<String> {
    let mut check = ArgumentCheck { root: schema, problems: Vec::new() };
    check.check_object(schema, arguments, "", 0);
    check.problems.truncate(MOST);
    check.problems
}

struct ArgumentCheck<'a> {
    root: &'a Value,
    problems: Vec<String>,
}

impl ArgumentCheck<'_> {
    fn check_value(&mut self, schema: &Value, value: &Value, path: &str, depth: usize) {
        if depth > DEEPEST || self.problems.len() >= MOST {
            return;
        }
        let Some(keywords) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                self.problems.push(format!("{path} is not an argument"));
            }
            return;
        };
        if let Some(target) = keywords.get("$ref").and_then(Value::as_str) {
            let root = self.root;
            if let Some(target) = resolve_reference(root, target) {
                self.check_value(target, value, path, depth + 1);
            }
        }
        if let Some(Value::Array(allowed)) = keywords.get("enum")
            && !allowed.contains(value)
        {
            let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
            self.problems.push(format!("{path} must be one of {}", allowed.join(", ")));
            return;
        }
        if let Some(types) = keywords.get("type")
            && !fits_type(types, value)
        {
            self.problems.push(format!("{path} must be of type {}", type_names(types)));
            return;
        }
        match value {
            Value::Object(members) => self.check_object(schema, members, path, depth),
            Value::Array(items) => {
                let Some(form) = keywords.get("items").filter(|form| form.is_object()) else { return };
                if keywords.contains_key("prefixItems") {
                    return;
                }
                for (index, item) in items.iter().enumerate() {
                    self.check_value(form, item, &format!("{path}[{index}]"), depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn check_object(&mut self, schema: &Value, members: &Map<String, Value>, path: &str, depth: usize) {
        let Some(keywords) = schema.as_object() else { return };
        let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let is_intent = |name: &str| path.is_empty() && name == INTENT;
        let required = keywords.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                self.problems.push(format!("{} is required", at(name)));
            }
        }
        let properties = properties_of(keywords);
        let is_closed = keywords.get("additionalProperties") == Some(&Value::Bool(false))
            && !keywords.contains_key("patternProperties");
        for (name, value) in members.iter().filter(|(name, _)| !is_intent(name)) {
            match properties.and_then(|properties| properties.get(name)) {
                Some(form) => self.check_value(form, value, &at(name), depth + 1),
                None if is_closed => {
                    let known: Vec<&str> =
                        properties.into_iter().flat_map(Map::keys).map(String::as_str).take(50).collect();
                    self.problems.push(format!("{} is not an argument; known: {}", at(name), known.join(", ")));
                }
                None => {}
            }
        }
    }
}

fn fits_type(types: &Value, value: &Value) -> bool {
    let fits = |name: &Value| match (name.as_str(), value) {
        (Some("string"), Value::String(_))
        | (Some("boolean"), Value::Bool(_))
        | (Some("null"), Value::Null)
        | (Some("object"), Value::Object(_))
        | (Some("array"), Value::Array(_))
        | (Some("number"), Value::Number(_)) => true,
        (Some("integer"), Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => false,
    };
    match types {
        Value::Array(names) => names.iter().any(fits),
        one => fits(one),
    }
}

fn type_names(types: &Value) -> String {
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        one => one.as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::find_problems;

    #[test]
    fn arguments_that_the_schema_refuses_are_named() {
        let schema = json!({
            "type": "object",
            "required": ["path"],
            "additionalProperties": false,
            "properties": {
                "path": {"type": "string"},
                "due": {"type": ["string", "null"]},
                "count": {"type": "integer"},
                "mode": {"enum": ["a", "b"]},
                "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
                "free": {"type": "object"},
            },
            "$defs": {"item": {"type": "object", "required": ["id"]}},
        });
        for (given, want) in [
            (json!({"path": "x", "due": null, "count": 3.0, "mode": "a", "free": {"any": 1}, "_i": "look"}), vec![]),
            (json!({}), vec!["path is required"]),
            (json!({"path": 1}), vec!["path must be of type string"]),
            (json!({"path": "x", "due": 1}), vec!["due must be of type string or null"]),
            (json!({"path": "x", "count": 1.5}), vec!["count must be of type integer"]),
            (json!({"path": "x", "mode": "c"}), vec!["mode must be one of \"a\", \"b\""]),
            (json!({"path": "x", "items": [{"id": 1}, {}]}), vec!["items[1].id is required"]),
            (json!({"path": "x", "no": 1}), vec!["no is not an argument; known: path, due, count, mode, items, free"]),
        ] {
            assert_eq!(find_problems(&schema, given.as_object().unwrap()), want, "{given}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}});
        assert_eq!(find_problems(&schema, json!({"a": 1}).as_object().unwrap()), [""; 0]);
    }
}
