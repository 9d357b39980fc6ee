//! Questions of the model to the person.

use countersign_testkit::process::{
    HostFixture, RpcHost, of_type,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

fn asks(host: &mut RpcHost, place: &HostFixture, questions: Value) -> usize {
    place.provider.script_replies([
        ProviderReply::new(vec![call_part("k", "ask", &json!({ "questions": questions }))]),
        text_reply("thanks"),
    ]);
    host.send_prompt("go")
}

#[test]
fn each_question_is_a_dialog_and_the_answers_are_one_result() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let from = asks(
        &mut host,
        &place,
        json!([
            { "id": "q1", "question": "Which?", "options": [{ "label": "A" }, { "label": "B" }] },
            { "id": "q2", "question": "Why?", "options": [] },
        ]),
    );
    for (title, method, options, answer) in [
        ("Which?", "select", json!(["A", "B", "Other (type your own)"]), "B"),
        ("Why?", "input", Value::Null, "because"),
    ] {
        let dialog = host.wait_frame(from, title, |frame| frame["title"] == title);
        assert_eq!((&dialog["method"], &dialog["options"]), (&json!(method), &options));
        host.answer_dialog(&dialog, json!({ "value": answer }));
    }
    let frames = host.wait_settled(from);
    let end = of_type(&frames, "tool_execution_end").remove(0);
    let results = end["result"]["details"]["results"].clone();
    assert_eq!([&results[0]["selectedOptions"], &results[1]["customInput"]], [&json!(["B"]), &json!("because")]);
    let result = place.provider.last_request().call_result("k").unwrap();
    assert!(result.contains('B') && result.contains("because"), "{result}");
    host.close_cleanly();
}

#[test]
fn a_question_that_is_cancelled_says_so_and_the_run_goes_on() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let from = asks(&mut host, &place, json!([{ "id": "q1", "question": "Which?", "options": [{ "label": "A" }] }]));
    let dialog = host.wait_dialog(from);
    host.answer_dialog(&dialog, json!({ "cancelled": true }));
    host.wait_settled(from);
    assert!(!place.provider.last_request().call_result("k").unwrap().contains("\n  A"));
    assert_eq!(host.message_texts().last().unwrap(), "thanks");
}

#[test]
fn an_abort_ends_all_questions_of_a_call() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let option = json!([{ "label": "A" }]);
    let from = asks(
        &mut host,
        &place,
        json!([
            { "id": "q1", "question": "Which?", "options": option },
            { "id": "q2", "question": "And?", "options": option },
        ]),
    );
    host.wait_dialog(from);
    host.command_data(json!({ "type": "abort" }));
    let frames = host.wait_settled(from);
    assert_eq!(of_type(&frames, "tool_execution_end").len(), 1);
    host.run_turn("next");
    assert!(place.provider.last_request().is_paired());
}
