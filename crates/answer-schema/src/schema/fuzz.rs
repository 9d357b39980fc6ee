//! The way in for a fuzz loop: any bytes are a schema and an answer to it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{AnswerSchema, MAX_MISMATCHES, SchemaError, SchemaMismatch};
use crate::canonical::{canonical_hash, canonical_json};

/// Reads the first line of `bytes` as a schema and the rest as an answer, and checks what holds for both: the canonical form reads
/// back as itself and has the same hash, a refused schema names a place, a schema that is taken is shown as it was given, an
/// answer is judged the same however its members are ordered, and every mismatch is at a place of the answer.
///
/// # Panics
/// If that does not hold: a finding.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (schema, answer) = text.split_once('\n').unwrap_or((&text, "null"));
    let Ok(given) = serde_json::from_str::<Value>(schema) else { return };
    assert_round_trip(&given);
    let schema = match AnswerSchema::new(given.clone()) {
        Ok(schema) => schema,
        Err(error) => return assert_names_place(&error),
    };
    assert_eq!(schema.hash(), canonical_hash(&given));
    assert_eq!(canonical_json(schema.as_json()), canonical_json(&given), "what is shown is what was given");
    let Ok(answer) = serde_json::from_str::<Value>(answer) else { return };
    let found = schema.check_answer(&answer);
    assert!(found.len() <= MAX_MISMATCHES, "{} mismatches", found.len());
    let turned = schema.check_answer(&assert_round_trip(&answer));
    let places = |found: &[SchemaMismatch]| -> BTreeSet<(String, &str)> {
        found.iter().map(|one| (one.path.clone(), one.keyword)).collect()
    };
    // Of too many mismatches the order decides which are reported.
    if found.len() < MAX_MISMATCHES {
        assert_eq!(places(&found), places(&turned), "the order of members decides nothing");
    }
    let mut known = BTreeSet::from(["#".to_owned()]);
    collect_paths(&answer, "#", &mut known);
    for one in &found {
        // A missing member is reported with the path at which it should be.
        let is_there = known.contains(&one.path) || one.keyword == "required";
        assert!(is_there, "{:?} is at {:?}, which the answer does not have", one.keyword, one.path);
        assert!(!one.message.is_empty());
    }
}

fn assert_names_place(error: &SchemaError) {
    let text = error.to_string();
    assert!(matches!(error, SchemaError::TooLarge) || text.contains('#'), "{text:?} names no place");
}

/// Returns `value` as its canonical form reads back.
fn assert_round_trip(value: &Value) -> Value {
    let text = canonical_json(value);
    let read: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(canonical_json(&read), text, "the canonical form is its own");
    assert_eq!(canonical_hash(&read), canonical_hash(value));
    read
}

fn collect_paths(value: &Value, at: &str, known: &mut BTreeSet<String>) {
    let mut each = |name: String, value: &Value| {
        let path = format!("{at}/{name}");
        collect_paths(value, &path, known);
        known.insert(path);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| each(name.clone(), value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| each(at.to_string(), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
