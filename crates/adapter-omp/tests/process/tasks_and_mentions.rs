//! Tasks, mentions, pages, models, flags.

use countersign_testkit::process::{
    HostFixture, RpcHost, frame_shape, message_roles, of_type,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::json;

fn todo(ops: &serde_json::Value) -> ProviderReply {
    ProviderReply::new(vec![call_part("k", "todo_write", &json!({ "ops": ops }))])
}

/// Has the model list one task, and gives its id.
fn listed(place: &HostFixture, host: &mut RpcHost) -> serde_json::Value {
    let phases = json!([{ "name": "one", "tasks": [{ "content": "first" }] }]);
    place.provider.script_replies([todo(&json!([{ "op": "replace", "phases": phases }]))]);
    of_type(&host.run_turn("go"), "todo_reminder")[0]["todos"][0]["id"].clone()
}

#[test]
fn open_tasks_are_reminded_of_and_finished_ones_go_with_the_next_prompt() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let phases = json!([{ "name": "one", "tasks": [{ "content": "first" }] }]);
    place.provider.script_replies([todo(&json!([{ "op": "replace", "phases": phases }]))]);
    let frames = host.run_turn("go");
    let reminders = of_type(&frames, "todo_reminder");
    let attempts: Vec<_> = reminders.iter().map(|reminder| reminder["attempt"].clone()).collect();
    assert_eq!((attempts, &reminders[0]["maxAttempts"]), (vec![json!(1), json!(2), json!(3)], &json!(3)));
    assert_eq!(
        (&reminders[0]["todos"][0]["content"], &reminders[0]["todos"][0]["status"]),
        (&json!("first"), &json!("in_progress"))
    );
    assert_eq!(message_roles(of_type(&frames, "agent_end")[1]["messages"].as_array().unwrap())[0], "developer");
    let id = reminders[0]["todos"][0]["id"].clone();
    place.provider.script_replies([todo(&json!([{ "op": "update", "id": id, "status": "completed" }]))]);
    let frames = host.run_turn("finish");
    assert_eq!((of_type(&frames, "todo_reminder").len(), of_type(&frames, "todo_auto_clear").len()), (0, 0));
    assert!(frame_shape(&host.run_turn("next")).starts_with("prompt todo_auto_clear agent_start"));
    assert_eq!(of_type(&host.run_turn("next"), "todo_auto_clear").len(), 0);
}

#[test]
fn a_branch_has_the_tasks_that_were_open_where_it_begins() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let id = listed(&place, &mut host);
    host.run_turn("more");
    let users = host.command_data(json!({ "type": "get_branch_messages" }))["messages"].clone();
    let more = users.as_array().unwrap().iter().find(|message| message["text"] == "more").unwrap();
    host.command_data(json!({ "type": "branch", "entryId": more["entryId"] }));
    assert_eq!(of_type(&host.run_turn("anything"), "todo_reminder").len(), 3, "nothing was said of tasks yet");
    place.provider.script_replies([todo(&json!([{ "op": "update", "id": id, "status": "in_progress" }]))]);
    let frames = host.run_turn("other");
    let task = &of_type(&frames, "todo_reminder")[0]["todos"][0];
    assert_eq!((&task["id"], &task["status"]), (&id, &json!("in_progress")));
    place.provider.script_replies([todo(&json!([{ "op": "update", "id": id, "status": "completed" }]))]);
    host.run_turn("finish");
    assert!(frame_shape(&host.run_turn("next")).starts_with("prompt todo_auto_clear agent_start"));
}

