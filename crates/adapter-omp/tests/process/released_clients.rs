//! Every command that a released client of omp or of pi sends is answered once, under its id.

use countersign_testkit::process::{
    FramePosition, HostFixture, RpcHost, of_type,
    provider::{ProviderReply, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

/// Commands of the types of omp 18.2.3 and 13.19, of pi 0.73 and later, and of pi-acp 0.0.34, in an order in which each makes sense.
fn commands() -> Vec<(Value, bool)> {
    let tool = json!({ "name": "t", "label": "T", "description": "d", "parameters": {}, "loadMode": "discoverable" });
    let tasks = json!([{ "name": "All", "tasks": [{ "content": "one", "status": "pending" }] }]);
    let ok = |command: Value| (command, true);
    let fails = |command: Value| (command, false);
    vec![
        fails(json!({ "type": "negotiate_protocol", "protocolVersion": 2 })),
        ok(json!({ "type": "negotiate_protocol", "protocolVersion": 1 })),
        ok(json!({ "type": "get_state" })),
        ok(json!({ "type": "set_fast_mode", "enabled": false })),
        fails(json!({ "type": "set_fast_mode", "enabled": true })),
        ok(json!({ "type": "get_available_commands" })),
        ok(json!({ "type": "get_commands" })),
        ok(json!({ "type": "set_todos", "phases": tasks })),
        ok(json!({ "type": "set_host_tools", "tools": [tool] })),
        ok(json!({ "type": "set_host_uri_schemes", "schemes": [{ "scheme": "db", "writable": true }] })),
        ok(json!({ "type": "set_subagent_subscription", "level": "progress" })),
        fails(json!({ "type": "set_subagent_subscription", "level": "all" })),
        ok(json!({ "type": "get_subagents" })),
        fails(json!({ "type": "get_subagent_messages", "subagentId": "a" })),
        fails(json!({ "type": "get_subagent_messages" })),
        ok(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-1" })),
        ok(json!({ "type": "cycle_model" })),
        ok(json!({ "type": "get_available_models" })),
        ok(json!({ "type": "set_thinking_level", "level": "low" })),
        ok(json!({ "type": "cycle_thinking_level" })),
        ok(json!({ "type": "get_available_thinking_levels" })),
        ok(json!({ "type": "set_steering_mode", "mode": "all" })),
        ok(json!({ "type": "set_follow_up_mode", "mode": "all" })),
        ok(json!({ "type": "set_interrupt_mode", "mode": "wait" })),
        ok(json!({ "type": "set_auto_compaction", "enabled": true })),
        ok(json!({ "type": "set_auto_retry", "enabled": true })),
        ok(json!({ "type": "abort_retry" })),
        ok(json!({ "type": "abort_bash" })),
        ok(json!({ "type": "abort" })),
        ok(json!({ "type": "get_session_stats" })),
        ok(json!({ "type": "get_branch_messages" })),
        ok(json!({ "type": "get_fork_messages" })),
        ok(json!({ "type": "get_last_assistant_text" })),
        ok(json!({ "type": "set_session_name", "name": "n" })),
        ok(json!({ "type": "get_messages" })),
        ok(json!({ "type": "get_messages_page", "limit": 1 })),
        fails(json!({ "type": "get_messages_page", "cursor": "x" })),
        ok(json!({ "type": "get_login_providers" })),
        fails(json!({ "type": "login", "providerId": "anthropic" })),
        fails(json!({ "type": "fork", "entryId": "nothing" })),
        fails(json!({ "type": "branch", "entryId": "nothing" })),
        fails(json!({ "type": "fork" })),
        fails(json!({ "type": "queue_message", "message": "m" })),
        fails(json!({ "type": "set_queue_mode", "mode": "all" })),
        fails(json!({ "type": "reset" })),
        fails(json!({ "type": "get_entries" })),
        fails(json!({ "type": "get_tree" })),
    ]
}

#[test]
fn every_command_of_every_client_is_answered_once_under_its_id() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("hello");
    let from = host.frame_position();
    let mut ids = Vec::new();
    for (command, succeeds) in commands() {
        let due = host.send_command(command.clone());
        let answer = host.wait_answer(&due);
        assert_eq!(answer["success"], succeeds, "{command}: {answer}");
        let name = answer["command"].as_str().unwrap();
        assert!(name == command["type"] || (!succeeds && name == "parse"), "{command}: {answer}");
        assert!(succeeds || answer["error"].as_str().is_some_and(|error| error.len() > 10), "{command}: {answer}");
        ids.push(due.id);
    }
    for command in [
        json!({ "type": "bash", "command": "true" }),
        json!({ "type": "compact" }),
        json!({ "type": "export_html" }),
        json!({ "type": "clone" }),
        json!({ "type": "handoff" }),
        json!({ "type": "new_session" }),
        json!({ "type": "prompt", "message": "m" }),
        json!({ "type": "steer", "message": "m" }),
        json!({ "type": "follow_up", "message": "m" }),
        json!({ "type": "abort_and_prompt", "message": "m" }),
    ] {
        let due = host.send_command(command);
        host.wait_answer(&due);
        ids.push(due.id);
    }
    // An unknown command has no id, and its hosts wait for none.
    host.write_input("{\"id\":\"u\",\"type\":\"dance\"}\n");
    host.wait_frame(from, "the answer without an id", |frame| frame["command"] == "dance" && frame.get("id").is_none());
    host.session_state();
    let answers = of_type(&host.frames_since(from), "response");
    for id in &ids {
        assert_eq!(answers.iter().filter(|answer| answer["id"] == id.as_str()).count(), 1, "{id}");
    }
    host.close_cleanly();
}

#[test]
fn the_state_has_what_later_clients_read() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let phases = json!([{ "id": "p", "name": "All", "tasks": [{ "id": "t", "content": "one", "status": "pending" }] }]);
    assert_eq!(host.command_data(json!({ "type": "set_todos", "phases": phases }))["todoPhases"], phases);
    let state = host.session_state();
    assert_eq!(state["todoPhases"], phases);
    let members = ["fastModeEnabled", "fastModeActive", "pendingMessageCount"].map(|name| &state[name]);
    assert_eq!(members, [&json!(false), &json!(false), &json!(0)]);
    assert_eq!(state["contextUsage"]["contextWindow"], 128_000);
    let levels = host.command_data(json!({ "type": "get_available_thinking_levels" }));
    assert_eq!(levels["levels"][0], "off");
    host.close_cleanly();
}

#[test]
fn pages_of_messages_are_the_messages_and_end_where_those_change() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    for text in ["one", "two", "three"] {
        host.run_turn(text);
    }
    let (mut paged, mut cursor, mut pages) = (Vec::new(), json!(null), Vec::new());
    loop {
        let page = host.command_data(json!({ "type": "get_messages_page", "limit": 4, "cursor": cursor }));
        assert_eq!(page["totalMessages"], 6);
        paged.extend(page["messages"].as_array().unwrap().clone());
        cursor = page.get("nextCursor").cloned().unwrap_or_default();
        if cursor.is_null() {
            break;
        }
        pages.push(cursor.clone());
    }
    assert_eq!((paged, pages.len()), (host.session_messages(), 1));
    host.run_turn("four");
    let answer = host.run_command(json!({ "type": "get_messages_page", "cursor": pages[0] }));
    assert_eq!((&answer["code"], &answer["success"]), (&json!("stale_cursor"), &json!(false)), "{answer}");
    place.provider.script_replies([ProviderReply::new(vec![bash_part("k", "sleep 300")])]);
    let from = host.send_prompt("work");
    host.wait_event(from, "tool_execution_start");
    assert_eq!(host.run_command(json!({ "type": "get_messages_page" }))["code"], "session_busy");
    let handed = host.command_error(json!({ "type": "handoff" }));
    assert_eq!(handed, "Cannot hand off while a response is in progress");
    host.command_data(json!({ "type": "abort" }));
    host.close_cleanly();
}

