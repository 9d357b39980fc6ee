//! Lines that are no command, or more than is usual.

use std::io::Write as _;

use countersign_testkit::process::{
    HostFixture, RpcHost, eventually, of_type,
    provider::{ProviderReply, ReplyPart},
};
use serde_json::{Value, json};

fn first_answer(host: &mut RpcHost, line: impl AsRef<[u8]>) -> Value {
    let from = host.frame_position();
    host.write_input(line);
    host.wait_event(from, "response")
}

#[test]
fn a_line_that_is_no_command_is_answered_and_the_next_one_works() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let deep = format!("{}\n", "[".repeat(100_000));
    for line in [&b"{bad\n"[..], b"null\n", b"[1]\n", b"\"text\"\n", b"\xff\xfe{\n", b"{\"a\":\n", deep.as_bytes()] {
        let answer = first_answer(&mut host, line);
        let label = String::from_utf8_lossy(&line[..line.len().min(20)]).into_owned();
        assert_eq!(
            (&answer["command"], &answer["success"], answer.get("id")),
            (&json!("parse"), &json!(false), None),
            "{label}"
        );
        assert!(answer["error"].as_str().unwrap().starts_with("Failed to parse command: "), "{answer}");
        host.session_state();
    }
    assert!(first_answer(&mut host, b"{\"type\":\"get_state\"}\n").get("id").is_none());
    assert_eq!(first_answer(&mut host, b"\r\n\n  \n{\"type\":\"get_state\",\"id\":\"x\"}\r\n")["id"], "x");
    host.close_cleanly();
}

#[test]
fn a_wrong_field_is_named_under_the_id_of_its_command() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    for (command, field) in [
        (json!({ "type": "prompt" }), "message"),
        (json!({ "type": "prompt", "message": 5 }), "message"),
        (json!({ "type": "prompt", "message": null }), "message"),
        (json!({ "type": "prompt", "message": "m", "images": [{ "type": "image" }] }), "images"),
        (json!({ "type": "prompt", "message": "m", "streamingBehavior": "other" }), "streamingBehavior"),
        (json!({ "type": "set_auto_retry", "enabled": "yes" }), "enabled"),
        (json!({ "type": "set_model", "provider": "fake" }), "modelId"),
        (json!({ "type": "bash" }), "command"),
        (json!({ "type": "branch", "entryId": [] }), "entryId"),
    ] {
        let error = host.command_error(command.clone());
        assert!(error.contains(field), "{command}: {error}");
    }
    assert_eq!(place.provider.request_count(), 0);
}

#[test]
fn an_unknown_field_and_null_where_absent_is_meant_change_nothing() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let from = host.frame_position();
    host.command_data(
        json!({ "type": "prompt", "message": "m", "images": null, "streamingBehavior": null, "more": { "x": 1 } }),
    );
    host.wait_settled(from);
    host.command_data(json!({ "type": "new_session", "parentSession": null }));
}

#[test]
fn an_unknown_command_is_named_without_an_id() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    for (line, want) in [
        (
            "{\"type\":\"nonsense\",\"id\":\"u\"}\n",
            json!({ "type": "response", "command": "nonsense", "success": false, "error": "Unknown command: nonsense" }),
        ),
        ("{\"id\":\"u\"}\n", json!({ "type": "response", "success": false, "error": "Unknown command: undefined" })),
    ] {
        assert_eq!(first_answer(&mut host, line), want);
    }
}

#[test]
fn each_of_a_thousand_commands_in_one_write_is_answered_once_and_in_order() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Hang])]);
    for command in [
        json!({ "type": "prompt", "message": "m" }),
        json!({ "type": "get_state" }),
        json!({ "type": "follow_up", "message": "f" }),
    ] {
        let kind = command["type"].as_str().unwrap();
        let ids: Vec<String> = (0..1000).map(|at| format!("{kind} {at}")).collect();
        let lines: String = ids
            .iter()
            .map(|id| {
                let mut command = command.clone();
                command["id"] = id.as_str().into();
                format!("{command}\n")
            })
            .collect();
        let from = host.frame_position();
        host.write_input(lines);
        host.wait_frame(from, "the last answer", |frame| frame["id"] == ids[999].as_str());
        let answers: Vec<Value> = of_type(&host.frames_since(from), "response");
        let answered: Vec<&str> = answers.iter().map(|answer| answer["id"].as_str().unwrap()).collect();
        assert_eq!(answered, ids, "{kind}");
    }
    assert_eq!(host.session_state()["queuedMessageCount"], 1000);
}

#[test]
fn a_line_of_sixty_four_mebibytes_is_answered_and_the_session_goes_on() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let line = format!("{{\"type\":\"steer\",\"id\":\"big\",\"message\":\"{}\"}}\n", "x".repeat(64 << 20));
    let answer = first_answer(&mut host, line);
    assert_eq!(answer["type"], "response");
    host.command_data(json!({ "type": "new_session" }));
    host.run_turn("small");
    assert_eq!(host.message_texts(), ["small", "ok"]);
}

#[test]
fn an_end_in_the_middle_of_a_line_ends_the_process_with_0() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let mut input = host.take_input();
    input.write_all(b"{\"type\":\"get_state\",\"id\":\"whole\"}\n{\"type\":\"get_state\",\"id\":\"last\"}").unwrap();
    drop(input);
    let end = host.wait_end();
    assert_eq!((end.code, end.stderr.as_str(), end.junk.len()), (Some(0), "", 0));
    assert!(["whole", "last"].iter().all(|id| end.frames.iter().any(|frame| frame["id"] == *id)), "{end:?}");
    let mut host = place.start(&[]);
    host.write_input("{\"type\":\"get_sta");
    assert_eq!(host.close().code, Some(0));
}

#[test]
fn an_answer_to_a_dialog_that_is_not_there_is_ignored() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let from = host.frame_position();
    host.write_input("{\"type\":\"extension_ui_response\",\"id\":\"nobody\",\"value\":\"x\"}\n");
    host.session_state();
    eventually("one answer", || (host.frame_position() == from + 1).then_some(()));
}