#[test]
fn the_tasks_of_a_session_from_elsewhere_are_reminded_of() {
    let (place, elsewhere) = (HostFixture::new(), HostFixture::new());
    let mut host = elsewhere.start(&[]);
    let phases = json!([{ "name": "one", "tasks": [{ "content": "first" }, { "content": "second" }] }]);
    elsewhere.provider.script_replies([todo(&json!([{ "op": "replace", "phases": phases }]))]);
    host.run_turn("go");
    let file = std::fs::read_to_string(host.session_file()).unwrap();
    let brought = place.write_file("brought.jsonl", &file);
    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": brought }));
    let frames = host.run_turn("where were we?");
    let reminders = of_type(&frames, "todo_reminder");
    assert_eq!(reminders.len(), 3);
    assert_eq!(reminders[0]["todos"].as_array().unwrap().len(), 2);
    assert!(place.provider.last_request().messages_text().contains("2 of your tasks are still open"));
    let (bare, _) = (HostFixture::new(), drop(host));
    let brought = bare.write_file("brought.jsonl", &file);
    let mut host = bare.start(&["--tools", "read"]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": brought }));
    assert_eq!(of_type(&host.run_turn("where were we?"), "todo_reminder").len(), 0, "it could not tick one off");
}

#[test]
fn tasks_of_a_branch_that_was_left_are_not_reminded_of() {
    let (place, elsewhere) = (HostFixture::new(), HostFixture::new());
    let mut host = elsewhere.start(&[]);
    let phases = json!([{ "name": "one", "tasks": [{ "content": "first" }] }]);
    elsewhere.provider.script_replies([todo(&json!([{ "op": "replace", "phases": phases }]))]);
    host.run_turn("go");
    let file = std::fs::read_to_string(host.session_file()).unwrap();
    let lines = file.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut other = lines.into_iter().find(|line| line["message"]["role"] == "user").unwrap();
    other["id"] = json!("0badcafe");
    other["message"]["content"] = json!("something else");
    let brought = place.write_file("brought.jsonl", format!("{file}{other}\n"));
    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": brought }));
    assert_eq!(of_type(&host.run_turn("well?"), "todo_reminder").len(), 0);
}

#[test]
fn tasks_that_were_done_elsewhere_are_not_reminded_of() {
    let (place, elsewhere) = (HostFixture::new(), HostFixture::new());
    let mut host = place.start(&[]);
    let id = listed(&place, &mut host);
    let file = host.session_file();
    drop(host);

    let carried = elsewhere.write_file("carried.jsonl", std::fs::read_to_string(&file).unwrap());
    let mut host = elsewhere.start(&[]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": carried }));
    elsewhere.provider.script_replies([todo(&json!([{ "op": "update", "id": id, "status": "completed" }]))]);
    assert_eq!(of_type(&host.run_turn("finish"), "todo_reminder").len(), 0);
    std::fs::copy(host.session_file(), &file).unwrap();

    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": file }));
    assert_eq!(of_type(&host.run_turn("where were we?"), "todo_reminder").len(), 0);
}

#[test]
fn tasks_that_the_file_lost_come_from_the_log() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let id = listed(&place, &mut host);
    let file = host.session_file();
    drop(host);
    let text = std::fs::read_to_string(&file).unwrap();
    let result = text.find("\"role\":\"toolResult\"").unwrap();
    std::fs::write(&file, &text[..=text[..result].rfind('\n').unwrap()]).unwrap();

    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "switch_session", "sessionPath": file }));
    place.provider.script_replies([todo(&json!([{ "op": "update", "id": id, "status": "in_progress" }]))]);
    let task = of_type(&host.run_turn("go on"), "todo_reminder")[0]["todos"][0].clone();
    assert_eq!((&task["id"], &task["status"]), (&id, &json!("in_progress")));
}

#[test]
fn a_file_that_is_mentioned_comes_right_behind_the_message() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.write_file("notes.txt", "what it says\n");
    place.write_file("picture.bin", [0xff, 0, 0xfe]);
    let sequence = frame_shape(&host.run_turn("see @notes.txt, @picture.bin and @nowhere.txt"));
    assert!(sequence.contains("+user -user +fileMention -fileMention +assistant"), "{sequence}");
    let files = host.session_messages()[1]["files"].clone();
    assert_eq!(files[0], json!({ "path": "notes.txt", "content": "what it says\n", "lineCount": 1, "byteSize": 13 }));
    assert_eq!((&files[1]["path"], &files[1]["skippedReason"]), (&json!("picture.bin"), &json!("binary")));
    assert_eq!(files.as_array().unwrap().len(), 2);
    assert!(place.provider.last_request().messages_text().contains("what it says"));
}

