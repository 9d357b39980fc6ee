//! Check of a server's JSON Schema: whether its keywords have the form that models and [`crate::argument_check`] need.
//!
//! It must not fetch anything: a reference leads to a part of the same schema.

use serde_json::{Map, Value};

/// Largest schema, in bytes of JSON.
const LARGEST: usize = 128 << 10;
/// Deepest nesting.
const DEEPEST: usize = 32;
/// Types of JSON Schema.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Checks the schema of the arguments of a tool.
///
/// # Errors
/// The first problem with its place.
pub(crate) fn check_schema(schema: &Value) -> Result<(), String> {
    let Some(members) = schema.as_object() else { return Err("it is no object".to_owned()) };
    if schema.to_string().len() > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    let is_object = match members.get("type") {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|one| one == "object"),
        Some(one) => one == "object",
    };
    if !is_object {
        return Err("its type is not \"object\"".to_owned());
    }
    check_part(schema, schema, "", 0)
}

/// Checks a schema within `root`: an object with keywords, or a boolean.
fn check_part(root: &Value, part: &Value, path: &str, depth: usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("{path}: it is nested deeper than {DEEPEST}"));
    }
    let members = match part {
        Value::Object(members) => members,
        Value::Bool(_) => return Ok(()),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(format!("{path}: a schema must be an object or a boolean"));
        }
    };
    for (keyword, value) in members {
        let at = format!("{path}/{keyword}");
        match keyword.as_str() {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                let named = value.as_object().ok_or_else(|| format!("{at} must be an object"))?;
                for (name, one) in named {
                    check_part(root, one, &format!("{at}/{name}"), depth + 1)?;
                }
            }
            "items" if value.is_array() => check_list(root, value, &at, depth)?,
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems" => check_part(root, value, &at, depth + 1)?,
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => check_list(root, value, &at, depth)?,
            "required" => check_required(value, &at)?,
            "type" => check_type(value, &at)?,
            "enum" if !value.is_array() => return Err(format!("{at} must be a list")),
            "$ref" | "$dynamicRef" => check_reference(root, value, &at)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_list(root: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
    let list = value.as_array().ok_or_else(|| format!("{at} must be a list"))?;
    list.iter().enumerate().try_for_each(|(index, one)| check_part(root, one, &format!("{at}/{index}"), depth + 1))
}

fn check_required(value: &Value, at: &str) -> Result<(), String> {
    let is_list_of_names = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    if is_list_of_names { Ok(()) } else { Err(format!("{at} must be a list of names")) }
}

fn check_type(value: &Value, at: &str) -> Result<(), String> {
    let is_known = |one: &Value| one.as_str().is_some_and(|name| TYPES.contains(&name));
    let is_valid = match value {
        Value::Array(types) => !types.is_empty() && types.iter().all(is_known),
        one => is_known(one),
    };
    if is_valid { Ok(()) } else { Err(format!("{at} names no type of JSON Schema")) }
}

fn check_reference(root: &Value, value: &Value, at: &str) -> Result<(), String> {
    let reference = value.as_str().ok_or_else(|| format!("{at} must be a text"))?;
    if resolve_reference(root, reference).is_some() {
        Ok(())
    } else {
        Err(format!("{at} leads nowhere within the schema"))
    }
}

/// Returns the part of `root` that a reference such as `#/$defs/path` names.
pub(crate) fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// Returns the members of an object schema's `properties`.
pub(crate) fn properties_of(schema: &Map<String, Value>) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check_schema;

    #[test]
    fn a_schema_is_taken_if_its_keywords_have_their_form() {
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({"properties": {"a": deep}});
        }
        for (schema, want) in [
            (json!({}), None),
            (json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}), None),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": [1]}}}),
                None,
            ),
            (json!({"anyOf": [{"required": ["a"]}, true], "x-unknown": 1}), None),
            (json!([]), Some("it is no object")),
            (json!({"type": "string"}), Some("its type is not \"object\"")),
            (json!({"properties": []}), Some("/properties must be an object")),
            (json!({"properties": {"a": 1}}), Some("/properties/a: a schema must be an object or a boolean")),
            (json!({"properties": {"a": {"type": "text"}}}), Some("/properties/a/type names no type of JSON Schema")),
            (json!({"required": "a"}), Some("/required must be a list of names")),
            (json!({"allOf": {}}), Some("/allOf must be a list")),
            (json!({"$ref": "https://x.example/schema"}), Some("/$ref leads nowhere within the schema")),
            (json!({"$ref": "#/$defs/none"}), Some("/$ref leads nowhere within the schema")),
            (json!({"enum": ["x".repeat(200_000)]}), Some("it is larger than 131072 bytes")),
        ] {
            assert_eq!(check_schema(&schema).err().as_deref(), want, "{}", brief(&schema));
        }
        assert!(check_schema(&deep).unwrap_err().ends_with("it is nested deeper than 32"));
    }

    fn brief(schema: &Value) -> String {
        schema.to_string().chars().take(80).collect()
    }
}
