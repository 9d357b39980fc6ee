use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn mismatch_texts(schema: Value, answer: &Value) -> Vec<String> {
    let mismatches = AnswerSchema::new(schema).unwrap().check_answer(answer);
    let one = |found: &SchemaMismatch| {
        let expected = found.expected.as_ref().map_or_else(String::new, |expected| format!(" [{expected}]"));
        format!("{} {}: {}{expected}", found.path, found.keyword, found.message)
    };
    mismatches.iter().map(one).collect()
}

#[test]
fn every_keyword_reports_its_path_and_the_expected_value() {
    for (schema, answer, want) in [
        (json!({}), json!({"any": [1]}), vec![]),
        (json!({"type": "string"}), json!(1), vec!["# type: expected string [\"string\"]"]),
        (json!({"type": "string"}), json!(null), vec!["# type: expected string [\"string\"]"]),
        (json!({"type": "integer"}), json!(1.5), vec!["# type: expected integer [\"integer\"]"]),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (json!({"type": "number"}), json!("1"), vec!["# type: expected number [\"number\"]"]),
        (json!({"type": "object"}), json!([]), vec!["# type: expected object [\"object\"]"]),
        (json!({"type": "array"}), json!({}), vec!["# type: expected array [\"array\"]"]),
        (json!({"type": "null"}), json!(null), vec![]),
        (json!({"type": "boolean"}), json!(0), vec!["# type: expected boolean [\"boolean\"]"]),
        (json!({"const": {"a": 1, "b": 2}}), json!({"b": 2, "a": 1.0}), vec![]),
        (json!({"const": null}), json!(false), vec!["# const: value does not equal const [null]"]),
        (json!({"enum": [1, "a"]}), json!("b"), vec!["# enum: value not in enum [[1,\"a\"]]"]),
        (json!({"enum": []}), json!("b"), vec!["# enum: value not in enum [[]]"]),
        (json!({"minLength": 2}), json!("a"), vec!["# minLength: shorter than 2 [2]"]),
        (json!({"maxLength": 1}), json!("\u{1f600}"), vec!["# maxLength: longer than 1 [1]"]),
        (json!({"maxLength": 2}), json!("\u{1f600}"), vec![]),
        (json!({"minimum": 1.5}), json!(1), vec!["# minimum: less than 1.5 [1.5]"]),
        (json!({"maximum": 1}), json!(2), vec!["# maximum: greater than 1 [1]"]),
        (json!({"pattern": "\\S"}), json!(" "), vec!["# pattern: does not match pattern \\S [\"\\\\S\"]"]),
        (json!({"required": ["a"]}), json!({}), vec!["#/a required: missing required property"]),
        (
            json!({"properties": {"a": {}}, "additionalProperties": false}),
            json!({"a": 1, "b": 2}),
            vec!["#/b additionalProperties: unexpected property"],
        ),
        (
            json!({"additionalProperties": {"type": "string"}}),
            json!({"b": 2}),
            vec!["#/b type: expected string [\"string\"]"],
        ),
        (json!({"minItems": 2}), json!([1]), vec!["# minItems: fewer than 2 items [2]"]),
        (json!({"maxItems": 0}), json!([1]), vec!["# maxItems: more than 0 items [0]"]),
        (json!({"uniqueItems": true}), json!([1, 1.0]), vec!["# uniqueItems: array items must be unique"]),
        (
            json!({"properties": {"a": {"items": {"type": "string"}}}}),
            json!({"a": ["x", 1]}),
            vec!["#/a/1 type: expected string [\"string\"]"],
        ),
        (json!({"anyOf": [{"const": 1}, {"const": 2}]}), json!(3), vec!["# anyOf: value did not satisfy anyOf"]),
        (json!({"oneOf": [{"type": "number"}, {"const": 2}]}), json!(2), vec!["# oneOf: value did not satisfy oneOf"]),
        (json!({"oneOf": [{"type": "number"}, {"const": 2}]}), json!(3), vec![]),
        // A wrong type hides mismatches below it; all others are reported together.
        (
            json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
                "properties": {"a": {"type": "string", "minLength": 3, "enum": ["x"]}, "c": {"type": "array"}}}),
            json!({"a": "y", "c": {}, "d": 1}),
            vec![
                "#/b required: missing required property",
                "#/a enum: value not in enum [[\"x\"]]",
                "#/a minLength: shorter than 3 [3]",
                "#/c type: expected array [\"array\"]",
                "#/d additionalProperties: unexpected property",
            ],
        ),
        // Keywords of other types do not apply to a value.
        (json!({"minLength": 2, "minimum": 5, "required": ["a"], "minItems": 1}), json!(true), vec![]),
    ] {
        assert_eq!(mismatch_texts(schema.clone(), &answer), want, "{schema} for {answer}");
    }
}

