//! The session file, and which session a process takes up.

use countersign_testkit::process::{
    HostFixture, RpcHost, check_chain, line_texts, lines_when, lines_with, of_type,
    provider::{ProviderReply, ReplyPart, text_part, text_reply},
};
use serde_json::json;

#[test]
fn there_is_no_file_before_a_model_has_answered() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let file = host.session_file();
    host.command_data(json!({ "type": "set_session_name", "name": " early " }));
    host.command_data(json!({ "type": "bash", "command": "echo hi" }));
    place.provider.script_replies([ProviderReply::new(vec![text_part("so far"), ReplyPart::Hang])]);
    let from = host.send_prompt("go");
    host.wait_event(from, "message_update");
    assert!(!file.exists());
    host.command_data(json!({ "type": "abort" }));
    let lines = lines_with(&file, "so far");
    check_chain(&lines);
    assert_eq!((&lines[0]["title"], &lines[0]["cwd"]), (&json!("early"), &json!(place.work)));
    let kinds: Vec<_> = lines[1..].iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["model_change", "thinking_level_change", "message", "message", "message"]);
    assert_eq!((&lines[1]["model"], &lines[2]["thinkingLevel"]), (&json!("fake/fake-1"), &json!("high")));
}

#[test]
fn messages_and_settings_are_appended_and_a_name_rewrites_the_first_line_only() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    let before = lines_with(&file, "\"ok\"");
    host.command_data(json!({ "type": "set_session_name", "name": "named" }));
    let named = lines_when(&file, "a title", |lines| lines[0]["title"] == "named");
    assert_eq!(named[1..], before[1..]);
    host.command_data(json!({ "type": "set_thinking_level", "level": "low" }));
    host.command_data(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-2" }));
    host.command_data(json!({ "type": "bash", "command": "echo by hand" }));
    host.run_turn("two");
    let after =
        lines_when(&file, "two answers", |lines| line_texts(lines).iter().filter(|text| *text == "ok").count() == 2);
    assert_eq!(after[..named.len()], named);
    check_chain(&after);
    let command = after.iter().find(|line| line["message"]["role"] == "bashExecution").unwrap();
    assert_eq!((&command["message"]["output"], &command["message"]["exitCode"]), (&json!("by hand\n"), &json!(0)));
    assert!(
        after.iter().any(|line| line["model"] == "fake/fake-2")
            && after.iter().any(|line| line["thinkingLevel"] == "low")
    );
}

#[test]
fn continue_resume_and_session_take_up_the_same_conversation() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.command_data(json!({ "type": "set_session_name", "name": "named" }));
    host.command_data(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-2" }));
    let (file, state, messages) = (host.session_file(), host.session_state(), host.session_messages());
    host.close_cleanly();
    let id = state["sessionId"].as_str().unwrap();
    let path = file.display().to_string();
    for flags in [vec!["--continue"], vec!["--resume", &id[..6]], vec!["--session", id], vec!["--session", &path]] {
        let mut host = RpcHost::start(&place, &flags);
        let again = host.session_state();
        for key in ["sessionId", "sessionFile", "sessionName", "messageCount"] {
            assert_eq!(again[key], state[key], "{key} with {flags:?}");
        }
        assert_eq!(again["model"]["id"], "fake-2");
        assert_eq!(host.session_messages(), messages);
        host.close_cleanly();
    }
    assert_eq!(lines_with(&file, "named").len(), 6);
}

#[test]
fn a_fork_has_the_conversation_and_leaves_the_file() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    let messages = host.session_messages();
    host.close_cleanly();
    let before = std::fs::read(&file).unwrap();
    let mut fork = place.start(&["--fork", file.to_str().unwrap()]);
    assert_eq!(fork.session_messages(), messages);
    fork.run_turn("elsewhere");
    let lines = lines_with(&fork.session_file(), "elsewhere");
    check_chain(&lines);
    assert_eq!(lines[0]["parentSession"], json!(file));
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_branch_has_the_name_of_the_session() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.run_turn("two");
    host.command_data(json!({ "type": "set_session_name", "name": "named" }));
    let messages = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    host.command_data(json!({ "type": "branch", "entryId": messages[1]["entryId"] }));
    assert_eq!(host.session_state()["sessionName"], "named");
    assert_eq!(lines_with(&host.session_file(), "one")[0]["title"], "named");
    host.command_data(json!({ "type": "new_session" }));
    assert_eq!(host.session_state().get("sessionName"), None);
    host.close_cleanly();
}

#[test]
fn a_session_folder_holds_session_files_only() {
    let place = HostFixture::new();
    let folder = place.home.join("mine");
    let flags = ["--session-dir", folder.to_str().unwrap()];
    let mut host = place.start(&flags);
    host.run_turn("one");
    let (file, id) = (host.session_file(), host.session_state()["sessionId"].clone());
    host.close_cleanly();
    let inside: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(inside, [file]);
    let mut again = place.start(&[&flags[..], &["--continue"]].concat());
    assert_eq!(again.session_state()["sessionId"], id);
}

#[test]
fn no_session_leaves_nothing_behind() {
    let place = HostFixture::new();
    let mut host = place.start(&["--no-session"]);
    assert!(host.session_state().get("sessionFile").is_none());
    host.run_turn("one");
    host.close_cleanly();
    assert!(!place.agent.join("sessions").exists() && !place.agent.join("countersign").exists());
}

#[test]
fn a_session_that_is_not_there_or_none_ends_the_start_with_a_message() {
    let place = HostFixture::new();
    let other = place.write_file("other.jsonl", "hello\n");
    for flags in [vec!["--resume", "ffff"], vec!["--session", other.to_str().unwrap()], vec!["--fork", "nowhere.jsonl"]]
    {
        let end = RpcHost::spawn(RpcHost::omp_command(&place, &flags)).wait_end();
        assert_eq!(
            (end.code, end.frames.len(), end.stderr.trim().is_empty()),
            (Some(1), 0, false),
            "{flags:?}: {end:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(other).unwrap(), "hello\n");
}

#[test]
fn a_start_without_a_usable_model_or_with_a_file_ends_with_a_message() {
    let place = HostFixture::new();
    for flags in [vec!["@notes.txt"], vec!["--model", "nobody/nothing"]] {
        let end = RpcHost::spawn(RpcHost::omp_command(&place, &flags)).wait_end();
        assert_eq!(
            (end.code, end.frames.len(), end.stderr.trim().is_empty()),
            (Some(1), 0, false),
            "{flags:?}: {end:?}"
        );
    }
    std::fs::remove_file(place.agent.join("models.yml")).unwrap();
    let end = RpcHost::spawn(RpcHost::omp_command(&place, &[])).wait_end();
    assert_eq!((end.code, end.frames.len(), end.stderr.trim().is_empty()), (Some(1), 0, false), "{end:?}");
}

#[test]
fn a_long_image_is_stored_next_to_the_file_and_loaded_again() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let data = STANDARD.encode([7_u8; 3000]);
    let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
    let from = host.frame_position();
    host.command_data(json!({ "type": "prompt", "message": "look", "images": [image] }));
    let frames = host.wait_settled(from);
    assert_eq!(of_type(&frames, "agent_end")[0]["messages"][0]["content"][1]["data"], data.as_str());
    let lines = lines_with(&host.session_file(), "blob:sha256:");
    assert!(!json!(lines).to_string().contains(&data));
    host.close_cleanly();
    place.provider.script_replies([text_reply("again")]);
    let mut again = place.resume_host();
    again.run_turn("still there?");
    assert!(place.provider.last_request().messages_text().contains(&data));
}
