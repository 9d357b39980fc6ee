//! Contract of `/api/v1`: every reply that a test gets over [`send_request`](super::api::send_request) is checked against its schema.
//!
//! Schemas are strict here: an unknown member is a fault, though clients have to ignore it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
};

use jsonschema::Validator;
use serde_json::{Value, json};

use super::api::{ApiEvent, ApiReply};

/// Document, as it is served.
static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../api/openapi.json")).unwrap());
/// Schemas of it, each strict.
static SCHEMAS: LazyLock<Value> = LazyLock::new(|| {
    let mut schemas = DOCUMENT["components"]["schemas"].clone();
    schemas.as_object_mut().unwrap().values_mut().for_each(close_schema);
    schemas
});
/// Compiled schemas, by reference.
static COMPILED: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());

/// Closes a schema and all its parts to unknown members.
fn close_schema(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    let is_choice = ["anyOf", "oneOf", "allOf"].iter().any(|name| members.contains_key(*name));
    if members.contains_key("properties") {
        let word = if is_choice { "unevaluatedProperties" } else { "additionalProperties" };
        members.entry(word).or_insert(json!(false));
        if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
            properties.values_mut().for_each(close_schema);
        }
    }
    // Members of a choice itself are closed above; alone each of its variants is.
    let is_closed = members.contains_key("unevaluatedProperties");
    for name in ["anyOf", "oneOf", "allOf"] {
        if let Some(ways) = members.get_mut(name).and_then(Value::as_array_mut).filter(|_| !is_closed) {
            ways.iter_mut().for_each(close_schema);
        }
    }
    if let Some(items) = members.get_mut("items") {
        close_schema(items);
    }
}

/// Returns the parts of `value` that do not fit the schema that `reference` names.
fn schema_faults(value: &Value, reference: &str) -> Vec<String> {
    let validator = Arc::clone(COMPILED.lock().unwrap().entry(reference.to_owned()).or_insert_with(|| {
        let root = json!({ "$ref": reference, "components": { "schemas": *SCHEMAS } });
        Arc::new(jsonschema::options().should_validate_formats(true).build(&root).unwrap())
    }));
    validator.iter_errors(value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect()
}

fn assert_fits(value: &Value, schema: &Value, at: &str) {
    let reference = schema["$ref"].as_str().unwrap_or_else(|| panic!("{at}: a schema without a name: {schema}"));
    let faults = schema_faults(value, reference);
    assert!(faults.is_empty(), "{at} is not {reference}: {faults:#?}\n{value:#}");
}

/// Finds the operation of a request.
fn find_operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or(path);
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let is_like = |template: &str| {
        let (parts, known) = (path.split('/'), template.split('/'));
        parts.clone().count() == known.clone().count()
            && parts.zip(known).all(|(part, known)| part == known || known.starts_with('{'))
    };
    let like = || paths.iter().find(|(template, _)| is_like(template)).map(|(_, methods)| methods);
    paths.get(path).or_else(like)?.get(method.to_ascii_lowercase())
}

/// Checks an answer of `/api/v1`, and the request body if it was accepted.
pub(crate) fn check_reply((method, path): (&str, &str), sent: Option<&Value>, answer: &ApiReply) {
    if !path.starts_with("/api/v1/") {
        return;
    }
    let at = format!("{method} {path}: {}", answer.status);
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    let Some(operation) = find_operation(method, path) else {
        assert!(answer.status >= 400, "{at}: the operation is not in the document");
        return assert_fits(&answer.body, &problem, &at);
    };
    let replies = &operation["responses"];
    match replies.get(answer.status.to_string()) {
        None => {
            assert!(answer.status >= 400, "{at}: the status is not in the document");
            assert_fits(&answer.body, &replies["default"]["content"]["application/problem+json"]["schema"], &at);
        }
        Some(reply) => {
            assert_fits(&answer.body, &reply["content"]["application/json"]["schema"], &at);
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            if let Some(sent) = sent.filter(|_| body.is_object()) {
                assert_fits(sent, body, &format!("{at}: request body"));
            }
        }
    }
}

/// Checks an event of the stream.
pub(crate) fn check_event(event: &ApiEvent) {
    let schema = match event.name.as_str() {
        "ready" => "Ready",
        "reset" => "Reset",
        "live" => "Live",
        _ => "Event",
    };
    let known = DOCUMENT["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
        ["anyOf"]
        .as_array()
        .unwrap();
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    assert!(known.contains(&schema), "{schema} is not the schema of an event: {known:?}");
    assert_fits(&event.data, &schema, &event.name);
}

#[test]
fn a_reply_that_is_not_what_the_document_says_is_found() {
    let entry = json!({ "id": "e", "parent": null, "at": "2026-11-27T00:00:00Z", "kind": "user", "message": null });
    let page = |entry: Value| {
        json!({
            "id": "s", "door": null, "name": null, "parent": null, "cwd": null, "model": null,
            "opened_at": "2026-11-27T00:00:00Z", "state": "resting", "run": null, "waiting": 0, "queued": 0,
            "length": 1, "earlier": null, "cursor": "0", "entries": [entry],
        })
    };
    let live = |more: Value| {
        let mut live = json!({ "event": "delta", "index": 0, "text": "a", "session": "s" });
        live.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        live
    };
    let with = |name: &str, value: Value| {
        let mut entry = entry.clone();
        entry[name] = value;
        page(entry)
    };
    for (schema, value, count) in [
        ("Conversation", page(entry.clone()), 0),
        ("Conversation", with("extra", json!(1)), 1),
        ("Conversation", with("at", json!("yesterday")), 1),
        ("Conversation", with("id", json!(1)), 1),
        ("Conversation", page(json!({ "id": "e", "parent": null, "kind": "user", "message": null })), 1),
        ("Live", live(json!({})), 0),
        ("Live", live(json!({ "extra": 1 })), 1),
        ("Explained", json!({ "verdict": "refused", "why": "x" }), 0),
        ("Explained", json!({ "verdict": "refused", "why": "x", "extra": 1 }), 1),
    ] {
        let found = schema_faults(&value, &format!("#/components/schemas/{schema}"));
        assert_eq!(found.len(), count, "{schema}: {found:?} {value}");
    }
}
