//! URIs of the host: read and written by the ordinary tools, never by the disk.

use countersign_testkit::process::{
    FramePosition, HostFixture, RpcHost,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::rpc::{event, start, turn};

fn lend(host: &mut RpcHost) {
    let schemes = json!([
        {"scheme": "DB", "description": "Rows", "writable": true},
        {"scheme": "ro", "immutable": true},
    ]);
    let reply = host.command_data(json!({"type": "set_host_uri_schemes", "schemes": schemes}));
    assert_eq!(reply, json!({"schemes": ["db", "ro"]}));
}

fn wants(tool: &str, arguments: &Value) -> ProviderReply {
    ProviderReply::new(vec![call_part("c1", tool, arguments)])
}

fn answer(host: &mut RpcHost, request: &Value, rest: &Value) {
    let mut frame = json!({ "type": "host_uri_result", "id": request["id"] });
    frame.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    host.write_input(format!("{frame}\n"));
}

/// Returns the result of the call.
fn result(host: &RpcHost, from: FramePosition) -> Value {
    event(host, from, "tool_execution_end")
}

fn text(result: &Value) -> &str {
    result["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_uri_is_read_like_a_file() {
    let place = HostFixture::new();
    place.provider.script_replies([
        wants("read", &json!({"path": "DB://Users/1?A=B", "offset": 2, "limit": 1})),
        text_reply("done"),
    ]);
    let mut host = start(&place, &[]);
    lend(&mut host);
    let from = host.send_prompt("go");
    let request = host.wait_event(from, "host_uri_request");
    assert_eq!((&request["operation"], &request["url"]), (&json!("read"), &json!("db://Users/1?A=B")));
    assert!(request.get("content").is_none());
    let given =
        json!({"content": "one\ntwo\nthree\n", "contentType": "text/markdown", "notes": ["stale"], "immutable": true});
    answer(&mut host, &request, &given);
    let result = result(&host, from);
    assert_eq!(text(&result), "two\n\n[Showing lines 2-2 of 3. Use offset=3 to continue]");
    assert_eq!(result["result"]["content"][1]["text"], "[Note: stale]");
    let details = &result["result"]["details"];
    assert_eq!((&details["contentType"], &details["immutable"]), (&json!("text/markdown"), &json!(true)));
    assert_eq!(details["resolvedPath"], "db://Users/1?A=B");
    event(&host, from, "agent_end");
    host.close_cleanly();
}

#[test]
fn a_uri_is_written_whole() {
    let place = HostFixture::new();
    place
        .provider
        .script_replies([wants("write", &json!({"path": "db://users/1", "content": "ä"})), text_reply("done")]);
    let mut host = start(&place, &[]);
    lend(&mut host);
    let from = host.send_prompt("go");
    let request = host.wait_event(from, "host_uri_request");
    assert_eq!((&request["operation"], &request["content"]), (&json!("write"), &json!("ä")));
    answer(&mut host, &request, &json!({}));
    let result = result(&host, from);
    assert_eq!((text(&result), &result["isError"]), ("Wrote 2 bytes to db://users/1", &json!(false)));
    event(&host, from, "agent_end");
    host.close_cleanly();
}

#[test]
fn what_is_no_hosts_never_becomes_a_file() {
    let place = HostFixture::new();
    place.write_rules("rules:\n  - { pattern: \"read(db://secret*)\", action: deny }\n");
    let mut host = start(&place, &[]);
    lend(&mut host);
    for (tool, arguments, want) in [
        ("write", json!({"path": "ro://users/42", "content": "x"}), "Host URI scheme is not writable: ro"),
        (
            "write",
            json!({"path": "gone://a", "content": "x"}),
            "gone://a was not written: the host has no URIs of the scheme gone",
        ),
        ("read", json!({"path": "gone://a"}), "gone://a was not read: the host has no URIs of the scheme gone"),
        (
            "edit",
            json!({"path": "db://a", "old_text": "a", "new_text": "b"}),
            "db://a cannot be edited in place: read it and write the whole",
        ),
        ("read", json!({"path": "db://secret/1"}), "Denied by policy: by rule \"read(db://secret*)\""),
    ] {
        place.provider.script_replies([wants(tool, &arguments), text_reply("done")]);
        let from = turn(&mut host, "go");
        let result = result(&host, from);
        assert!(text(&result).starts_with(want), "{tool} {arguments}: {result}");
        assert_eq!(result["isError"], true);
        assert!(host.frames_since(from).iter().all(|frame| frame["type"] != "host_uri_request"), "{tool}");
    }
    assert_eq!(std::fs::read_dir(&place.work).unwrap().count(), 0);
    host.close_cleanly();
}

#[test]
fn a_failure_is_what_the_host_says() {
    let place = HostFixture::new();
    let mut host = start(&place, &[]);
    lend(&mut host);
    for (given, want) in [
        (json!({"isError": true, "error": "no row"}), "no row"),
        (json!({"isError": true}), "Host URI read failed for ro://a"),
    ] {
        place.provider.script_replies([wants("read", &json!({"path": "ro://a"})), text_reply("done")]);
        let from = host.send_prompt("go");
        let request = host.wait_event(from, "host_uri_request");
        answer(&mut host, &request, &given);
        let result = result(&host, from);
        assert_eq!((text(&result), &result["isError"]), (want, &json!(true)));
        event(&host, from, "agent_end");
    }
    host.close_cleanly();
}

#[test]
fn an_abort_of_a_read_is_sent_at_once() {
    let place = HostFixture::new();
    place.provider.script_replies([wants("read", &json!({"path": "ro://a"}))]);
    let mut host = start(&place, &[]);
    lend(&mut host);
    let from = host.send_prompt("go");
    let request = host.wait_event(from, "host_uri_request");
    host.command_data(json!({ "type": "abort" }));
    assert_eq!(host.wait_event(from, "host_uri_cancel")["targetId"], request["id"]);
    event(&host, from, "agent_end");
    assert_eq!(text(&result(&host, from)), "Host URI read for ro://a was aborted");
    host.close_cleanly();
}

#[test]
fn a_host_that_goes_leaves_a_read_in_doubt() {
    let place = HostFixture::new();
    place.provider.script_replies([wants("read", &json!({"path": "ro://a"}))]);
    let mut host = start(&place, &[]);
    lend(&mut host);
    let from = host.send_prompt("go");
    host.wait_event(from, "host_uri_request");
    assert_eq!(host.close().code, Some(0));
    let mut host = start(&place, &["--continue"]);
    let messages = host.message_texts();
    assert!(
        messages.iter().any(|text| text == "RPC client disconnected before host URI request completed"),
        "{messages:?}"
    );
    host.close_cleanly();
}
