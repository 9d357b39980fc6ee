//! kill -9 and EOF while a person is waited for.

use countersign_testkit::process::{
    HostFixture, RpcHost, check_chain, lines_with, of_type,
    provider::{Reply, bash, call, say},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn begun(place: &HostFixture) -> RpcHost {
    let mut host = place.start(&[]);
    host.turn("one");
    lines_with(&host.file(), "\"ok\"");
    host
}

/// A session in which a call waits to be allowed.
fn waiting(place: &HostFixture) -> (RpcHost, Value) {
    let mut host = begun(place);
    place.provider.script([Reply::new(vec![bash("k1", "echo ran >> count")]), say("after it")]);
    let from = host.prompt("two");
    let dialog = host.dialog(from);
    (host, dialog)
}

#[test]
fn a_gate_that_waits_is_shown_again_and_the_run_goes_on() {
    let place = HostFixture::asking();
    let (host, dialog) = waiting(&place);
    host.kill();
    let mut again = place.resume();
    let shown = again.dialog(0);
    for key in ["method", "title", "options"] {
        assert_eq!(shown[key], dialog[key], "{key}");
    }
    assert_eq!(again.state()["isStreaming"], true);
    again.refused(json!({ "type": "prompt", "message": "no" }));
    again.reply(&shown, json!({ "value": "Allow once" }));
    again.settled(0);
    assert_eq!(place.get("count").unwrap(), "ran\n");
    assert_eq!(again.said().last().unwrap(), "after it");
    assert!(place.provider.last().is_paired());
    check_chain(&lines_with(&again.file(), "after it"));
    again.close_cleanly();
    let mut third = place.resume();
    third.turn("three");
    assert_eq!(
        (of_type(&third.since(0), "extension_ui_request").len(), place.get("count").unwrap().as_str()),
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
            host.signal(Signal::SIGTERM);
            assert_eq!(host.wait_end().code, Some(0));
        }),
    ] {
        let place = HostFixture::asking();
        let (host, dialog) = waiting(&place);
        end(host);
        assert_eq!(place.resume().dialog(0)["title"], dialog["title"], "{case}");
    }
}

#[test]
fn a_gate_that_was_shown_again_can_be_denied_and_aborted() {
    for command in [None, Some(json!({ "type": "abort" }))] {
        let place = HostFixture::asking();
        let (host, _) = waiting(&place);
        host.kill();
        let mut again = place.resume();
        let dialog = again.dialog(0);
        match &command {
            None => again.reply(&dialog, json!({ "value": "Deny" })),
            Some(command) => drop(again.done(command.clone())),
        }
        again.settled(0);
        assert_eq!(place.get("count"), None);
        again.turn("three");
        assert!(place.provider.last().is_paired());
    }
}

#[test]
fn of_several_questions_those_that_were_answered_are_not_asked_again() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    let questions = json!({ "questions": [
        { "id": "q1", "question": "Which?", "options": [{ "label": "A" }, { "label": "B" }] },
        { "id": "q2", "question": "Why?", "options": [] },
    ]});
    place.provider.script([Reply::new(vec![call("k1", "ask", &questions)])]);
    let from = host.prompt("two");
    let first = host.dialog(from);
    host.reply(&first, json!({ "value": "B" }));
    host.wait(from, "the second question", |frame| frame["title"] == "Why?");
    host.kill();
    let mut again = place.resume();
    let dialog = again.dialog(0);
    assert_eq!((&dialog["title"], &dialog["method"]), (&json!("Why?"), &json!("input")));
    again.reply(&dialog, json!({ "value": "because" }));
    again.settled(0);
    let result = place.provider.last().result("k1").unwrap();
    assert!(result.contains('B') && result.contains("because"), "{result}");
}

#[test]
fn an_answer_that_was_given_is_not_asked_for_again() {
    let place = HostFixture::asking();
    let mut host = begun(&place);
    place.provider.script([Reply::new(vec![bash("k1", "echo ran >> count; sh -c 'echo $$ > pid; exec sleep 300'")])]);
    let from = host.prompt("two");
    let dialog = host.dialog(from);
    host.reply(&dialog, json!({ "value": "Allow once" }));
    place.wait_for("pid");
    host.kill();
    let mut again = place.resume();
    again.turn("three");
    assert_eq!(of_type(&again.since(0), "extension_ui_request").len(), 0);
    assert!(place.provider.last().result("k1").unwrap().contains("Outcome unknown"));
    assert_eq!(place.get("count").unwrap(), "ran\n");
}
