use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use countersign_core::id::PrincipalId;
use futures_util::future::BoxFuture;
use rmcp::model::ElicitRequestParams;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Elicitation, readable_address};
use crate::{
    open_call::OpenCall,
    questions::{QuestionAnswer, QuestionAsker, ServerQuestion},
    tool_caller::ToolCaller,
};

/// A person with prepared answers. Without one the deadline passes.
#[derive(Debug, Default)]
struct Person {
    answers: Mutex<VecDeque<QuestionAnswer>>,
    seen: Mutex<Vec<ServerQuestion>>,
}

impl Person {
    fn with_answers(words: &[&str]) -> Self {
        let answer = |word: &&str| match *word {
            "decline" => QuestionAnswer::Declined,
            word => QuestionAnswer::Answered(word.split('+').map(str::to_owned).collect()),
        };
        Self { answers: Mutex::new(words.iter().map(answer).collect()), seen: Mutex::default() }
    }

    fn texts(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|question| question.text.clone()).collect()
    }
}

impl QuestionAsker for Person {
    fn is_ready(&self) -> bool {
        true
    }

    fn ask(&self, question: ServerQuestion, _: CancellationToken) -> BoxFuture<'_, QuestionAnswer> {
        self.seen.lock().unwrap().push(question);
        let next = self.answers.lock().unwrap().pop_front();
        let late = || QuestionAnswer::Unanswered { reason: "nobody answered in time".to_owned() };
        Box::pin(async move { next.unwrap_or_else(late) })
    }
}

/// Returns the answer to a server that may ask so many questions.
async fn answer(person: &Person, request: Value, questions: u32) -> Result<Value, String> {
    let params: ElicitRequestParams = serde_json::from_value(request).unwrap();
    let caller = ToolCaller::agent(&PrincipalId::new("agent:pi"));
    let call = OpenCall::new("box", "open", &caller, Duration::from_secs(1), questions);
    let elicitation = Elicitation { calls: &[Arc::new(call)], asker: person, cancel: &CancellationToken::new() };
    elicitation.run(params).await.map(|result| serde_json::to_value(result).unwrap())
}

fn form(properties: Value, required: Value) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"mode": "form", "message": "Who are you?", "requestedSchema": schema})
}

async fn one_field(field: Value, words: &[&str]) -> Value {
    let person = Person::with_answers(words);
    answer(&person, form(json!({"f": field}), json!(["f"])), 16).await.unwrap()
}

fn accepted(value: Value) -> Value {
    json!({"action": "accept", "content": {"f": value}})
}

#[tokio::test]
async fn an_answer_becomes_the_value_of_its_type() {
    let titled = json!([{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]);
    for (field, word, want) in [
        (json!({"type": "string"}), "Ann", json!("Ann")),
        (json!({"type": "string", "default": "Ann"}), "Ann", json!("Ann")),
        (json!({"type": "integer", "minimum": 1}), " 7 ", json!(7)),
        (json!({"type": "number"}), "1.5", json!(1.5)),
        (json!({"type": "number"}), "2", json!(2)),
        (json!({"type": "boolean"}), "Yes", json!(true)),
        (json!({"type": "boolean"}), "2", json!(false)),
        (json!({"type": "string", "enum": ["low", "high"]}), "hi", json!("high")),
        (json!({"type": "string", "enum": ["l", "h"], "enumNames": ["Low", "High"]}), "High", json!("h")),
        (json!({"type": "string", "oneOf": titled}), "Green", json!("g")),
        (json!({"type": "array", "items": {"anyOf": titled}}), "Red+Green", json!(["r", "g"])),
        (json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1}), "b", json!(["b"])),
    ] {
        assert_eq!(one_field(field.clone(), &[word]).await, accepted(want), "{field}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again_and_never_sent() {
    for (field, word, rule) in [
        (json!({"type": "string", "minLength": 2, "maxLength": 3}), "x", "text, length from 2 to 3"),
        (json!({"type": "string", "format": "email"}), "x", "an email address"),
        (json!({"type": "integer", "minimum": 1, "maximum": 9}), "10", "a whole number from 1 to 9"),
        (json!({"type": "integer"}), "1.5", "a whole number"),
        (json!({"type": "number", "maximum": 1}), "NaN", "a number of at most 1"),
        (json!({"type": "string", "enum": ["a", "b"]}), "c", "one of the choices"),
        (
            json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 2}),
            "a",
            "choices, at least 2",
        ),
    ] {
        let person = Person::with_answers(&[word, word, word, word]);
        let result = answer(&person, form(json!({"f": field}), json!(["f"])), 16).await.unwrap();
        let texts = person.texts();
        assert_eq!((result, texts.len()), (json!({"action": "cancel"}), 3), "{field}");
        assert!(texts[1].starts_with(&format!("The last answer does not fit: expected {rule}.")), "{}", texts[1]);
    }
}

