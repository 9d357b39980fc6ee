//! Calls that require an approval.

use countersign_testkit::process::{
    HostFixture, RpcHost, frame_shape, lines_with, message_text as text_of, of_type,
    provider::{ProviderReply, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

/// Has the model request `command`, and returns the output up to a dialog or the end.
fn want(host: &mut RpcHost, place: &HostFixture, command: &str) -> (usize, Option<Value>) {
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", command)]), text_reply("done")]);
    let from = host.send_prompt("go");
    let next = host.wait_frame(from, "a dialog or the end", |frame| {
        frame["type"] == "extension_ui_request" || frame["type"] == "agent_settled"
    });
    (from, (next["type"] == "extension_ui_request").then_some(next))
}

/// Has the model request `command` and answers the dialog with `answer`. Returns the dialog and the result.
fn answered(host: &mut RpcHost, place: &HostFixture, command: &str, answer: Value) -> (Value, Vec<Value>) {
    let (from, dialog) = want(host, place, command);
    let dialog = dialog.unwrap();
    host.answer_dialog(&dialog, answer);
    (dialog, host.wait_settled(from))
}

#[test]
fn a_dialog_shows_what_would_run_and_stands_before_its_start() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    let (dialog, frames) = answered(&mut host, &place, "touch ran", json!({ "value": "Allow once" }));
    assert_eq!(dialog["method"], "select");
    assert!(dialog["title"].as_str().unwrap().contains("touch ran") && dialog["timeout"].as_u64() > Some(0));
    assert_eq!(dialog["options"].as_array().unwrap().len(), 4);
    assert!(
        frame_shape(&frames).contains("-assistant extension_ui_request +k -k +toolResult"),
        "{}",
        frame_shape(&frames)
    );
    assert!(place.read_file("ran").is_some());
    host.close_cleanly();
}

#[test]
fn whatever_is_not_clearly_allowed_does_not_run() {
    for answer in [
        json!({ "value": "Deny" }),
        json!({ "value": "other" }),
        json!({ "confirmed": false }),
        json!({ "confirmed": true }),
        json!({ "cancelled": true }),
    ] {
        let place = HostFixture::with_ask_rule();
        let mut host = place.start(&[]);
        let (_, frames) = answered(&mut host, &place, "touch ran", answer.clone());
        let end = of_type(&frames, "tool_execution_end").remove(0);
        assert!(end["isError"] == true && text_of(&end["result"]).contains("Denied"), "{end}");
        assert_eq!(
            (place.read_file("ran"), text_of(host.session_messages().last().unwrap()).as_str()),
            (None, "done"),
            "{answer}"
        );
    }
}

#[test]
fn a_gate_is_shown_again_if_its_answer_is_not_recorded() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    let (from, dialog) = want(&mut host, &place, "touch ran");
    let log = std::fs::read_dir(place.agent.join("countersign")).unwrap().map(|entry| entry.unwrap().path());
    let log = log.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "db")).unwrap();
    let away = log.with_extension("away");
    std::fs::rename(&log, &away).unwrap();
    let answer = json!({ "value": "Allow once" });
    let lost = host.frame_position();
    host.answer_dialog(&dialog.unwrap(), answer.clone());
    let notice = host.wait_frame(lost, "a notice", |frame| {
        frame["message"].as_str().is_some_and(|text| text.starts_with("The answer does not count"))
    });
    assert_eq!((&notice["method"], place.read_file("ran")), (&json!("notify"), None));
    std::fs::rename(&away, &log).unwrap();
    // It may be requested more than once until the log takes it.
    let mut at = lost;
    loop {
        let next = host.wait_frame(at, "the dialog or the end", |frame| {
            frame["method"] == "select" || frame["type"] == "agent_settled"
        });
        if next["type"] == "agent_settled" {
            break;
        }
        at = host.frame_position();
        host.answer_dialog(&next, answer.clone());
    }
    let frames = host.wait_settled(from);
    assert_eq!(of_type(&frames, "tool_execution_end").len(), 1);
    assert!(place.read_file("ran").is_some());
    assert_eq!(host.close().code, Some(0));
}

#[test]
fn the_first_answer_counts_and_later_ones_are_ignored() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    let (from, dialog) = want(&mut host, &place, "touch ran");
    let dialog = dialog.unwrap();
    host.answer_dialog(&dialog, json!({ "value": "Deny" }));
    host.answer_dialog(&dialog, json!({ "value": "Allow once" }));
    host.wait_settled(from);
    host.answer_dialog(&dialog, json!({ "value": "Always allow exactly this" }));
    host.session_state();
    assert_eq!((place.read_file("ran"), of_type(&host.frames_since(from), "response").len()), (None, 2));
}

#[test]
fn an_answer_for_the_session_holds_in_it_after_a_kill_too_and_not_elsewhere() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    answered(&mut host, &place, "echo ran >> count", json!({ "value": "Allow for this session" }));
    assert_eq!(want(&mut host, &place, "echo ran >> count").1, None);
    let (from, dialog) = want(&mut host, &place, "echo other >> count");
    assert!(dialog.is_some());
    host.command_data(json!({ "type": "abort" }));
    host.wait_settled(from);
    lines_with(&host.session_file(), "other");
    host.kill();
    let mut again = place.resume_host();
    assert_eq!(want(&mut again, &place, "echo ran >> count").1, None);
    assert!(want(&mut place.start(&[]), &place, "echo ran >> count").1.is_some());
    assert_eq!(place.read_file("count").unwrap(), "ran\nran\nran\n");
}

