//! Decisions of approvers about calls of services.

use countersign_testkit::process::{GatewayFixture, GatewayServer, RULES};
use serde_json::{Value, json};

use crate::mcp_host::{McpHost, McpHttp, message, request, sessionless, text};

fn door() -> Value {
    json!({ "thing": "door", "way": "open" })
}

#[test]
fn a_call_waits_until_it_is_allowed_and_runs_once() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    let gate = place.wait_gates(1).remove(0);
    let user = nix_user(&place);
    assert_eq!(
        [&gate["door"], &gate["session"], &gate["subject"], &gate["arguments"]],
        [&json!("mcp"), &json!(format!("mcp:local:{user}")), &json!("turn(door, open)"), &door()]
    );
    assert_eq!(place.service.request_count("/turn/door"), 0);
    place.allow_gate(gate["id"].as_str().unwrap());
    let result = host.wait_reply(1)["result"].clone();
    let did = json!({ "result": { "did": "/turn/door" } });
    assert_eq!((&result["structuredContent"], &result["isError"]), (&did, &json!(false)), "{result}");
    assert_eq!(serde_json::from_str::<Value>(text(&result)).unwrap(), did);
    assert_eq!(place.service.request_count("/turn/door"), 1);
    // Another call of the same kind is another request.
    host.send_call(2, "turn", door());
    place.deny_gate(&place.wait_gate());
    assert!(text(&host.wait_reply(2)["result"]).contains("Denied by"));
    place.verify_log();
}

/// Returns the number of the user who runs the tests.
fn nix_user(place: &GatewayFixture) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(&place.folder).unwrap().uid()
}

#[test]
fn a_denial_a_rule_and_a_deadline_are_results_with_their_reasons() {
    let place = GatewayFixture::with_config_and_rules("approval_timeout: 2", RULES);
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", door());
    let output = place.run_as_person(&["gates", "deny", &place.wait_gate(), "--reason", "not at night"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let denied = host.wait_reply(1)["result"].clone();
    assert!(denied["isError"] == json!(true) && text(&denied).contains("not at night"), "{denied}");
    let by_rule = host.call(2, "turn", json!({ "thing": "lock" }));
    assert!(by_rule["isError"] == json!(true) && text(&by_rule).starts_with("Denied by policy"), "{by_rule}");
    let late = host.call(3, "turn", json!({ "thing": "gate" }));
    assert!(late["isError"] == json!(true) && text(&late).contains("in time"), "{late}");
    assert_eq!(place.service.received_requests().len(), 0);
}

#[test]
fn a_call_over_http_waits_in_both_generations() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let http = McpHttp::new(&place, &gateway, "ci", "call");
    let session = http.begin_session();
    let without = http.sessionless("tools/call", Some("turn"));
    let call = json!({ "name": "turn", "arguments": door() });
    for (client, params, session) in
        [(session, call.clone(), "mcp:token:ci"), (without, sessionless(call), "mcp:token:ci")]
    {
        let waiting = std::thread::spawn(move || client.post(&request(1, "tools/call", params)));
        let gate = place.wait_gates(1).remove(0);
        assert_eq!(gate["session"], session);
        place.allow_gate(gate["id"].as_str().unwrap());
        let reply = waiting.join().unwrap();
        assert_eq!(message(&reply)["result"]["isError"], json!(false), "{reply:?}");
    }
    assert_eq!(place.service.request_count("/turn/door"), 2);
}

#[test]
fn approvals_that_wait_are_limited() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_pending_approvals: 2 }", RULES);
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    for (id, thing) in [(1, "a"), (2, "b")] {
        host.send_call(id, "turn", json!({ "thing": thing }));
    }
    place.wait_gates(2);
    assert_eq!(text(&host.call(3, "turn", json!({ "thing": "c" }))), "Too many pending approvals");
    let question = host.call(4, "ask_human", json!({ "question": "May I?" }));
    assert_eq!(text(&question), "Too many pending approvals");
}
