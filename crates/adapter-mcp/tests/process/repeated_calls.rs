//! The same call repeated: after a client's time limit, a lost connection, and a crash of the gateway.

use countersign_testkit::process::{GatewayFixture, GatewayServer, Latch, eventually, service::ServiceBehavior};
use serde_json::{Value, json};

use crate::mcp_host::{McpHost, McpHttp, message, request, sessionless, text};

fn door() -> Value {
    json!({ "thing": "door", "way": "open" })
}

fn cancel(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id, "reason": "timeout" } })
}

/// Waits until so many calls have ended in the record.
fn wait_ended(place: &GatewayFixture, count: usize) {
    eventually("end in the record", || {
        let exported = place.run_as_person(&["audit", "export"]).out;
        (exported.matches("\"ended\":{").count() >= count).then_some(())
    });
}

#[test]
fn a_cancelled_call_stays_pending_and_its_repetition_gets_the_decision() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    let gate = place.wait_gate();
    host.send(&cancel(1));
    host.request(2, "ping", json!({}));
    assert_eq!(place.wait_gate(), gate, "a client's limit is no decision");
    host.send_call(3, "turn", door());
    host.request(4, "ping", json!({}));
    place.allow_gate(&gate);
    assert_eq!(host.wait_reply(3)["result"]["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn an_outcome_that_nobody_got_is_given_once_to_the_same_call() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    let gate = place.wait_gate();
    drop(host);
    place.allow_gate(&gate);
    place.service.wait_requests("/turn/door", 1);
    let mut host = McpHost::start_initialized(&place);
    // Other arguments are another call.
    host.send_call(2, "turn", json!({ "thing": "door", "way": "shut" }));
    let other = place.wait_gate();
    assert_eq!(host.call(3, "turn", door())["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 1);
    // Now that it was delivered, the same call is a new one.
    host.send_call(4, "turn", door());
    let gates = place.wait_gates(2);
    let new = gates.iter().find(|gate| gate["id"] != json!(other)).unwrap()["id"].as_str().unwrap();
    assert_ne!(new, gate);
    place.allow_gate(new);
    assert_eq!(host.wait_reply(4)["result"]["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 2);
}

#[test]
fn a_call_that_waits_survives_a_crash_of_the_gateway() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    let gate = place.wait_gate();
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    host.request(2, "ping", json!({}));
    assert_eq!(place.wait_gate(), gate);
    place.allow_gate(&gate);
    assert_eq!(host.wait_reply(1)["result"]["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 1);
    place.verify_log();
}

#[test]
fn an_outcome_survives_a_crash_until_it_is_delivered() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    let gate = place.wait_gate();
    drop(host);
    place.allow_gate(&gate);
    wait_ended(&place, 1);
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    assert_eq!(host.call(1, "turn", door())["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn a_crash_during_an_action_leaves_an_unknown_outcome_and_no_second_action() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let latch = Latch::default();
    place.service.set_behavior("/turn/lamp", ServiceBehavior::Late(latch.clone()));
    host.send_call(1, "turn", json!({ "thing": "lamp" }));
    place.service.wait_requests("/turn/lamp", 1);
    gateway.kill();
    // It would repeat its call at the next gateway, and take the outcome.
    drop(host);
    latch.open();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let result = host.call(1, "turn", json!({ "thing": "lamp" }));
    assert!(result["isError"] == json!(true) && text(&result).starts_with("Outcome unknown"), "{result}");
    assert_eq!(place.service.request_count("/turn/lamp"), 1);
}

#[test]
fn a_reading_that_nobody_got_is_read_again() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let latch = Latch::default();
    place.service.set_behavior("/look/lamp", ServiceBehavior::Late(latch.clone()));
    host.send_call(1, "look", json!({ "thing": "lamp" }));
    place.service.wait_requests("/look/lamp", 1);
    host.send(&cancel(1));
    host.request(2, "ping", json!({}));
    latch.open();
    wait_ended(&place, 1);
    assert_eq!(host.call(3, "look", json!({ "thing": "lamp" }))["isError"], json!(false));
    assert_eq!(place.service.request_count("/look/lamp"), 2);
}

#[test]
fn one_decision_permits_one_action_of_the_host() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let action = json!({ "action": "deploy" });
    host.send_call(1, "request_approval", action.clone());
    let gate = place.wait_gate();
    host.send_call(2, "request_approval", action);
    host.request(3, "ping", json!({}));
    // Both wait for the same gate as soon as the second has looked for it.
    eventually("two waits", || {
        let probe = host.call(9, "gate_status", json!({ "gate": gate }));
        (probe["structuredContent"]["status"] == json!("pending")).then_some(())
    });
    place.allow_gate(&gate);
    let decisions = [1, 2].map(|id| host.wait_reply(id)["result"]["structuredContent"]["decision"].clone());
    let allowed = decisions.iter().filter(|decision| **decision == json!("allow")).count();
    assert_eq!(allowed, 1, "{decisions:?}");
}

#[test]
fn a_lost_http_connection_leaves_the_outcome_for_the_same_call() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let http = McpHttp::new(&place, &gateway, "ci", "call");
    let client = http.sessionless("tools/call", Some("turn"));
    let call = request(1, "tools/call", sessionless(json!({ "name": "turn", "arguments": door() })));
    let cut = client.0.open_post("/mcp", &call.to_string());
    let gate = place.wait_gate();
    drop(cut);
    place.allow_gate(&gate);
    place.service.wait_requests("/turn/door", 1);
    let reply = client.post(&call);
    assert_eq!(message(&reply)["result"]["isError"], json!(false), "{reply:?}");
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn a_decision_after_the_connection_of_a_session_was_lost_goes_to_the_same_call() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let session = McpHttp::new(&place, &gateway, "ci", "call").begin_session();
    let ask =
        |id: u64| request(id, "tools/call", json!({ "name": "request_approval", "arguments": { "action": "deploy" } }));
    let cut = session.0.open_post("/mcp", &ask(1).to_string());
    let gate = place.wait_gate();
    drop(cut);
    // The id is free once the gateway knows that the client has gone.
    eventually("end of the wait", || (session.post(&request(1, "ping", json!({}))).status == 200).then_some(()));
    place.allow_gate(&gate);
    let reply = message(&session.post(&ask(2)));
    assert_eq!(reply["result"]["structuredContent"], json!({ "decision": "allow", "gate": gate }), "{reply}");
}