#[test]
fn a_session_is_the_same_by_every_name_of_its_file() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    answered(&mut host, &place, "echo ran >> count", json!({ "value": "Allow for this session" }));
    let (file, id) = (host.session_file(), host.session_state()["sessionId"].clone());
    host.kill();
    let folder = file.parent().unwrap();
    let link = place.home.join("link");
    std::os::unix::fs::symlink(folder, &link).unwrap();
    let name = file.file_name().unwrap();
    for other in [link.join(name), folder.join("..").join(folder.file_name().unwrap()).join(name)] {
        let mut again = place.start(&["--resume", other.to_str().unwrap()]);
        assert_eq!(again.session_state()["sessionId"], id, "{}", other.display());
        assert_eq!(want(&mut again, &place, "echo ran >> count").1, None, "what a person allowed in it holds");
        again.kill();
    }
    // A copy is another session, without approvals.
    let copy = place.home.join("copy.jsonl");
    std::fs::copy(&file, &copy).unwrap();
    let mut forked = place.start(&["--resume", copy.to_str().unwrap()]);
    let forked_id = forked.session_state()["sessionId"].clone();
    assert_ne!(forked_id, id);
    assert!(want(&mut forked, &place, "echo ran >> count").1.is_some());
    forked.kill();
    // It stays that one.
    let mut again = place.start(&["--resume", copy.to_str().unwrap()]);
    assert_eq!(again.session_state()["sessionId"], forked_id);
    assert_eq!(again.session_file(), copy);
    again.kill();
    assert_eq!(place.start(&["--resume", file.to_str().unwrap()]).session_state()["sessionId"], id);
}

#[test]
fn an_answer_for_always_holds_in_other_processes() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    answered(&mut host, &place, "echo ran >> count", json!({ "value": "Always allow exactly this" }));
    host.close_cleanly();
    assert_eq!(std::fs::read_to_string(place.agent.join("grants.jsonl")).unwrap().lines().count(), 1);
    assert_eq!(want(&mut place.start(&[]), &place, "echo ran >> count").1, None);
    assert_eq!(place.read_file("count").unwrap(), "ran\nran\n");
}

#[test]
fn without_an_answer_in_time_the_call_is_denied() {
    let place = HostFixture::with_config("countersign: { approval_timeout: 1 }\n");
    place.write_rules("rules:\n  - { pattern: \"bash(*)\", action: ask }\n");
    let mut host = place.start(&[]);
    let (from, dialog) = want(&mut host, &place, "touch ran");
    assert!(dialog.unwrap()["timeout"].as_u64() <= Some(1000));
    let frames = host.wait_settled(from);
    assert_eq!(of_type(&frames, "tool_execution_end")[0]["isError"], true);
    assert_eq!(place.read_file("ran"), None);
}

#[test]
fn deletions_beyond_the_folder_need_approval_without_any_rule() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    for command in ["rm -rf /", "rm -rf ~", "rm -rf ..", "bash -c 'rm -rf /'", "x=/; rm -rf $x", "mkfs.ext4 /dev/sdb1"]
    {
        let (from, dialog) = want(&mut host, &place, command);
        let dialog = dialog.unwrap_or_else(|| panic!("{command} was not asked for"));
        assert_eq!(dialog["method"], "confirm", "{command}");
        assert!(dialog["message"].as_str().unwrap().contains(command), "{dialog}");
        host.answer_dialog(&dialog, json!({ "confirmed": false }));
        host.wait_settled(from);
    }
}

#[test]
fn an_abort_withdraws_the_gate() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    let (from, dialog) = want(&mut host, &place, "touch ran");
    host.command_data(json!({ "type": "abort" }));
    host.wait_settled(from);
    host.answer_dialog(&dialog.unwrap(), json!({ "value": "Allow once" }));
    host.run_turn("next");
    assert!(place.provider.last_request().is_paired());
    assert_eq!(place.read_file("ran"), None);
}

#[test]
fn several_calls_wait_at_once_and_are_answered_in_any_order() {
    let place = HostFixture::new();
    place.write_rules("rules:\n  - { pattern: \"read(*)\", action: ask }\n");
    place.write_file("x", "of x\n");
    place.write_file("y", "of y\n");
    let mut host = place.start(&[]);
    let read = |id, path| call_part(id, "read", &json!({ "path": path }));
    place.provider.script_replies([ProviderReply::new(vec![read("k1", "x"), read("k2", "y")])]);
    let from = host.send_prompt("go");
    let first = host.wait_frame(from, "the dialog of x", |frame| {
        frame["title"].as_str().is_some_and(|title| title.contains("path: x"))
    });
    let second = host.wait_frame(from, "the dialog of y", |frame| {
        frame["title"].as_str().is_some_and(|title| title.contains("path: y"))
    });
    host.answer_dialog(&second, json!({ "value": "Allow once" }));
    host.answer_dialog(&first, json!({ "value": "Deny" }));
    host.wait_settled(from);
    let request = place.provider.last_request();
    assert!(
        request.is_paired()
            && request.call_result("k2").unwrap().contains("of y")
            && !request.call_result("k1").unwrap().contains("of x")
    );
}

#[test]
fn rules_that_are_not_understood_let_nothing_start() {
    for rules in ["rules: [{", "rules:\n  - { pattern: \"bash(*)\", action: perhaps }\n"] {
        let place = HostFixture::new();
        place.write_rules(rules);
        let end = RpcHost::spawn(RpcHost::omp_command(&place, &["--model", "fake/fake-1"])).wait_end();
        assert_eq!((end.code, end.frames.len()), (Some(1), 0), "{end:?}");
        assert!(end.stderr.contains("permissions.yaml"), "{end:?}");
    }
}
