//! Work that is handed over to a new session, and the model that new sessions begin with.

use countersign_testkit::process::{
    HostFixture, Latch, lines_with, message_text,
    provider::{ProviderReply, ReplyPart, error_reply, text_part as part, text_reply},
};
use serde_json::json;

use crate::rpc::{start, turn};

#[test]
fn what_the_agent_writes_down_begins_a_new_session() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    place.provider.script_replies([text_reply("hello")]);
    turn(&mut host, "hi");
    let (first, file) = (host.session_state()["sessionId"].take(), host.session_file());
    place.provider.script_replies([text_reply("All is done.")]);
    let handed = host.command_data(json!({ "type": "handoff", "customInstructions": "Name the files." }));
    assert!(place.provider.wait_request(1).messages_text().contains("Name the files."));
    let saved = std::path::PathBuf::from(handed["savedPath"].as_str().unwrap());
    assert_eq!((saved.parent(), std::fs::read_to_string(&saved).unwrap().as_str()), (file.parent(), "All is done.\n"));
    assert_ne!(host.session_state()["sessionId"], first);
    assert_eq!(host.message_texts(), ["All is done."]);
    place.provider.script_replies([text_reply("I know.")]);
    turn(&mut host, "Go on.");
    let messages: Vec<String> = place.provider.wait_request(2).messages().iter().map(message_text).collect();
    assert!(messages.iter().any(|text| text.contains("All is done.")), "{messages:?}");
    assert!(!messages.iter().any(|text| text == "hello"), "{messages:?}");
    let second = host.session_file();
    lines_with(&second, "I know.");
    host.kill();
    let mut host = start(&place, &["--continue"]);
    assert_eq!(host.message_texts(), ["All is done.", "Go on.", "I know."]);
    host.close_cleanly();
}

#[test]
fn open_tasks_do_not_hold_up_a_handoff() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    place.provider.script_replies([text_reply("hello")]);
    turn(&mut host, "hi");
    let first = host.session_state()["sessionId"].take();
    let tasks = json!([{ "name": "one", "tasks": [{ "content": "paint the door", "status": "pending" }] }]);
    host.command_data(json!({ "type": "set_todos", "phases": tasks }));
    place.provider.script_replies([text_reply("The door is to be painted."), text_reply("I went on by myself.")]);
    let handed = host.command_data(json!({ "type": "handoff" }));
    assert_eq!(std::fs::read_to_string(handed["savedPath"].as_str().unwrap()).unwrap(), "The door is to be painted.\n");
    assert_ne!(host.session_state()["sessionId"], first);
    assert_eq!(
        (host.message_texts(), place.provider.request_count()),
        (vec!["The door is to be painted.".to_owned()], 2)
    );
    host.close_cleanly();
}

#[test]
fn a_message_that_waits_is_no_part_of_what_is_handed_over() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    place.provider.script_replies([text_reply("hello")]);
    turn(&mut host, "hi");
    host.command_data(json!({ "type": "follow_up", "message": "And then?" }));
    place.provider.script_replies([text_reply("All is done."), text_reply("That was all.")]);
    let handed = host.command_data(json!({ "type": "handoff" }));
    assert_eq!(std::fs::read_to_string(handed["savedPath"].as_str().unwrap()).unwrap(), "All is done.\n");
    assert_eq!((host.message_texts(), place.provider.request_count()), (vec!["All is done.".to_owned()], 2));
    host.close_cleanly();
}