#[test]
fn a_fork_is_a_branch_and_a_clone_has_the_whole_conversation() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.run_turn("two");
    let (file, whole) = (host.session_file(), host.session_messages());
    assert_eq!(host.command_data(json!({ "type": "clone" })), json!({ "cancelled": false }));
    assert!(host.session_file() != file);
    assert_eq!(host.session_messages(), whole);
    let messages = host.command_data(json!({ "type": "get_fork_messages" }))["messages"].clone();
    assert_eq!((&messages[1]["text"], messages.as_array().unwrap().len()), (&json!("two"), 2));
    let forked = host.command_data(json!({ "type": "fork", "entryId": messages[1]["entryId"] }));
    assert_eq!(forked, json!({ "text": "two", "cancelled": false }));
    assert_eq!(host.message_texts(), ["one", "ok"]);
    assert_eq!(host.run_turn("three").len() > 3, host.message_texts().len() == 4);
    host.close_cleanly();
}

#[test]
fn slash_commands_are_listed_as_each_client_reads_them() {
    let place = HostFixture::new();
    std::fs::create_dir(place.agent.join("commands")).unwrap();
    let path = place.agent.join("commands/look.md");
    std::fs::write(&path, "---\ndescription: Looks\n---\nLook at $1").unwrap();
    let mut host = place.start(&[]);
    let listed = host.command_data(json!({ "type": "get_available_commands" }));
    assert_eq!(listed, json!({ "commands": [{ "name": "look", "description": "Looks", "source": "file" }] }));
    let info = json!({ "path": path, "source": "auto", "scope": "user", "origin": "top-level" });
    let listed = host.command_data(json!({ "type": "get_commands" }));
    let want = json!({ "name": "look", "description": "Looks", "source": "prompt", "sourceInfo": info });
    assert_eq!(listed["commands"], json!([want]));
    host.close_cleanly();
}

