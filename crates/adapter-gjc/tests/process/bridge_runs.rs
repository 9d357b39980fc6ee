//! Gates, tools and URIs of a host that speaks to the bridge, and answers that are too much.

use countersign_testkit::process::{
    HostFixture, eventually,
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::bridge::{BridgeEventReader, RunningBridge};

const DISCONNECTED: &str = "RPC client disconnected before host tool execution completed";

fn declaration() -> Value {
    json!({
        "actor": "ci",
        "budget": { "max_tokens": 1_000_000, "max_tool_calls": 100, "max_wall_time_ms": 3_600_000, "max_cost_usd": 100 },
        "scopes": ["control", "message:read", "host_tools", "host_uri"],
        "action_allowlist": ["command.control", "command.message_read", "command.host_tools", "command.host_uri",
            "host_tool.invoke", "host_uri.read"],
    })
}

/// Returns the result of a command, which must succeed.
fn done(bridge: &RunningBridge, session: &str, command: &Value) -> Value {
    let (status, reply) = bridge.post(session, "commands", "", command);
    assert_eq!((status, &reply["success"]), (200, &json!(true)), "{command}: {reply}");
    reply["data"].clone()
}

fn prompt(bridge: &RunningBridge, session: &str) {
    done(bridge, session, &json!({"type": "prompt", "message": "go"}));
}

fn plan() -> ProviderReply {
    ProviderReply::new(vec![call_part("k1", "workflow_plan", &json!({"plan": "Move it.", "title": "The move"}))])
}

fn look_up(id: &str) -> ProviderReply {
    ProviderReply::new(vec![call_part(id, "look_up", &json!({ "id": 1 }))])
}

fn lend(bridge: &RunningBridge, session: &str) {
    let tool = json!({"name": "look_up", "description": "Looks up", "parameters": {"type": "object"}});
    done(bridge, session, &json!({"type": "set_host_tools", "tools": [tool]}));
    done(bridge, session, &json!({"type": "set_host_uri_schemes", "schemes": [{"scheme": "db"}]}));
}

fn row() -> Value {
    json!({"type": "host_tool_result", "result": {"content": [{"type": "text", "text": "row"}]}})
}

/// Returns the id of the first work of a kind, and whose call it is.
fn work(events: &BridgeEventReader, kind: &str) -> (String, Value) {
    let payload = events.wait(kind, |frame| frame["payload"]["type"] == kind)["payload"].take();
    (payload["id"].as_str().unwrap().to_owned(), payload)
}

/// Returns the text of the result that a call has in the conversation.
fn result(bridge: &RunningBridge, session: &str, id: &str) -> Option<String> {
    let data = done(bridge, session, &json!({"type": "get_messages"}));
    let message = data["messages"].as_array().unwrap().iter().find(|message| message["toolCallId"] == id)?.clone();
    message["content"][0]["text"].as_str().map(str::to_owned)
}

#[test]
fn a_gate_is_answered_once_by_who_holds_control_and_what_is_too_much_is_rejected() {
    let place = HostFixture::new();
    place.provider.script_replies([plan(), text_reply("done")]);
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let events = bridge.listen(&session, "");
    done(&bridge, &session, &json!({"type": "negotiate_unattended", "declaration": declaration()}));
    prompt(&bridge, &session);
    let gate = events.wait("a gate", |frame| frame["type"] == "workflow_gate");
    let id = gate["correlation_id"].as_str().unwrap();
    assert_eq!((&gate["payload"]["gate_id"], &gate["payload"]["stage"]), (&json!(id), &json!("ralplan")));
    let route = format!("ui-responses/{id}");
    let answer = |decision: &Value| json!({"gate_id": id, "answer": decision});
    let approve = answer(&json!({"decision": "approve"}));
    let not_controller = (403, json!({"status": "rejected", "code": "not_controller"}));
    assert_eq!(bridge.post(&session, &route, "", &approve), not_controller);
    // Two who would control it, and a token of another session.
    let owner = bridge.claim(&session);
    assert_eq!(bridge.post(&session, "control:claim", "", &json!({})), (409, json!({"error": "controller_busy"})));
    let (_, other) = bridge.ask("POST", "/v1/sessions", "", &json!({}));
    let others = bridge.claim(other["session_id"].as_str().unwrap());
    assert_eq!(bridge.post(&session, &route, &others, &approve), not_controller);
    for (wrong, keyword) in [
        (json!("approve"), "type"),
        (json!({"decision": "maybe"}), "enum"),
        (json!({"decision": "request-changes"}), "missing_comments"),
        (json!({"decision": "approve", "comments": "x".repeat(10 << 20)}), "maxAnswerBytes"),
    ] {
        let (status, reply) = bridge.post(&session, &route, &owner, &answer(&wrong));
        assert_eq!((status, &reply["status"]), (200, &json!("rejected")), "{keyword}");
        assert_eq!(reply["error"]["errors"][0]["keyword"], keyword);
    }
    let keyed = format!("{owner}idempotency-key: k1\r\n");
    let (status, accepted) = bridge.post(&session, &route, &keyed, &approve);
    assert_eq!((status, &accepted["status"], &accepted["gate_id"]), (200, &json!("accepted"), &json!(id)));
    assert_eq!(bridge.post(&session, &route, &keyed, &approve), (200, accepted), "the same once more");
    let other_body = answer(&json!({"decision": "reject"}));
    assert_eq!(bridge.post(&session, &route, &keyed, &other_body), (409, json!({"error": "idempotency_conflict"})));
    let (status, reply) = bridge.post(&session, &route, &owner, &approve);
    assert_eq!((status, &reply["code"]), (409, &json!("already_resolved")));
    events.event("agent_end");
    assert_eq!(place.provider.last_request().call_result("k1").unwrap(), "The plan is approved.");
    assert_eq!(bridge.stop(), Some(0));
}

#[test]
fn a_host_does_calls_and_reads_uris_over_the_bridge() {
    let place = HostFixture::new();
    let reads = ProviderReply::new(vec![call_part("c2", "read", &json!({"path": "db://users/1"}))]);
    place.provider.script_replies([look_up("c1"), reads, text_reply("done")]);
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    // The host lends its tools, but there is no approver.
    lend(&bridge, &session);
    prompt(&bridge, &session);
    let events = bridge.listen(&session, "?last_seq=0");
    let (id, payload) = work(&events, "host_tool_call");
    assert_eq!((&payload["toolName"], &payload["toolCallId"]), (&json!("look_up"), &json!("c1")));
    let route = format!("host-tool-results/{id}");
    let unknown = (404, json!({"error": "unknown_request"}));
    assert_eq!(bridge.post(&session, "host-tool-results/ffffffffffffffff", "", &row()), unknown);
    assert_eq!(bridge.post(&session, &format!("host-uri-results/{id}"), "", &json!({"content": "x"})), unknown);
    let (status, reply) = bridge.post(&session, &route, "", &json!({"type": "host_tool_result", "result": "text"}));
    assert_eq!((status, &reply["error"]), (400, &json!("invalid_host_tool_result")));
    assert_eq!(bridge.post(&session, &route, "", &row()), (200, json!({"status": "accepted"})));
    let (id, payload) = work(&events, "host_uri_request");
    assert_eq!((&payload["operation"], &payload["url"]), (&json!("read"), &json!("db://users/1")));
    let content = json!({"content": "Alice\n"});
    assert_eq!(bridge.post(&session, &format!("host-uri-results/{id}"), "", &content).0, 200);
    events.event("agent_end");
    assert_eq!(result(&bridge, &session, "c1").as_deref(), Some("row"));
    assert!(result(&bridge, &session, "c2").unwrap().contains("Alice"));
}

#[test]
fn a_host_that_goes_leaves_its_call_in_doubt_and_does_not_get_it_again() {
    let place = HostFixture::new();
    place.provider.script_replies([look_up("c1"), text_reply("done"), look_up("c2"), text_reply("done")]);
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let events = bridge.listen(&session, "");
    lend(&bridge, &session);
    prompt(&bridge, &session);
    let (old, _) = work(&events, "host_tool_call");
    let last = events.all().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    events.close();
    assert_eq!(eventually("the end of the call", || result(&bridge, &session, "c1")), DISCONNECTED);
    let again = bridge.listen(&session, &format!("?last_seq={}", last.saturating_sub(50).max(1)));
    again.event("agent_end");
    assert_eq!(again.all().iter().filter(|frame| frame["type"] == "host_tool_call").count(), 0);
    let unknown = (404, json!({"error": "unknown_request"}));
    assert_eq!(bridge.post(&session, &format!("host-tool-results/{old}"), "", &row()), unknown);
    // A host that reconnects lends its tools again.
    prompt(&bridge, &session);
    let (new, _) = work(&again, "host_tool_call");
    assert_eq!(bridge.post(&session, &format!("host-tool-results/{new}"), "", &row()).0, 200);
    eventually("the result", || result(&bridge, &session, "c2").filter(|text| text == "row"));
}

#[test]
fn a_body_that_is_too_long_is_refused_and_the_bridge_goes_on() {
    let place = HostFixture::new();
    let bridge = RunningBridge::start(&place, &[]);
    let session = bridge.shake();
    let (status, reply) =
        bridge.post(&session, "commands", "", &json!({"type": "prompt", "message": "x".repeat(33 << 20)}));
    assert_eq!((status, &reply["error"]), (413, &json!("body_too_large")), "{reply}");
    done(&bridge, &session, &json!({"type": "get_state"}));
}