#[test]
fn a_handoff_that_was_too_long_waits_for_the_summary() {
    let place = HostFixture::with_config("compaction: { keepRecentTokens: 20, reserveTokens: 0 }\n");
    let mut host = start(&place, &[]);
    for number in 0..4 {
        place.provider.script_replies([text_reply("hello")]);
        turn(&mut host, &format!("{number} {}", "more ".repeat(50)));
    }
    let latch = Latch::default();
    let summary = ProviderReply::new(vec![ReplyPart::Until(latch.clone()), part("the summary")]);
    place.provider.script_replies([
        error_reply(400, "prompt is too long: 300000 tokens"),
        summary,
        text_reply("All is done."),
    ]);
    let due = host.send_command(json!({ "type": "handoff" }));
    place.provider.wait_request(5);
    assert_eq!(host.session_state()["isCompacting"], true);
    latch.open();
    let handed = host.wait_answer(&due);
    let saved = handed["data"]["savedPath"].as_str().unwrap_or_else(|| panic!("{handed}"));
    assert_eq!(std::fs::read_to_string(saved).unwrap(), "All is done.\n");
    host.close_cleanly();
}

#[test]
fn an_abort_behind_a_handoff_is_answered_behind_it() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    place.provider.script_replies([text_reply("hello"), text_reply("All is done.")]);
    turn(&mut host, "hi");
    let from = host.frame_position();
    host.write_input("{\"type\":\"handoff\",\"id\":\"h\"}\n{\"type\":\"abort\",\"id\":\"a\"}\n");
    let is = |frame: &serde_json::Value, id: &str| frame["type"] == "response" && frame["id"] == id;
    host.wait_frame(from, "the abort", |frame| is(frame, "a"));
    assert!(host.frames_since(from).iter().any(|frame| is(frame, "h")));
    assert_eq!(host.session_state()["isStreaming"], false);
    host.close_cleanly();
}

#[test]
fn what_an_abort_gives_up_is_judged_all_the_same() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    place.provider.script_replies([text_reply("hello")]);
    turn(&mut host, "hi");
    let budget =
        json!({ "max_tokens": 1_000_000, "max_tool_calls": 100, "max_wall_time_ms": 3_600_000, "max_cost_usd": 100 });
    let declaration = json!({
        "actor": "ci", "budget": budget, "scopes": ["prompt", "bash"], "action_allowlist": ["command.prompt", "command.bash", "bash.mutating", "bash.readonly"],
    });
    host.command_data(json!({ "type": "negotiate_unattended", "declaration": declaration }));
    let bash = host.send_command(json!({ "type": "bash", "command": "sleep 600" }));
    let refused = [host.send_command(json!({ "type": "compact" })), host.send_command(json!({ "type": "handoff" }))];
    host.command_data(json!({ "type": "abort" }));
    for due in refused {
        assert_eq!(host.wait_answer(&due)["error"]["code"], "scope_denied");
    }
    drop(bash);
    host.kill();
}

#[test]
fn a_handoff_of_which_nothing_came_leaves_the_session_open() {
    let place = HostFixture::with_config("retry: { enabled: false }\n");
    let mut host = start(&place, &[]);
    place.provider.script_replies([text_reply("hello"), error_reply(400, "no")]);
    turn(&mut host, "hi");
    let session = host.session_state()["sessionId"].take();
    assert_eq!(host.run_command(json!({ "type": "handoff" }))["data"], json!(null));
    assert_eq!(host.session_state()["sessionId"], session);
    host.close_cleanly();
}

#[test]
fn the_model_of_new_sessions_is_kept_and_this_one_takes_it() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    let selection = json!({ "provider": "fake", "modelId": "fake-2", "thinkingLevel": "max" });
    let mut command = selection.clone();
    command["type"] = "set_default_model_selection".into();
    assert_eq!(host.command_data(command), selection);
    assert_eq!(host.session_state()["model"]["id"], "fake-2");
    host.kill();
    let config = std::fs::read_to_string(place.agent.join("config.yml")).unwrap();
    assert!(config.contains("fake/fake-2") && config.contains("xhigh"), "{config}");
    let mut host = start(&place, &[]);
    let providers = host.command_data(json!({ "type": "get_login_providers" }))["providers"].take();
    let fake = json!({ "id": "fake", "name": "fake", "available": false, "authenticated": true });
    assert!(providers.as_array().unwrap().contains(&fake), "{providers}");
    assert!(host.command_error(json!({ "type": "login", "providerId": "fake" })).contains("models.yml"));
    host.close_cleanly();
}