fn offer_tool(host: &mut RpcHost, name: &str, is_hidden: bool) -> Value {
    let tool =
        json!({ "name": name, "description": "Looks up", "parameters": { "type": "object" }, "hidden": is_hidden });
    host.run_command(json!({ "type": "set_host_tools", "tools": [tool] }))
}

fn host_tool_call(host: &RpcHost, from: FramePosition) -> Value {
    host.wait_frame(from, "host_tool_call", |frame| frame["type"] == "host_tool_call")
}

#[test]
fn a_host_does_the_calls_of_its_tools() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    assert_eq!(offer_tool(&mut host, "look_up", false)["data"], json!({ "toolNames": ["look_up"] }));
    let conflict = offer_tool(&mut host, "read", false);
    assert!(conflict["error"].as_str().unwrap().contains("conflicts with an existing tool"), "{conflict}");
    place
        .provider
        .script_replies([ProviderReply::new(vec![call_part("k", "look_up", &json!({ "id": 1 }))]), text_reply("done")]);
    let from = host.send_prompt("go");
    let tool_call = host_tool_call(&host, from);
    assert_eq!(
        (&tool_call["toolName"], &tool_call["toolCallId"], &tool_call["arguments"]["id"]),
        (&json!("look_up"), &json!("k"), &json!(1))
    );
    // The message that holds the call is complete before the host gets the call.
    let frames = host.frames_since(from);
    let position = |what: &dyn Fn(&Value) -> bool| frames.iter().position(what);
    let is_message = |frame: &Value| frame["type"] == "message_end" && frame["message"]["role"] == "assistant";
    let is_call = |frame: &Value| frame["type"] == "host_tool_call";
    assert!(position(&is_message).is_some_and(|message| Some(message) < position(&is_call)), "{frames:#?}");
    let content = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    host.write_input(format!(
        "{}\n",
        json!({ "type": "host_tool_update", "id": tool_call["id"], "partialResult": content("half") })
    ));
    host.wait_event(from, "tool_execution_update");
    host.write_input(format!(
        "{}\n",
        json!({ "type": "host_tool_result", "id": tool_call["id"], "result": content("row 1") })
    ));
    host.wait_settled(from);
    assert_eq!(place.provider.last_request().call_result("k").as_deref(), Some("row 1"));
    // A call that is stopped is taken back.
    place.provider.script_replies([ProviderReply::new(vec![call_part("l", "look_up", &json!({ "id": 2 }))])]);
    let from = host.send_prompt("again");
    let tool_call = host_tool_call(&host, from);
    host.command_data(json!({ "type": "abort" }));
    assert_eq!(host.wait_event(from, "host_tool_cancel")["targetId"], tool_call["id"]);
    host.close_cleanly();
}