#[test]
fn what_would_not_be_checked_is_refused_when_the_schema_is_made() {
    let deep = (0..17).fold(json!({}), |inner, _| json!({"items": inner}));
    let wide: serde_json::Map<String, Value> = (0..257).map(|at| (at.to_string(), json!({}))).collect();
    for (schema, want) in [
        (json!(true), "# must be an object"),
        (json!({"$ref": "#"}), "# has the keyword \"$ref\", which is not supported"),
        (
            json!({"properties": {"a": {"format": "uri"}}}),
            "#/properties/a has the keyword \"format\", which is not supported",
        ),
        (json!({"properties": {"a": 1}}), "#/properties/a must be an object"),
        (json!({"anyOf": [{}, {"not": {}}]}), "#/anyOf/1 has the keyword \"not\", which is not supported"),
        (json!({"anyOf": []}), "`anyOf` at # must be an array of schemas with at least one"),
        (
            json!({"type": ["string", "null"]}),
            "`type` at # must be one of string, number, integer, boolean, object, array, null",
        ),
        (json!({"type": "any"}), "`type` at # must be one of string, number, integer, boolean, object, array, null"),
        (json!({"enum": "a"}), "`enum` at # must be an array"),
        (json!({"required": ["a", 1]}), "`required` at # must be an array of strings"),
        (json!({"additionalProperties": "no"}), "`additionalProperties` at # must be true, false or a schema"),
        (
            json!({"additionalProperties": {"x": 1}}),
            "#/additionalProperties has the keyword \"x\", which is not supported",
        ),
        (json!({"items": [{}]}), "#/items must be an object"),
        (json!({"minLength": -1}), "`minLength` at # must be a whole number that is not negative"),
        (json!({"maxItems": 1.5}), "`maxItems` at # must be a whole number that is not negative"),
        (json!({"uniqueItems": 1}), "`uniqueItems` at # must be true or false"),
        (json!({"minimum": "1"}), "`minimum` at # must be a number"),
        (json!({"pattern": "("}), "`pattern` at # must be a regular expression"),
        (json!({"title": 1}), "`title` at # must be a string"),
        (json!({"description": null}), "`description` at # must be a string"),
        (json!({"enum": (0..513).collect::<Vec<_>>()}), "`enum` at # has more than 512 values"),
        (json!({"properties": wide}), "`properties` at # has more than 256 values"),
        (json!({"description": "x".repeat(64 * 1024)}), "the schema has more than 65536 bytes"),
    ] {
        let error_text = AnswerSchema::new(schema.clone()).unwrap_err().to_string();
        assert_eq!(error_text, want, "{schema}");
    }
    let error_text = AnswerSchema::new(deep).unwrap_err().to_string();
    assert_eq!(error_text, format!("the schema nests deeper than 16 at #{}", "/items".repeat(17)));
    assert!(AnswerSchema::new((0..16).fold(json!({}), |inner, _| json!({"items": inner}))).is_ok());
}

#[test]
fn an_answer_that_is_too_large_is_looked_at_no_further() {
    let schema = json!({"type": "string"});
    assert_eq!(mismatch_texts(schema.clone(), &json!("x".repeat(256 * 1024 - 2))), Vec::<String>::new());
    for answer in [json!("x".repeat(256 * 1024 - 1)), json!(["x".repeat(10 << 20)])] {
        assert_eq!(mismatch_texts(schema.clone(), &answer), ["# maxAnswerBytes: answer too large"]);
    }
}

#[test]
fn the_errors_of_an_answer_are_bounded() {
    let answer: serde_json::Map<String, Value> = (0..1000).map(|at| (at.to_string(), json!(1))).collect();
    assert_eq!(mismatch_texts(json!({"additionalProperties": false}), &Value::Object(answer)).len(), 256);
}

/// Any JSON that is not too large.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e30..1e30_f64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((".{0,4}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_canonical_form_reads_back_as_itself(value in any_json()) {
        let text = canonical_json(&value);
        let again: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(canonical_json(&again), text);
    }

    #[test]
    fn what_a_schema_holds_as_const_is_the_one_answer(value in any_json(), other in any_json()) {
        let schema = AnswerSchema::new(json!({"const": value.clone()})).unwrap();
        prop_assert!(schema.check_answer(&value).is_empty());
        prop_assert_eq!(schema.check_answer(&other).is_empty(), canonical_json(&other) == canonical_json(&value));
    }

    #[test]
    fn no_json_makes_a_schema_or_a_check_panic(schema in any_json(), answer in any_json()) {
        if let Ok(schema) = AnswerSchema::new(schema) {
            schema.check_answer(&answer);
        }
    }
}
