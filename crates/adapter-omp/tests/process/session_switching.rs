//! Other sessions in the same process: new ones, files, branches.

use countersign_testkit::process::{
    HostFixture, check_chain, frame_shape, lines_with, of_type,
    provider::{ProviderReply, ReplyPart, text_part},
};
use serde_json::json;

#[test]
fn a_new_session_is_empty_and_names_its_parent() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.command_data(json!({ "type": "set_thinking_level", "level": "low" }));
    host.command_data(json!({ "type": "follow_up", "message": "never" }));
    let old = host.session_state();
    let data = host.command_data(json!({ "type": "new_session", "parentSession": "some where" }));
    assert_eq!(data, json!({ "cancelled": false }));
    let new = host.session_state();
    assert_ne!((&new["sessionId"], &new["sessionFile"]), (&old["sessionId"], &old["sessionFile"]));
    assert_eq!([&new["messageCount"], &new["queuedMessageCount"]], [0, 0]);
    assert_eq!((&new["model"], &new["thinkingLevel"]), (&old["model"], &json!("low")));
    host.run_turn("two");
    let lines = lines_with(&host.session_file(), "\"ok\"");
    check_chain(&lines);
    assert_eq!(lines[0]["parentSession"], "some where");
}

#[test]
fn requests_after_a_switch_are_about_the_new_session() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let old = host.session_state()["sessionId"].take();
    let commands =
        ["new_session", "get_state", "get_messages", "get_session_stats"].map(|kind| json!({ "type": kind }));
    let [_, state, messages, stats] = commands.map(|command| host.send_command(command));
    let state = host.wait_answer(&state)["data"].take();
    assert_ne!(state["sessionId"], old);
    assert_eq!(host.wait_answer(&messages)["data"]["messages"], json!([]));
    assert_eq!(host.wait_answer(&stats)["data"]["sessionId"], state["sessionId"]);
    host.close_cleanly();
}

/// Tests that a name waits for the session's file, and later commands do not, and are not answered before it.
#[test]
fn a_name_delays_no_later_request() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let name =
        |round: usize| json!({ "id": format!("n{round}"), "type": "set_session_name", "name": round.to_string() });
    for round in 0..12 {
        let bash = json!({ "id": format!("b{round}"), "type": "bash", "command": "true" });
        let from = host.frame_position();
        host.write_input(format!("{}\n{bash}\n", name(round)));
        for id in [format!("n{round}"), format!("b{round}")] {
            let answer = host.wait_frame(from, "its answer", |frame| frame["type"] == "response" && frame["id"] == id);
            assert_eq!(answer["success"], true, "{answer}");
        }
    }
    for round in 12..24 {
        let prompt = json!({ "id": format!("p{round}"), "type": "prompt", "message": "more" });
        let from = host.frame_position();
        host.write_input(format!("{}\n{prompt}\n", name(round)));
        host.wait_settled(from);
        let frames = host.frames_since(from);
        let at = |what: &str| frames.iter().position(|frame| frame["id"] == what || frame["type"] == what).unwrap();
        assert!(at(&format!("p{round}")) < at("agent_start"), "{round}");
    }
    assert_eq!(host.session_state()["sessionName"], "23");
    host.close_cleanly();
}

#[test]
fn switching_takes_up_the_other_conversation() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("of the first");
    let first = host.session_file();
    lines_with(&first, "\"ok\"");
    host.command_data(json!({ "type": "new_session" }));
    host.run_turn("of the second");
    let data = host.command_data(json!({ "type": "switch_session", "sessionPath": first }));
    assert_eq!(data, json!({ "cancelled": false }));
    assert_eq!(
        (host.session_file(), host.message_texts()),
        (first.clone(), vec!["of the first".to_owned(), "ok".to_owned()])
    );
    host.run_turn("again");
    assert!(!place.provider.last_request().messages_text().contains("of the second"));
    check_chain(&lines_with(&first, "again"));
}

#[test]
fn a_copy_of_the_open_session_is_a_session_of_its_own() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    lines_with(&file, "\"ok\"");
    let id = host.session_state()["sessionId"].take();
    let copy = file.with_file_name("copy.jsonl");
    std::fs::copy(&file, &copy).unwrap();
    host.command_data(json!({ "type": "switch_session", "sessionPath": copy }));
    assert_eq!(host.message_texts(), ["one", "ok"]);
    let copied = host.session_state();
    assert_ne!(copied["sessionId"], id);
    host.run_turn("in the copy");
    assert_eq!(lines_with(&copy, "in the copy")[0]["id"], copied["sessionId"]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": file }));
    assert_eq!((host.message_texts().len(), host.session_state()["sessionId"].take()), (2, id));
    host.close_cleanly();
}

#[test]
fn a_session_begins_where_none_was_if_the_folder_is_one_for_sessions() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let new = host.session_file().with_file_name("fresh.jsonl");
    host.command_data(json!({ "type": "switch_session", "sessionPath": new }));
    assert_eq!((host.session_file(), &host.session_state()["messageCount"]), (new.clone(), &json!(0)));
    host.run_turn("two");
    check_chain(&lines_with(&new, "\"ok\""));
}