#[test]
fn calls_of_one_message_reach_the_host_in_the_order_of_the_message() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    offer_tool(&mut host, "look_up", false);
    for round in 0..3 {
        let ids: Vec<String> = (0..8).map(|number| format!("k{round}{number}")).collect();
        let calls = ids.iter().map(|id| call_part(id, "look_up", &json!({}))).collect();
        place.provider.script_replies([ProviderReply::new(calls)]);
        let from = host.send_prompt("go");
        for id in &ids {
            host.wait_frame(from, id, |frame| frame["type"] == "host_tool_call" && frame["toolCallId"] == **id);
        }
        let sent = of_type(&host.frames_since(from), "host_tool_call");
        let sent: Vec<&str> = sent.iter().filter_map(|frame| frame["toolCallId"].as_str()).collect();
        assert_eq!(sent, ids);
        host.command_data(json!({ "type": "abort" }));
        host.wait_settled(from);
    }
    host.close_cleanly();
}

#[test]
fn an_approval_mode_asks_about_tools_of_the_host() {
    let place = HostFixture::new();
    let mut host = place.start(&["--no-tools", "--approval-mode", "write"]);
    offer_tool(&mut host, "look_up", false);
    place
        .provider
        .script_replies([ProviderReply::new(vec![call_part("k", "look_up", &json!({}))]), text_reply("done")]);
    let from = host.send_prompt("go");
    let dialog = host.wait_dialog(from);
    host.answer_dialog(&dialog, json!({ "confirmed": false }));
    host.wait_settled(from);
    assert!(of_type(&host.frames_since(from), "host_tool_call").is_empty());
    host.close_cleanly();
}

#[test]
fn a_host_answers_for_what_lies_behind_its_uris() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let schemes = json!([{ "scheme": "db", "writable": true }, { "scheme": "ro" }]);
    let set = host.command_data(json!({ "type": "set_host_uri_schemes", "schemes": schemes }));
    assert_eq!(set, json!({ "schemes": ["db", "ro"] }));
    let read = call_part("r", "read", &json!({ "path": "db://users/1" }));
    let write = call_part("w", "write", &json!({ "path": "ro://users/1", "content": "x" }));
    place.provider.script_replies([
        ProviderReply::new(vec![read]),
        ProviderReply::new(vec![write]),
        text_reply("done"),
    ]);
    let from = host.send_prompt("go");
    let uri_request = host.wait_event(from, "host_uri_request");
    assert_eq!((&uri_request["operation"], &uri_request["url"]), (&json!("read"), &json!("db://users/1")));
    host.write_input(format!("{}\n", json!({ "type": "host_uri_result", "id": uri_request["id"], "content": "Ana" })));
    host.wait_settled(from);
    let last = place.provider.last_request();
    assert!(last.call_result("r").unwrap().contains("Ana"));
    assert!(last.call_result("w").unwrap().contains("Host URI scheme is not writable: ro"));
    host.close_cleanly();
}
