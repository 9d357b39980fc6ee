//! Questions that take several choices or words of one's own, in a host that has nothing but the dialogs of the protocol.

use countersign_testkit::process::{
    HostFixture, RpcHost, message_roles, of_type,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

/// Begins a session, then has the model ask for a choice among a, b and c. Returns the first dialog.
fn first_dialog(host: &mut RpcHost, place: &HostFixture) -> Value {
    host.run_turn("one");
    let labels = json!([{ "label": "a" }, { "label": "b" }, { "label": "c" }]);
    let question = json!({ "id": "q", "question": "Which?", "options": labels, "multi": true, "recommended": 1 });
    place.provider.script_replies([
        ProviderReply::new(vec![call_part("k", "ask", &json!({ "questions": [question] }))]),
        text_reply("thanks"),
    ]);
    let from = host.send_prompt("two");
    host.wait_dialog(from)
}

/// Answers a dialog and gives the next one.
fn next_dialog(host: &mut RpcHost, dialog: &Value, value: &str) -> Value {
    let from = host.frame_position();
    host.answer_dialog(dialog, json!({ "value": value }));
    host.wait_dialog(from)
}

/// Answers the last dialog and returns the answer, once the run has ended.
fn final_answer(host: &mut RpcHost, dialog: &Value, answer: Value) -> Value {
    let from = host.frame_position();
    host.answer_dialog(dialog, answer);
    let frames = host.wait_settled(from);
    of_type(&frames, "tool_execution_end").remove(0)["result"]["details"]["results"][0].clone()
}

#[test]
fn several_are_chosen_one_dialog_after_the_other() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let first = first_dialog(&mut host, &place);
    assert_eq!(first["options"], json!(["☐ a", "☐ b (Recommended)", "☐ c", "Other (type your own)"]));
    let second = next_dialog(&mut host, &first, "☐ c");
    assert_eq!(
        second["options"],
        json!(["☐ a", "☐ b (Recommended)", "☑ c", "Done selecting", "Other (type your own)"])
    );
    let third = next_dialog(&mut host, &second, "☐ b (Recommended)");
    let ids = [&first, &second, &third].map(|dialog| dialog["id"].clone());
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
    assert!(third["timeout"].as_u64() > Some(0));
    assert_eq!(message_roles(&host.session_messages()), ["user", "assistant", "user", "assistant"]);
    assert_eq!(
        final_answer(&mut host, &third, json!({ "value": "Done selecting" }))["selectedOptions"],
        json!(["b", "c"])
    );
    host.close_cleanly();
}

#[test]
fn a_written_answer_is_added_to_the_chosen_ones() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let first = first_dialog(&mut host, &place);
    let second = next_dialog(&mut host, &first, "☐ a");
    let editor = next_dialog(&mut host, &second, "Other (type your own)");
    assert_eq!((&editor["method"], &editor["promptStyle"]), (&json!("editor"), &json!(true)));
    let answer = final_answer(&mut host, &editor, json!({ "value": "d, or e" }));
    assert_eq!((&answer["selectedOptions"], &answer["customInput"]), (&json!(["a"]), &json!("d, or e")));
    host.close_cleanly();
}

#[test]
fn cancelling_a_later_dialog_declines_the_question() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let first = first_dialog(&mut host, &place);
    let second = next_dialog(&mut host, &first, "☐ a");
    assert_eq!(final_answer(&mut host, &second, json!({ "cancelled": true }))["selectedOptions"], json!([]));
    assert!(place.provider.last_request().call_result("k").unwrap().contains("did not want to answer"));
}

#[test]
fn an_editor_that_nobody_needs_any_more_is_taken_away() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let first = first_dialog(&mut host, &place);
    let editor = next_dialog(&mut host, &first, "Other (type your own)");
    let from = host.frame_position();
    host.command_data(json!({ "type": "abort" }));
    let cancel = host.wait_dialog(from);
    assert_eq!((&cancel["method"], &cancel["targetId"]), (&json!("cancel"), &editor["id"]));
    host.close_cleanly();
}

#[test]
fn a_question_starts_over_in_the_next_process() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let first = first_dialog(&mut host, &place);
    next_dialog(&mut host, &first, "☐ a");
    host.kill();
    let mut again = place.resume_host();
    let shown = again.wait_dialog(0);
    assert_eq!(shown["options"], first["options"]);
    let second = next_dialog(&mut again, &shown, "☐ c");
    assert_eq!(
        final_answer(&mut again, &second, json!({ "value": "Done selecting" }))["selectedOptions"],
        json!(["c"])
    );
}
