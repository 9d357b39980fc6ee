//! Tools of the host: the requests, and the outcome of calls when the host is slow, silent or gone.

use countersign_testkit::process::{
    FramePosition, HostFixture, RpcHost,
    provider::{ProviderReply, ReplyPart, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::rpc::{event, events, start, turn};

const DISCONNECTED: &str = "RPC client disconnected before host tool execution completed";

fn tool(name: &str) -> Value {
    let parameters = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}});
    json!({"name": name, "description": "Looks up", "parameters": parameters})
}

fn lend(host: &mut RpcHost, tools: &[Value]) -> Value {
    host.command_data(json!({"type": "set_host_tools", "tools": tools}))
}

/// Returns a reply that wants calls of `look_up`, with the ids 1, 2, …
fn wants(count: usize) -> ProviderReply {
    let calls = (1..=count).map(|at| call_part(&format!("c{at}"), "look_up", &json!({ "id": at })));
    ProviderReply::new(calls.collect::<Vec<ReplyPart>>())
}

fn called(host: &RpcHost, from: FramePosition, tool_call_id: &str) -> Value {
    host.wait_frame(from, "host_tool_call", |frame| {
        frame["type"] == "host_tool_call" && frame["toolCallId"] == tool_call_id
    })
}

fn answer(host: &mut RpcHost, call: &Value, kind: &str, rest: &Value) {
    let mut frame = json!({ "type": kind, "id": call["id"] });
    frame.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    host.write_input(format!("{frame}\n"));
}

fn content(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Returns the end of a call as the host gets it: its text, and whether that is an error.
fn ended(host: &RpcHost, from: FramePosition, tool_call_id: &str) -> (String, bool) {
    let frame = host.wait_frame(from, "tool_execution_end", |frame| {
        let event = &frame["payload"]["event"];
        event["type"] == "tool_execution_end" && event["toolCallId"] == tool_call_id
    });
    let event = &frame["payload"]["event"];
    let text = event["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    (text, event["isError"] == true)
}

fn calls(frames: &[Value]) -> usize {
    frames.iter().filter(|frame| frame["type"] == "host_tool_call").count()
}

#[test]
fn an_invalid_image_of_a_host_is_reported_as_invalid() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(3), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    for (at, data, mime, want) in [
        (1, "!!!", "image/png", "[An image that cannot be shown: data is not base64]"),
        (
            2,
            "aGk=",
            "text/html",
            "[An image that cannot be shown: mimeType is \"text/html\", which is no type of image]",
        ),
        (3, "iVBORw0KGgo=", "image/png", ""),
    ] {
        let call = called(&host, from, &format!("c{at}"));
        let result = json!({ "content": [{ "type": "image", "data": data, "mimeType": mime }] });
        answer(&mut host, &call, "host_tool_result", &json!({ "result": result }));
        assert_eq!(ended(&host, from, &format!("c{at}")), (want.to_owned(), false));
    }
    event(&host, from, "agent_end");
    let request = place.provider.last_request().messages_text();
    assert!(!request.contains("!!!") && request.contains("data:image/png;base64,iVBORw0KGgo="), "{request}");
    host.close_cleanly();
}

#[test]
fn many_calls_are_with_the_host_at_once_and_each_ends_with_its_own_answer() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(3), text_reply("done")]);
    let mut host = start(&place, &[]);
    assert_eq!(lend(&mut host, &[tool("look_up"), tool("other")]), json!({"toolNames": ["look_up", "other"]}));
    let from = host.send_prompt("go");
    let calls: Vec<Value> = (1..=3).map(|at| called(&host, from, &format!("c{at}"))).collect();
    assert_eq!((&calls[0]["toolName"], &calls[0]["arguments"]), (&json!("look_up"), &json!({"id": 1})));
    assert_eq!(calls[0]["id"].as_str().unwrap().len(), 16);
    answer(&mut host, &calls[2], "host_tool_update", &json!({ "partialResult": content("half of 3") }));
    let update = event(&host, from, "tool_execution_update");
    assert_eq!(update["partialResult"], json!({"content": [{"type": "text", "text": "half of 3"}], "details": {}}));
    let nothing = json!({ "result": content("nobody's") });
    answer(&mut host, &json!({ "id": "ffffffffffffffff" }), "host_tool_result", &nothing);
    for at in [2, 0, 1] {
        let result = json!({ "result": { "content": [{"type": "text", "text": format!("row {}", at + 1)}], "details": {"n": at} } });
        answer(&mut host, &calls[at], "host_tool_result", &result);
    }
    event(&host, from, "agent_end");
    for at in 1..=3 {
        assert_eq!(ended(&host, from, &format!("c{at}")), (format!("row {at}"), false));
    }
    let request = place.provider.last_request().messages_text();
    assert!(request.contains("row 1") && request.contains("row 3"), "{request}");
    host.close_cleanly();
}

