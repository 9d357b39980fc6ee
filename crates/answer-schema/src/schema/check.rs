//! Walks an answer beside a schema and tells everything that does not fit.
//!
//! It must not know how a schema is written: it reads [`Node`]s.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    Mismatch,
    construct::{Additional, Node, Type},
};
use crate::canonical::canonical;

/// A value of the wrong type is told once; everything else that is wrong is told beside one another.
pub(super) fn check(node: &Node, value: &Value, path: &str, found: &mut Vec<Mismatch>) {
    if let Some(kind) = node.kind.filter(|kind| !is(*kind, value)) {
        found.push(mismatch(path, "type", format!("expected {}", kind.name()), Some(kind.name().into())));
        return;
    }
    values(node, value, path, found);
    match value {
        Value::String(text) => string(node, text, path, found),
        Value::Number(number) => self::number(node, number, path, found),
        Value::Object(members) => object(node, members, path, found),
        Value::Array(items) => array(node, items, path, found),
        Value::Null | Value::Bool(_) => {}
    }
    let fits = |branch: &&Node| {
        let mut missed = Vec::new();
        check(branch, value, path, &mut missed);
        missed.is_empty()
    };
    if node.one_of.as_ref().is_some_and(|branches| branches.iter().filter(fits).count() != 1) {
        found.push(mismatch(path, "oneOf", "value did not satisfy oneOf".to_owned(), None));
    }
    if node.any_of.as_ref().is_some_and(|branches| !branches.iter().any(|branch| fits(&branch))) {
        found.push(mismatch(path, "anyOf", "value did not satisfy anyOf".to_owned(), None));
    }
}

fn mismatch(path: &str, keyword: &'static str, message: String, expected: Option<Value>) -> Mismatch {
    Mismatch { path: path.to_owned(), keyword, message, expected }
}

fn is(kind: Type, value: &Value) -> bool {
    match kind {
        Type::String => value.is_string(),
        Type::Number => value.is_number(),
        Type::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Type::Boolean => value.is_boolean(),
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::Null => value.is_null(),
    }
}

fn values(node: &Node, value: &Value, path: &str, found: &mut Vec<Mismatch>) {
    if node.constant.is_none() && node.values.is_none() {
        return;
    }
    let text = canonical(value);
    if let Some(constant) = node.constant.as_ref().filter(|constant| constant.canonical != text) {
        let expected = Some(constant.value.clone());
        found.push(mismatch(path, "const", "value does not equal const".to_owned(), expected));
    }
    if let Some(values) = node.values.as_ref().filter(|values| values.iter().all(|one| one.canonical != text)) {
        let expected = values.iter().map(|one| one.value.clone()).collect::<Vec<_>>();
        found.push(mismatch(path, "enum", "value not in enum".to_owned(), Some(expected.into())));
    }
}

fn string(node: &Node, text: &str, path: &str, found: &mut Vec<Mismatch>) {
    // JavaScript counts UTF-16 units.
    let length = text.encode_utf16().count() as u64;
    if let Some(least) = node.length.least.filter(|least| length < *least) {
        found.push(mismatch(path, "minLength", format!("shorter than {least}"), Some(least.into())));
    }
    if let Some(most) = node.length.most.filter(|most| length > *most) {
        found.push(mismatch(path, "maxLength", format!("longer than {most}"), Some(most.into())));
    }
    if let Some(pattern) = node.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let message = format!("does not match pattern {pattern}");
        found.push(mismatch(path, "pattern", message, Some(pattern.as_str().into())));
    }
}

fn number(node: &Node, number: &serde_json::Number, path: &str, found: &mut Vec<Mismatch>) {
    let value = number.as_f64().unwrap_or(f64::NAN);
    let bound = |bound: &serde_json::Number| (bound.as_f64().unwrap_or(f64::NAN), Value::Number(bound.clone()));
    if let Some((least, shown)) = node.range.least.as_ref().map(bound)
        && value < least
    {
        found.push(mismatch(path, "minimum", format!("less than {}", canonical(&shown)), Some(shown)));
    }
    if let Some((most, shown)) = node.range.most.as_ref().map(bound)
        && value > most
    {
        found.push(mismatch(path, "maximum", format!("greater than {}", canonical(&shown)), Some(shown)));
    }
}

fn object(node: &Node, members: &Map<String, Value>, path: &str, found: &mut Vec<Mismatch>) {
    for name in node.required.iter().filter(|name| !members.contains_key(*name)) {
        found.push(mismatch(&format!("{path}/{name}"), "required", "missing required property".to_owned(), None));
    }
    for (name, value) in members {
        let path = format!("{path}/{name}");
        let known = node.properties.iter().find(|(known, _)| known == name).map(|(_, node)| node);
        match (known, &node.additional) {
            (Some(node), _) => check(node, value, &path, found),
            (None, Additional::Like(node)) => check(node, value, &path, found),
            (None, Additional::Nothing) => {
                found.push(mismatch(&path, "additionalProperties", "unexpected property".to_owned(), None));
            }
            (None, Additional::Anything) => {}
        }
    }
}

fn array(node: &Node, items: &[Value], path: &str, found: &mut Vec<Mismatch>) {
    let count = items.len() as u64;
    if let Some(least) = node.count.least.filter(|least| count < *least) {
        found.push(mismatch(path, "minItems", format!("fewer than {least} items"), Some(least.into())));
    }
    if let Some(most) = node.count.most.filter(|most| count > *most) {
        found.push(mismatch(path, "maxItems", format!("more than {most} items"), Some(most.into())));
    }
    if node.unique {
        let mut seen = BTreeSet::new();
        if !items.iter().all(|item| seen.insert(canonical(item))) {
            found.push(mismatch(path, "uniqueItems", "array items must be unique".to_owned(), None));
        }
    }
    if let Some(node) = &node.items {
        for (at, item) in items.iter().enumerate() {
            check(node, item, &format!("{path}/{at}"), found);
        }
    }
}
