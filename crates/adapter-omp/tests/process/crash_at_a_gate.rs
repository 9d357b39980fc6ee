//! kill -9 and EOF while a person is waited for.

use countersign_testkit::process::{
    HostFixture, RpcHost, check_chain, lines_with, of_type,
    provider::{ProviderReply, bash_part, call_part, text_reply},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn begun(place: &HostFixture) -> RpcHost {
    let mut host = place.start(&[]);
    host.run_turn("one");
    lines_with(&host.session_file(), "\"ok\"");
    host
}

/// Returns a session in which a call waits to be allowed.
fn waiting(place: &HostFixture) -> (RpcHost, Value) {
    let mut host = begun(place);
    place
        .provider
        .script_replies([ProviderReply::new(vec![bash_part("k1", "echo ran >> count")]), text_reply("after it")]);
    let from = host.send_prompt("two");
    let dialog = host.wait_dialog(from);
    (host, dialog)
}

#[test]
fn a_gate_that_waits_is_shown_again_and_the_run_goes_on() {
    let place = HostFixture::with_ask_rule();
    let (host, dialog) = waiting(&place);
    host.kill();
    let mut again = place.resume_host();
    let shown = again.wait_dialog(0);
    for key in ["method", "title", "options"] {
        assert_eq!(shown[key], dialog[key], "{key}");
    }
    assert_eq!(again.session_state()["isStreaming"], true);
    again.command_error(json!({ "type": "prompt", "message": "no" }));
    again.answer_dialog(&shown, json!({ "value": "Allow once" }));
    again.wait_settled(0);
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
    assert_eq!(again.message_texts().last().unwrap(), "after it");
    assert!(place.provider.last_request().is_paired());
    check_chain(&lines_with(&again.session_file(), "after it"));
    again.close_cleanly();
    let mut third = place.resume_host();
    third.run_turn("three");
    assert_eq!(
        (of_type(&third.frames_since(0), "extension_ui_request").len(), place.read_file("count").unwrap().as_str()),
        (0, "ran\n")
    );
}

#[test]
fn a_gate_that_waits_outlives_every_way_to_end() {
    type StopHost = fn(RpcHost);
    for (case, end) in [
        ("kill", (|host| host.kill()) as StopHost),
        ("eof", |host| host.close_cleanly()),
        ("term", |mut host| {
            host.send_signal(Signal::SIGTERM);
            assert_eq!(host.wait_end().code, Some(0));
        }),
    ] {
        let place = HostFixture::with_ask_rule();
        let (host, dialog) = waiting(&place);
        end(host);
        assert_eq!(place.resume_host().wait_dialog(0)["title"], dialog["title"], "{case}");
    }
}

#[test]
fn a_gate_that_was_shown_again_can_be_denied_and_aborted() {
    for command in [None, Some(json!({ "type": "abort" }))] {
        let place = HostFixture::with_ask_rule();
        let (host, _) = waiting(&place);
        host.kill();
        let mut again = place.resume_host();
        let dialog = again.wait_dialog(0);
        match &command {
            None => again.answer_dialog(&dialog, json!({ "value": "Deny" })),
            Some(command) => drop(again.command_data(command.clone())),
        }
        again.wait_settled(0);
        assert_eq!(place.read_file("count"), None);
        again.run_turn("three");
        assert!(place.provider.last_request().is_paired());
    }
}

#[test]
fn answered_questions_of_several_are_not_repeated() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    let questions = json!({ "questions": [
        { "id": "q1", "question": "Which?", "options": [{ "label": "A" }, { "label": "B" }] },
        { "id": "q2", "question": "Why?", "options": [] },
    ]});
    place.provider.script_replies([ProviderReply::new(vec![call_part("k1", "ask", &questions)])]);
    let from = host.send_prompt("two");
    let first = host.wait_dialog(from);
    host.answer_dialog(&first, json!({ "value": "B" }));
    host.wait_frame(from, "the second question", |frame| frame["title"] == "Why?");
    host.kill();
    let mut again = place.resume_host();
    let dialog = again.wait_dialog(0);
    assert_eq!((&dialog["title"], &dialog["method"]), (&json!("Why?"), &json!("input")));
    again.answer_dialog(&dialog, json!({ "value": "because" }));
    again.wait_settled(0);
    let result = place.provider.last_request().call_result("k1").unwrap();
    assert!(result.contains('B') && result.contains("because"), "{result}");
}

#[test]
fn an_answered_gate_is_not_shown_again() {
    let place = HostFixture::with_ask_rule();
    let mut host = begun(&place);
    place.provider.script_replies([ProviderReply::new(vec![bash_part(
        "k1",
        "echo ran >> count; sh -c 'echo $$ > pid; exec sleep 300'",
    )])]);
    let from = host.send_prompt("two");
    let dialog = host.wait_dialog(from);
    host.answer_dialog(&dialog, json!({ "value": "Allow once" }));
    place.wait_for("pid");
    host.kill();
    let mut again = place.resume_host();
    again.run_turn("three");
    // The host is told that its run does not continue by itself, and asked nothing.
    let shown = of_type(&again.frames_since(0), "extension_ui_request");
    assert!(shown.iter().all(|frame| frame["method"] == "notify"), "{shown:?}");
    assert!(place.provider.last_request().call_result("k1").unwrap().contains("Outcome unknown"));
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
}
