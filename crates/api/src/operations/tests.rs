use std::collections::{BTreeMap, BTreeSet};

use countersign_http::web::access::TABLE;
use serde_json::{Value, json};

use super::OPERATIONS;
use crate::{
    ROOT,
    openapi::{self, SchemaGenerators, simplify_schema},
};

/// Returns the document without the version of the program.
fn document() -> Value {
    let mut document = openapi::build_document(OPERATIONS);
    document["info"]["version"] = json!("0");
    document
}

#[test]
fn the_document_is_the_one_that_programs_know() {
    let text = format!("{:#}\n", document());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"), &text).unwrap();
        return;
    }
    assert_eq!(include_str!("../../openapi.json"), text, "UPDATE_GOLDEN=1 writes it");
}

/// Checks the operations of the table; the router has no other routes, as it mounts this list.
#[test]
fn every_route_of_the_table_is_an_operation_and_every_operation_is_described() {
    let rows: BTreeSet<_> = TABLE.iter().filter(|row| row.1.starts_with(ROOT)).map(|row| (row.0, row.1)).collect();
    let operations: Vec<_> = OPERATIONS.iter().map(|one| (one.method, one.path)).collect();
    assert_eq!(operations.iter().copied().collect::<BTreeSet<_>>(), rows);
    assert_eq!(operations.len(), rows.len(), "none stands twice");
    let names: BTreeSet<_> = OPERATIONS.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), OPERATIONS.len());
    let document = document();
    let described: BTreeMap<String, BTreeSet<String>> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, methods)| (path.clone(), methods.as_object().unwrap().keys().cloned().collect()))
        .collect();
    let mut expected = BTreeMap::<String, BTreeSet<String>>::new();
    for (method, path) in rows {
        expected.entry(path.to_owned()).or_default().insert(method.to_ascii_lowercase());
    }
    assert_eq!(described, expected);
    assert_eq!(document["paths"]["/api/v1/gates"]["get"]["security"][0]["token"][0], "read");
}

#[test]
fn every_schema_that_is_named_is_there_and_used() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match member.as_str().filter(|_| name == "$ref") {
                        Some(reference) => {
                            found.insert(reference.trim_start_matches("#/components/schemas/").to_owned());
                        }
                        None => references(member, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = document();
    let mut named = BTreeSet::new();
    references(&document, &mut named);
    let there = document["components"]["schemas"].as_object().unwrap();
    assert_eq!(named, there.keys().cloned().collect());
    for (name, schema) in there {
        assert!(jsonschema::meta::is_valid(schema), "{name}: {schema}");
    }
}

#[test]
fn a_type_that_is_read_and_written_has_one_schema() {
    let mut schemas = SchemaGenerators::new();
    for operation in OPERATIONS {
        if let Some(body) = operation.body {
            (body.reference)(&mut schemas.requests);
        }
        for (_, reply) in operation.replies {
            (reply.reference)(&mut schemas.replies);
        }
    }
    let replies = schemas.replies.take_definitions(true);
    for (name, schema) in schemas.requests.take_definitions(true) {
        assert!(replies.get(&name).is_none_or(|written| *written == schema), "{name}");
    }
}

#[test]
fn a_choice_between_words_is_a_list_of_them() {
    let mut schema = schemars::json_schema!({
        "description": "two\nlines",
        "properties": { "a": { "oneOf": [{ "const": "x", "description": "X" }, { "const": "y" }] } },
    });
    simplify_schema(&mut schema);
    let properties = json!({ "a": { "type": "string", "enum": ["x", "y"] } });
    assert_eq!(schema.as_value(), &json!({ "description": "two lines", "properties": properties }));
}
