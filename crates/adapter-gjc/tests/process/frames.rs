//! Frames that a host reads: envelopes, state, answers.

use countersign_testkit::process::{
    HostFixture, RpcHost,
    provider::{error_reply, text_reply},
};
use serde_json::json;

use crate::rpc::{command, event, events, start, turn};

#[test]
fn a_turn_comes_in_envelopes_that_are_counted() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("hello")]);
    let mut host = start(&place, &[]);
    let session = host.session_state()["sessionId"].as_str().unwrap().to_owned();
    assert_eq!((session.len(), &session[14..15]), (36, "7"), "a UUID of version 7");
    let from = turn(&mut host, "hi");
    let events = events(&host, from);
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], at + 1);
        assert_eq!((&event["protocol_version"], &event["session_id"]), (&json!(2), &json!(session)));
        assert_eq!(event["payload"]["event_type"], event["payload"]["event"]["type"]);
    }
    let mut kinds: Vec<&str> = events.iter().map(|event| event["payload"]["event_type"].as_str().unwrap()).collect();
    kinds.dedup();
    let want =
        "agent_start turn_start message_start message_end message_start message_update message_end turn_end agent_end";
    assert_eq!(kinds.join(" "), want);
    assert_eq!(events.last().unwrap()["payload"]["event"]["stopReason"], "completed");
    host.command_data(json!({ "type": "new_session" }));
    let second = host.session_state()["sessionId"].take();
    place.provider.script_replies([text_reply("again")]);
    let from = turn(&mut host, "hi");
    let first = &super::rpc::events(&host, from)[0];
    assert_eq!((&first["session_id"], &first["seq"]), (&second, &json!(events.len() + 1)));
    host.close_cleanly();
}

#[test]
fn a_run_that_is_tried_again_pauses_and_ends_with_its_end() {
    let place = HostFixture::with_config("retry: { maxRetries: 1, baseDelayMs: 1, provider: { maxRetries: 0 } }\n");
    place.provider.script_replies([error_reply(503, "busy"), error_reply(503, "busy")]);
    let mut host = start(&place, &[]);
    let from = host.send_prompt("hi");
    event(&host, from, "auto_retry_end");
    let ended = |frame: &serde_json::Value| frame["payload"]["event"]["stopReason"] == "completed";
    host.wait_frame(from, "the end", ended);
    let summaries: Vec<String> = events(&host, from)
        .iter()
        .map(|event| &event["payload"]["event"])
        .filter(|event| event["type"].as_str().unwrap().starts_with("a"))
        .map(|event| format!("{}:{}", event["type"].as_str().unwrap(), event["stopReason"].as_str().unwrap_or("")))
        .collect();
    let want = [
        "agent_start:",
        "agent_end:paused",
        "auto_retry_start:",
        "agent_start:",
        "auto_retry_end:",
        "agent_end:completed",
    ];
    assert_eq!(summaries, want);
    host.close_cleanly();
}

#[test]
fn state_is_slim_and_gives_more_to_those_who_ask() {
    let place = HostFixture::new();
    let mut host = start(&place, &["--no-session", "--some-flag", "--no-title"]);
    let state = host.session_state();
    assert_eq!(state["todoPhases"], json!([]));
    assert_eq!((&state["contextUsage"]["contextWindow"], state.get("sessionFile")), (&json!(128_000), None));
    assert!(state.get("systemPrompt").is_none() && state.get("dumpTools").is_none());
    let state = host.command_data(json!({ "type": "get_state", "include": ["tools", "systemPrompt", "else"] }));
    assert!(state["systemPrompt"][0].as_str().unwrap().contains("working directory"));
    let tools = state["dumpTools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "bash" && tool["parameters"]["type"] == "object"), "{tools:?}");
    host.close_cleanly();
}

#[test]
fn every_line_that_came_before_the_end_of_input_is_answered() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    let lines = [
        r#"{"id":"a","type":"bash","command":"sleep 0.2; echo one"}"#,
        r#"{"id":"b","type":"set_session_name","name":"x"}"#,
        "not json",
        r#"{"id":7,"type":"what"}"#,
        r#"{"id":"c","type":"set_steering_mode","mode":"sideways"}"#,
        r#"{"id":"d","type":"bash","command":"echo two"}"#,
        r#"{"id":"e","type":"prompt"}"#,
    ];
    host.write_input(format!("{}\n", lines.join("\n")));
    let end = host.close();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    let mut answers: Vec<String> = end
        .frames
        .iter()
        .filter(|frame| frame["type"] == "response")
        .map(|frame| {
            let data = frame["data"]["output"].as_str().or_else(|| frame["error"].as_str()).unwrap_or_default();
            format!("{} {} {}", frame["id"], frame["command"].as_str().unwrap(), data.trim())
        })
        .collect();
    answers.sort_unstable();
    let want = [
        r#""a" bash one"#,
        r#""b" set_session_name "#,
        r#""c" set_steering_mode Invalid steering mode: sideways"#,
        r#""d" bash two"#,
        r#""e" prompt prompt: `message` is required"#,
        "7 what Unknown command: what",
    ];
    assert!(answers.remove(answers.len() - 1).starts_with("null parse Failed to parse command"), "{answers:?}");
    assert_eq!(answers, want);
}

#[test]
fn an_adapter_that_cannot_open_reports_the_reason_and_writes_no_frame() {
    let place = HostFixture::new();
    for (flags, want) in [
        (&["@notes.md"][..], "@notes.md: files cannot be given on the command line in rpc mode"),
        (&["--model", "nobody/nothing"], "Model not found: nobody/nothing"),
    ] {
        let end = RpcHost::spawn(command(&place, flags)).close();
        assert_eq!((end.code, end.frames.len(), end.junk.len()), (Some(1), 0, 0), "{end:?}");
        assert!(end.stderr.contains(want), "{}", end.stderr);
    }
}

#[test]
fn a_session_whose_file_cannot_be_written_says_so_at_its_end() {
    let place = HostFixture::new();
    place.provider.script_replies([text_reply("hello")]);
    let mut host = start(&place, &["--session-dir", "kept"]);
    // A file is at the place of its folder.
    let _ = std::fs::remove_dir_all(place.work.join("kept"));
    place.write_file("kept", "in the way");
    turn(&mut host, "hi");
    let end = host.close();
    assert_eq!(end.code, Some(1), "{}", end.stderr);
    let last = end.frames.last().unwrap();
    assert_eq!((&last["type"], &last["command"]), (&json!("response"), &json!("shutdown")), "{last}");
    assert!(last["error"].as_str().unwrap().contains("could not be written"), "{last}");
}

#[test]
fn a_host_that_requests_titles_gets_the_name_of_its_session() {
    for (value, count) in [("yes", 1), ("0", 0)] {
        let place = HostFixture::new();
        let mut command = command(&place, &[]);
        command.env("GJC_RPC_EMIT_TITLE", value);
        let mut host = RpcHost::spawn(command);
        host.wait_event(0, "ready");
        host.command_data(json!({"type": "set_session_name", "name": "The move"}));
        host.session_state();
        let frames = host.frames_since(0);
        let titles: Vec<_> = frames.iter().filter(|frame| frame["method"] == "setTitle").collect();
        assert_eq!(titles.len(), count, "{value}");
        assert!(titles.iter().all(|title| title["title"] == "The move"));
        host.close_cleanly();
    }
}
