//! Compares an answer with a schema and reports every mismatch.
//!
//! It must not know how a schema is written: it reads [`SchemaNode`]s.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    SchemaMismatch,
    construct::{AdditionalProperties, JsonType, SchemaNode},
};
use crate::canonical::canonical_json;

/// Checks a value. A value of the wrong type is reported once, without its parts; all other mismatches are reported together.
pub(super) fn check_node(node: &SchemaNode, value: &Value, path: &str, found: &mut Vec<SchemaMismatch>) {
    if let Some(kind) = node.kind.filter(|kind| !has_type(*kind, value)) {
        found.push(new_mismatch(path, "type", format!("expected {}", kind.name()), Some(kind.name().into())));
        return;
    }
    check_literals(node, value, path, found);
    match value {
        Value::String(text) => check_string(node, text, path, found),
        Value::Number(number) => self::check_number(node, number, path, found),
        Value::Object(members) => check_object(node, members, path, found),
        Value::Array(items) => check_array(node, items, path, found),
        Value::Null | Value::Bool(_) => {}
    }
    let fits = |branch: &&SchemaNode| {
        let mut missed = Vec::new();
        check_node(branch, value, path, &mut missed);
        missed.is_empty()
    };
    if node.one_of.as_ref().is_some_and(|branches| branches.iter().filter(fits).count() != 1) {
        found.push(new_mismatch(path, "oneOf", "value did not satisfy oneOf".to_owned(), None));
    }
    if node.any_of.as_ref().is_some_and(|branches| !branches.iter().any(|branch| fits(&branch))) {
        found.push(new_mismatch(path, "anyOf", "value did not satisfy anyOf".to_owned(), None));
    }
}

fn new_mismatch(path: &str, keyword: &'static str, message: String, expected: Option<Value>) -> SchemaMismatch {
    SchemaMismatch { path: path.to_owned(), keyword, message, expected }
}

fn has_type(kind: JsonType, value: &Value) -> bool {
    match kind {
        JsonType::String => value.is_string(),
        JsonType::Number => value.is_number(),
        JsonType::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        JsonType::Boolean => value.is_boolean(),
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::Null => value.is_null(),
    }
}

fn check_literals(node: &SchemaNode, value: &Value, path: &str, found: &mut Vec<SchemaMismatch>) {
    if node.constant.is_none() && node.values.is_none() {
        return;
    }
    let text = canonical_json(value);
    if let Some(constant) = node.constant.as_ref().filter(|constant| constant.canonical != text) {
        let expected = Some(constant.value.clone());
        found.push(new_mismatch(path, "const", "value does not equal const".to_owned(), expected));
    }
    if let Some(values) = node.values.as_ref().filter(|values| values.iter().all(|one| one.canonical != text)) {
        let expected = values.iter().map(|one| one.value.clone()).collect::<Vec<_>>();
        found.push(new_mismatch(path, "enum", "value not in enum".to_owned(), Some(expected.into())));
    }
}

fn check_string(node: &SchemaNode, text: &str, path: &str, found: &mut Vec<SchemaMismatch>) {
    // JavaScript counts UTF-16 units.
    let length = text.encode_utf16().count() as u64;
    if let Some(least) = node.length.least.filter(|least| length < *least) {
        found.push(new_mismatch(path, "minLength", format!("shorter than {least}"), Some(least.into())));
    }
    if let Some(most) = node.length.most.filter(|most| length > *most) {
        found.push(new_mismatch(path, "maxLength", format!("longer than {most}"), Some(most.into())));
    }
    if let Some(pattern) = node.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let message = format!("does not match pattern {pattern}");
        found.push(new_mismatch(path, "pattern", message, Some(pattern.as_str().into())));
    }
}

fn check_number(node: &SchemaNode, number: &serde_json::Number, path: &str, found: &mut Vec<SchemaMismatch>) {
    let value = number.as_f64().unwrap_or(f64::NAN);
    let bound = |bound: &serde_json::Number| (bound.as_f64().unwrap_or(f64::NAN), Value::Number(bound.clone()));
    if let Some((least, shown)) = node.range.least.as_ref().map(bound)
        && value < least
    {
        found.push(new_mismatch(path, "minimum", format!("less than {}", canonical_json(&shown)), Some(shown)));
    }
    if let Some((most, shown)) = node.range.most.as_ref().map(bound)
        && value > most
    {
        found.push(new_mismatch(path, "maximum", format!("greater than {}", canonical_json(&shown)), Some(shown)));
    }
}

fn check_object(node: &SchemaNode, members: &Map<String, Value>, path: &str, found: &mut Vec<SchemaMismatch>) {
    for name in node.required.iter().filter(|name| !members.contains_key(*name)) {
        found.push(new_mismatch(&format!("{path}/{name}"), "required", "missing required property".to_owned(), None));
    }
    for (name, value) in members {
        let path = format!("{path}/{name}");
        let known = node.properties.iter().find(|(known, _)| known == name).map(|(_, node)| node);
        match (known, &node.additional) {
            (Some(node), _) => check_node(node, value, &path, found),
            (None, AdditionalProperties::Like(node)) => check_node(node, value, &path, found),
            (None, AdditionalProperties::Nothing) => {
                found.push(new_mismatch(&path, "additionalProperties", "unexpected property".to_owned(), None));
            }
            (None, AdditionalProperties::Anything) => {}
        }
    }
}

fn check_array(node: &SchemaNode, items: &[Value], path: &str, found: &mut Vec<SchemaMismatch>) {
    let count = items.len() as u64;
    if let Some(least) = node.count.least.filter(|least| count < *least) {
        found.push(new_mismatch(path, "minItems", format!("fewer than {least} items"), Some(least.into())));
    }
    if let Some(most) = node.count.most.filter(|most| count > *most) {
        found.push(new_mismatch(path, "maxItems", format!("more than {most} items"), Some(most.into())));
    }
    if node.unique {
        let mut seen = BTreeSet::new();
        if !items.iter().all(|item| seen.insert(canonical_json(item))) {
            found.push(new_mismatch(path, "uniqueItems", "array items must be unique".to_owned(), None));
        }
    }
    if let Some(node) = &node.items {
        for (at, item) in items.iter().enumerate() {
            check_node(node, item, &format!("{path}/{at}"), found);
        }
    }
}