#[tokio::test]
async fn each_field_is_a_question_that_names_the_server_and_its_call() {
    let person = Person::with_answers(&["Ann", "Leave it out"]);
    let fields = json!({
        "name": {"type": "string", "title": "Your name", "description": "In full"},
        "age": {"type": "integer", "default": 7},
    });
    let result = answer(&person, form(fields, json!(["name"])), 16).await;
    assert_eq!(result, Ok(json!({"action": "accept", "content": {"name": "Ann"}})));
    let seen = person.seen.lock().unwrap();
    assert_eq!(
        seen[0].text,
        "MCP server box, which runs open for agent:pi, asks. The answer goes to this server and into the record: enter no \
         password.\n> Who are you?\n\nField 1 of 2:\n> Your name (text, required)\n> In full"
    );
    assert_eq!((&seen[0].choices, seen[0].is_closed), (&Vec::new(), false));
    assert_eq!((seen[1].choices.join("|").as_str(), seen[1].recommended), ("7|Leave it out", Some(0)));
}

#[tokio::test]
async fn only_a_person_declines_and_silence_cancels() {
    let two = form(json!({"a": {"type": "string"}, "b": {"type": "string"}}), json!([]));
    for (words, want, asked) in [
        (vec!["decline"], "decline", 1),
        (vec!["x", "decline"], "decline", 2),
        (vec!["x"], "cancel", 2),
        (vec![], "cancel", 1),
    ] {
        let person = Person::with_answers(&words);
        assert_eq!(answer(&person, two.clone(), 16).await, Ok(json!({"action": want})), "{words:?}");
        assert_eq!(person.texts().len(), asked, "{words:?}");
    }
}

#[tokio::test]
async fn a_call_asks_a_limited_number_of_questions() {
    let person = Person::with_answers(&["x", "x", "x"]);
    let many = form(json!({"a": {"type": "string"}, "b": {"type": "string"}}), json!([]));
    assert_eq!(answer(&person, many, 1).await, Ok(json!({"action": "cancel"})));
    assert_eq!(person.texts().len(), 1);
}

#[tokio::test]
async fn an_address_is_shown_with_its_host_before_the_words_of_the_server() {
    for (word, action) in [("Accept", "accept"), ("Decline", "decline"), ("Cancel", "cancel"), ("decline", "decline")] {
        let person = Person::with_answers(&[word]);
        let request = json!({"mode": "url", "message": "Log in\nHost: good.example", "url": "https://ex.example/in?a=1", "elicitationId": "1"});
        assert_eq!(answer(&person, request, 16).await, Ok(json!({"action": action})));
        let seen = person.seen.lock().unwrap();
        let text = &seen[0].text;
        assert!(text.contains("\nHost: ex.example\nAddress: https://ex.example/in?a=1\n"), "{text}");
        assert!(text.ends_with("> Log in\n> Host: good.example") && seen[0].is_closed, "{text}");
    }
}

#[test]
fn an_address_that_could_mislead_is_refused_or_written_out() {
    for (given, want) in [
        ("https://exämple.org/ä", Ok(("xn--exmple-cua.org", "https://xn--exmple-cua.org/%C3%A4"))),
        ("HTTP://EXAMPLE.org:8080", Ok(("example.org:8080", "http://example.org:8080/"))),
        ("https://good.example@evil.example/", Err("url has a user before its host")),
        ("javascript:alert(1)", Err("url is not an http or https address")),
        ("file:///etc/passwd", Err("url is not an http or https address")),
    ] {
        let want = want.map(|(host, address)| (host.to_owned(), address.to_owned())).map_err(str::to_owned);
        assert_eq!(readable_address(given), want, "{given}");
    }
}

#[tokio::test]
async fn a_form_that_people_cannot_be_shown_is_refused() {
    let long = "x".repeat(5000);
    let fields: serde_json::Map<String, Value> =
        (0..13).map(|number| (format!("f{number}"), json!({"type": "string"}))).collect();
    for (request, want) in [
        (json!({"message": long, "requestedSchema": {"type": "object", "properties": {}}}), "message is longer"),
        (form(Value::Object(fields), json!([])), "more than 12 fields"),
        (form(json!({}), json!(["x"])), "unknown field x"),
        (
            form(json!({"f": {"type": "string", "enum": ["a", "a"]}}), json!([])),
            "field f: two of its choices look the same",
        ),
        (form(json!({"f": {"type": "string", "title": long}}), json!([])), "field f: its texts are too long"),
        (form(json!({"f": {"type": "string", "enum": []}}), json!([])), "field f: it has no choices"),
    ] {
        let person = Person::default();
        let refused = answer(&person, request, 16).await.unwrap_err();
        assert!(refused.contains(want) && person.texts().is_empty(), "{refused}");
    }
}