#[test]
fn what_is_no_session_is_refused_untouched_and_the_old_one_stays() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    let notes = place.write_file("notes.txt", "my notes\n");
    let headless = place.write_file("headless.jsonl", "{\"type\":\"message\"}\n");
    for path in [notes.clone(), headless.clone(), place.work.clone(), "/nowhere/at/all.jsonl".into()] {
        host.command_error(json!({ "type": "switch_session", "sessionPath": path }));
    }
    assert_eq!(
        (place.read_file("notes.txt").unwrap(), place.read_file("headless.jsonl").unwrap()),
        ("my notes\n".into(), "{\"type\":\"message\"}\n".into())
    );
    assert_eq!(host.session_file(), file);
    host.run_turn("two");
    assert_eq!(host.message_texts(), ["one", "ok", "two", "ok"]);
}

#[test]
fn a_run_that_a_switch_stops_sends_no_more_events() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    host.command_data(json!({ "type": "new_session" }));
    place.provider.script_replies([ProviderReply::new(vec![text_part("cut short"), ReplyPart::Hang])]);
    let from = host.send_prompt("long");
    host.wait_event(from, "message_update");
    host.command_data(json!({ "type": "switch_session", "sessionPath": file }));
    place.provider.wait_request_when(1, |request| request.is_gone);
    host.wait_settled(from);
    assert_eq!(of_type(&host.frames_since(from), "agent_end").len(), 0);
    assert_eq!((host.message_texts().len(), &host.session_state()["isStreaming"]), (2, &json!(false)));
}

#[test]
fn messages_after_a_switch_to_the_same_session_reach_it_as_it_is_then() {
    for behavior in [None, Some("steer"), Some("followUp")] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        host.run_turn("one");
        let file = host.session_file();
        place.provider.script_replies([ProviderReply::new(vec![text_part("cut short"), ReplyPart::Hang])]);
        let from = host.send_prompt("long");
        host.wait_event(from, "message_update");
        let from = host.frame_position();
        let mut prompt = json!({ "type": "prompt", "id": "then", "message": "two" });
        if let Some(behavior) = behavior {
            prompt["streamingBehavior"] = behavior.into();
        }
        let switch = json!({ "type": "switch_session", "id": "first", "sessionPath": file });
        host.write_input(format!("{switch}\n{prompt}\n"));
        for id in ["first", "then"] {
            let answer = host.wait_frame(from, id, |frame| frame["type"] == "response" && frame["id"] == id);
            assert_eq!(answer["success"], true, "{behavior:?}: {answer}");
        }
        host.wait_settled(from);
        assert_eq!(host.message_texts()[host.message_texts().len() - 2..], ["two", "ok"], "{behavior:?}");
    }
}

#[test]
fn a_branch_holds_what_came_before_the_message_and_gives_its_text() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("first");
    host.run_turn("second");
    let old = host.session_file();
    let before = lines_with(&old, "second");
    let users = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    assert_eq!([&users[0]["text"], &users[1]["text"]], ["first", "second"]);
    let data = host.command_data(json!({ "type": "branch", "entryId": users[1]["entryId"] }));
    assert_eq!(data, json!({ "text": "second", "cancelled": false }));
    assert_eq!(host.message_texts(), ["first", "ok"]);
    host.run_turn("other second");
    let lines = lines_with(&host.session_file(), "other second");
    check_chain(&lines);
    assert_eq!(lines[0]["parentSession"], json!(old));
    assert_eq!(lines[1..5], before[1..5]);
    assert_eq!(lines_with(&old, "second")[..before.len()], before);
}

#[test]
fn a_branch_before_the_first_message_is_a_new_session() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("first");
    let old = host.session_file();
    let users = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    let data = host.command_data(json!({ "type": "branch", "entryId": users[0]["entryId"] }));
    assert_eq!((&data["text"], &host.session_state()["messageCount"]), (&json!("first"), &json!(0)));
    host.run_turn("again");
    let lines = lines_with(&host.session_file(), "again");
    check_chain(&lines);
    assert_eq!(lines[0]["parentSession"], json!(old));
}

#[test]
fn only_a_message_of_the_person_can_be_branched_from() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("first");
    let file = host.session_file();
    let lines = lines_with(&file, "\"ok\"");
    let answer = lines.iter().find(|line| line["message"]["role"] == "assistant").unwrap();
    for id in [answer["id"].clone(), "nope".into()] {
        let answer = host.run_command(json!({ "type": "branch", "entryId": id }));
        assert_eq!(answer["command"], "parse", "{answer}");
        assert_eq!(answer["error"], "Failed to parse command: Invalid entry ID for branching");
    }
    assert!(frame_shape(&host.run_turn("second")).ends_with("turn_end agent_end"));
}