#[test]
fn arguments_that_do_not_fit_never_reach_the_host() {
    let place = HostFixture::new();
    let wrong = ProviderReply::new(vec![call_part("c1", "look_up", &json!({ "id": "x" }))]);
    place.provider.script_replies([wrong, text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = turn(&mut host, "go");
    let (text, is_error) = ended(&host, from, "c1");
    assert_eq!((text.as_str(), is_error), ("Invalid arguments for look_up:\n- id must be integer, not \"x\"", true));
    assert_eq!(calls(&host.frames_since(from)), 0);
    host.close_cleanly();
}

#[test]
fn what_a_host_says_wrongly_is_no_answer() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(1), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    let host_call = called(&host, from, "c1");
    for (kind, rest) in [
        ("host_tool_result", json!({ "result": "text" })),
        ("host_tool_result", json!({ "result": { "content": ["text"] } })),
        ("host_tool_update", json!({ "partialResult": { "content": [{ "text": "x" }] } })),
    ] {
        let mark = host.frame_position();
        answer(&mut host, &host_call, kind, &rest);
        assert_eq!(host.wait_event(mark, "response")["error"], format!("Unknown command: {kind}"), "{rest}");
    }
    let failed = json!({ "result": { "content": [{"type": "text", "text": " no "}, {"type": "text", "text": "row"}] }, "isError": true });
    answer(&mut host, &host_call, "host_tool_result", &failed);
    assert_eq!(ended(&host, from, "c1"), ("no \nrow".to_owned(), true));
    event(&host, from, "agent_end");
    host.close_cleanly();
}

#[test]
fn the_model_has_the_tools_that_the_host_lends_now() {
    let place = HostFixture::new();
    let mut host = start(&place, &["--no-tools"]);
    let tools = |place: &HostFixture| {
        let request = place.provider.last_request();
        let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().or_else(|| tool["function"]["name"].as_str()).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let hidden = json!({"name": "deep", "description": "d", "parameters": {}, "hidden": true});
    lend(&mut host, &[tool("look_up"), hidden]);
    turn(&mut host, "one");
    assert_eq!(tools(&place), ["look_up"]);
    let refused = host.command_error(json!({"type": "set_host_tools", "tools": [tool("a"), tool("ask")]}));
    assert_eq!(refused, "RPC host tool \"ask\" is reserved and cannot be supplied by the host");
    lend(&mut host, &[tool("b"), tool("look_up")]);
    turn(&mut host, "two");
    assert_eq!(tools(&place), ["b", "look_up"]);
    host.command_data(json!({"type": "new_session"}));
    place.provider.script_replies([wants(1), text_reply("done")]);
    let from = host.send_prompt("three");
    let host_call = called(&host, from, "c1");
    answer(&mut host, &host_call, "host_tool_result", &json!({ "result": content("row") }));
    event(&host, from, "agent_end");
    host.close_cleanly();
}

#[test]
fn an_abort_is_sent_at_once_and_later_results_do_not_reach_the_model() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(1), text_reply("again")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    let host_call = called(&host, from, "c1");
    host.command_data(json!({ "type": "abort" }));
    let cancel = host.wait_event(from, "host_tool_cancel");
    assert_eq!(cancel["targetId"], host_call["id"]);
    assert_ne!(cancel["id"], host_call["id"]);
    event(&host, from, "agent_end");
    assert_eq!(ended(&host, from, "c1"), ("Host tool \"look_up\" was aborted".to_owned(), true));
    answer(&mut host, &host_call, "host_tool_result", &json!({ "result": content("too late") }));
    turn(&mut host, "again");
    assert!(!place.provider.last_request().messages_text().contains("too late"));
    host.close_cleanly();
}

#[test]
fn a_host_that_never_answers_is_not_waited_for_without_end() {
    let place = HostFixture::with_config("countersign: { host_timeout: 0.2 }\n");
    place.provider.script_replies([wants(1), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = turn(&mut host, "go");
    let host_call = called(&host, from, "c1");
    assert_eq!(host.wait_event(from, "host_tool_cancel")["targetId"], host_call["id"]);
    let (text, is_error) = ended(&host, from, "c1");
    assert!(text.contains("did not answer in time") && is_error, "{text}");
    host.close_cleanly();
}

#[test]
fn a_host_that_goes_leaves_what_it_had_in_doubt() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(1), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    called(&host, from, "c1");
    let end = host.close();
    assert_eq!((end.code, end.stderr.as_str()), (Some(0), ""));
    assert_eq!(end.frames.iter().filter(|frame| frame["type"] == "host_tool_cancel").count(), 0);
    let mut host = start(&place, &["--continue"]);
    let messages = host.message_texts();
    assert!(messages.iter().any(|text| text == DISCONNECTED), "{messages:?}");
    host.close_cleanly();
}

#[test]
fn after_a_crash_no_host_gets_an_old_call_again() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(1), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    called(&host, from, "c1");
    host.kill();
    let mut host = start(&place, &["--continue"]);
    lend(&mut host, &[tool("look_up")]);
    let messages = host.message_texts();
    assert!(messages.iter().any(|text| text.starts_with("Outcome unknown")), "{messages:?}");
    turn(&mut host, "again");
    assert_eq!(calls(&host.frames_since(0)), 0);
    host.close_cleanly();
}

#[test]
fn a_call_that_was_let_through_and_not_sent_waits_for_the_host_that_lends_its_tool() {
    let place = HostFixture::new();
    place.write_rules("rules:\n  - { pattern: \"look_up*\", action: ask }\n");
    place.provider.script_replies([wants(1), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    let dialog = host.wait_dialog(from);
    assert!(dialog.to_string().contains("look_up"), "{dialog}");
    host.kill();
    let mut host = start(&place, &["--continue"]);
    let dialog = host.wait_dialog(0);
    host.answer_dialog(&dialog, json!({ "value": "Allow once" }));
    // It is allowed, and no host lends the tool.
    host.session_state();
    assert_eq!(calls(&host.frames_since(0)), 0);
    lend(&mut host, &[tool("look_up")]);
    let host_call = called(&host, 0, "c1");
    answer(&mut host, &host_call, "host_tool_result", &json!({ "result": content("row") }));
    assert_eq!(ended(&host, 0, "c1"), ("row".to_owned(), false));
    event(&host, 0, "agent_end");
    assert!(!events(&host, 0).is_empty());
    host.close_cleanly();
}

#[test]
fn an_update_and_the_result_in_one_write_are_sent_in_this_order() {
    let place = HostFixture::new();
    place.provider.script_replies([wants(2), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host, &[tool("look_up")]);
    let from = host.send_prompt("go");
    let ids = [1, 2].map(|at| called(&host, from, &format!("c{at}"))["id"].clone());
    let update =
        |at: usize, text: &str| json!({"type": "host_tool_update", "id": ids[at], "partialResult": content(text)});
    let result = |at: usize, text: &str| json!({"type": "host_tool_result", "id": ids[at], "result": content(text)});
    // Progress after a result has no effect.
    let lines =
        [update(0, "half"), update(1, "a"), update(1, "b"), result(1, "two"), result(0, "one"), update(0, "late")];
    host.write_input(lines.map(|line| format!("{line}\n")).concat());
    event(&host, from, "agent_end");
    let call_events = |id: &str| {
        let of_call = |frame: &Value| frame["payload"]["event"]["toolCallId"] == id;
        let all = events(&host, from).into_iter().filter(of_call).map(|mut frame| frame["payload"]["event"].take());
        let text = |event: &Value| {
            let result = if event["result"].is_null() { &event["partialResult"] } else { &event["result"] };
            result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
        };
        all.map(|event| format!("{}:{}", event["type"].as_str().unwrap(), text(&event))).collect::<Vec<_>>()
    };
    assert_eq!(call_events("c1"), ["tool_execution_start:", "tool_execution_update:half", "tool_execution_end:one"]);
    // Progress holds all output so far, so the first of two updates may be left out; their order may not change.
    let second: Vec<String> =
        call_events("c2").into_iter().filter(|event| event != "tool_execution_update:a").collect();
    assert_eq!(second, ["tool_execution_start:", "tool_execution_update:b", "tool_execution_end:two"]);
    assert!(
        call_events("c2")[1..].starts_with(&["tool_execution_update:a".to_owned()]) || call_events("c2").len() == 3
    );
    host.close_cleanly();
}