#[test]
fn a_page_shows_the_conversation_runs_nothing_of_it_and_loads_nothing() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([text_reply("<script>alert(1)</script> and ![x](http://example.org/x.png)")]);
    host.run_turn("</script><img src=http://example.org/y onerror=alert(2)>");
    let path = host.command_data(json!({ "type": "export_html" }))["path"].as_str().unwrap().to_owned();
    let stem = host.session_file().file_stem().unwrap().to_string_lossy().into_owned();
    assert_eq!(path, format!("omp-session-{stem}.html"));
    let page = place.read_file(&path).unwrap();
    for bad in ["<script>alert", "<img src=http", "src=\"http", "href=\"http"] {
        assert!(!page.contains(bad), "{bad}");
    }
    assert!(page.contains("alert(1)"));
    assert_eq!(
        host.command_data(json!({ "type": "export_html", "outputPath": "sub/page.html" }))["path"],
        "sub/page.html"
    );
    assert!(place.read_file("sub/page.html").is_some());
    host.command_error(json!({ "type": "export_html", "outputPath": "/proc/nowhere/page.html" }));
}

#[test]
fn models_and_levels_go_round() {
    let place = HostFixture::new();
    let mut host = RpcHost::start(&place, &["--models", "fake/fake-1,claude/claude-1", "--thinking", "low"]);
    let state = host.session_state();
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!("fake-1"), &json!("low")));
    let next = host.command_data(json!({ "type": "cycle_model" }));
    assert_eq!((&next["model"]["id"], &next["isScoped"]), (&json!("claude-1"), &json!(true)));
    host.run_turn("go");
    assert!(place.provider.last_request().head.starts_with("POST /v1/messages"));
    assert_eq!(host.command_data(json!({ "type": "cycle_model" }))["model"]["id"], "fake-1");
    let levels: Vec<String> = (0..3)
        .map(|_| host.command_data(json!({ "type": "cycle_thinking_level" }))["level"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(levels[..2], ["medium", "high"]);
    host.command_data(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-2" }));
    assert!(host.session_state().get("thinkingLevel").is_none());
    assert!(host.command_data(json!({ "type": "cycle_thinking_level" })).is_null());
}

#[test]
fn flags_of_other_programs_are_taken_and_those_for_the_prompt_reach_it() {
    let place = HostFixture::new();
    place.write_file("AGENTS.md", "always be brief\n");
    let mut host = place.start(&[
        "--no-title",
        "--no-lsp",
        "--weird",
        "--flag=1",
        "left over",
        "--append-system-prompt",
        "and be kind",
    ]);
    host.run_turn("go");
    let system = place.provider.last_request().messages()[0].to_string();
    assert!(system.contains("always be brief") && system.contains("and be kind"));
    let end = host.close();
    let warnings =
        ["--weird", "--flag"].map(|flag| format!("countersign: {flag} is not a known flag and was ignored\n"));
    assert_eq!((end.code, end.stderr, end.junk.len()), (Some(0), warnings.concat(), 0));
    let mut bare = place.start(&["--no-tools", "--system-prompt", "only this"]);
    bare.run_turn("go");
    let request = place.provider.last_request();
    assert!(
        request.messages()[0].to_string().contains("only this")
            && request.body["tools"].as_array().is_none_or(Vec::is_empty)
    );
}

#[test]
fn what_begins_with_a_slash_goes_to_the_model_as_it_is() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("/unknown thing");
    assert!(place.provider.last_request().messages_text().contains("/unknown thing"));
}
