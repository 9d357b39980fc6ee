//! `countersign acp --agent`: what an agent asks its editor for is decided by the gateway, and everything else passes.

use countersign_testkit::process::{GatewayFixture, GatewayOptions, GatewayServer, wait_dead};
use serde_json::{Value, json};

use crate::proxied_agent::{ProxiedAgent, ProxyExit};

const RULES: &str = r#"
defaults:
  - { pattern: "*", action: ask }
rules:
  - { pattern: "bash(echo *)", action: allow }
  - { pattern: "bash(rm *)", action: deny }
  - { pattern: "read(*)", action: allow }
"#;

/// Options in an order that is no help, with ids that say nothing.
fn options() -> Value {
    json!([
        { "optionId": "a", "name": "Always", "kind": "allow_always" },
        { "optionId": "b", "name": "Never", "kind": "reject_always" },
        { "optionId": "c", "name": "Yes", "kind": "allow_once" },
        { "optionId": "d", "name": "No", "kind": "reject_once" },
    ])
}

fn permission(id: impl Into<Value>, command: &str) -> Value {
    let call = json!({ "toolCallId": command, "kind": "execute", "title": "Run", "rawInput": { "command": command } });
    json!({
        "jsonrpc": "2.0",
        "id": id.into(),
        "method": "session/request_permission",
        "params": { "sessionId": "s", "toolCall": call, "options": options() },
    })
}

fn selected(id: impl Into<Value>, option: &str) -> Value {
    json!([id.into(), { "outcome": "selected", "optionId": option }])
}

/// Returns the id and the outcome of an answer.
fn outcome(answer: &Value) -> Value {
    let mut outcome = answer["result"]["outcome"].clone();
    if let Some(members) = outcome.as_object_mut() {
        members.remove("_meta");
    }
    json!([answer["id"], outcome])
}

fn fixture() -> GatewayFixture {
    GatewayOptions::new().with_rules(RULES).create()
}

/// Starts a proxy whose editor asks nobody.
fn start(place: &GatewayFixture, more: &[&str]) -> ProxiedAgent {
    let folder = place.folder.join("agent");
    let program = ProxiedAgent::write_program(&folder);
    let command = format!("{program} --acp");
    let arguments = ["acp", "--config", "config.yaml", "--agent", &command];
    ProxiedAgent::start(place, &folder, &[&arguments, more].concat())
}

#[test]
fn rules_answer_the_agent_and_all_else_passes_byte_by_byte() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &[]);
    assert_eq!(proxy.arguments, "--acp");
    let odd = r#" {  "jsonrpc":"2.0", "method" : "session/prompt", "id":0, "params":{"a":1, "t":"\u0041"} }"#;
    proxy.client_sends(&odd);
    assert_eq!(proxy.agent.next_line(), odd);
    proxy.agent_sends(&permission(0, "echo hi"));
    assert_eq!(outcome(&proxy.agent.next()), selected(0, "c"));
    proxy.agent_sends(&permission("0", "rm -rf x"));
    let denied = proxy.agent.next();
    assert_eq!(outcome(&denied), selected("0", "d"));
    assert!(denied.to_string().contains("Denied by policy"), "{denied}");
    let reply = r#"{"jsonrpc":"2.0","id":0,"result":{"stopReason":"end_turn"}}"#;
    proxy.agent_sends(&reply);
    assert_eq!(proxy.client.as_ref().unwrap().next_line(), reply, "the editor was asked nothing");
    let pid = proxy.agent_pid.clone();
    let ProxyExit { status, lines, .. } = proxy.leave();
    assert!(status.success() && lines.is_empty(), "{status} {lines:?}");
    wait_dead(&pid);
    place.verify_log();
}

#[test]
fn two_calls_wait_for_people_and_each_gets_its_own_answer() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &["--approvals", "gateway"]);
    proxy.agent_sends(&permission(1, "make all"));
    proxy.agent_sends(&permission(2, "make test"));
    let gates = place.wait_gates(2);
    let gate_of = |command: &str| {
        let gate = gates.iter().find(|gate| gate["subject"] == format!("bash({command})"));
        gate.unwrap_or_else(|| panic!("{gates:?}"))["id"].as_str().unwrap().to_owned()
    };
    // A call that a rule decides does not wait behind them.
    proxy.agent_sends(&permission(3, "echo meanwhile"));
    assert_eq!(outcome(&proxy.agent.next()), selected(3, "c"));
    place.deny_gate(&gate_of("make test"));
    assert_eq!(outcome(&proxy.agent.next()), selected(2, "d"));
    place.allow_gate(&gate_of("make all"));
    assert_eq!(outcome(&proxy.agent.next()), selected(1, "c"));
    assert!(proxy.leave().lines.is_empty());
    place.verify_log();
}

#[test]
fn a_gateway_that_is_killed_while_a_call_waits_decides_it_once_it_is_back() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &["--approvals", "gateway"]);
    proxy.agent_sends(&permission(1, "make"));
    let gate = place.wait_gate();
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    place.allow_gate(&gate);
    assert_eq!(outcome(&proxy.agent.next()), selected(1, "c"));
    // The approval was for one call.
    proxy.agent_sends(&permission(2, "make"));
    let again = place.wait_gate();
    assert_ne!(again, gate);
    place.deny_gate(&again);
    assert_eq!(outcome(&proxy.agent.next()), selected(2, "d"));
    drop(gateway);
    place.verify_log();
}

#[test]
fn without_a_gateway_every_call_is_denied_with_the_command_that_starts_one() {
    let place = fixture();
    let mut proxy = start(&place, &[]);
    proxy.agent_sends(&permission(1, "echo hi"));
    let denied = proxy.agent.next();
    assert_eq!(outcome(&denied), selected(1, "d"));
    assert!(denied.to_string().contains("countersign serve"), "{denied}");
    let _gateway = GatewayServer::start(&place);
    proxy.agent_sends(&permission(2, "echo hi"));
    assert_eq!(outcome(&proxy.agent.next()), selected(2, "c"), "it is found as soon as it is there");
}

#[test]
fn a_gateway_that_stays_away_is_waited_for_only_so_long() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &["--approvals", "gateway", "--reconnect", "0"]);
    proxy.agent_sends(&permission(1, "make"));
    place.wait_gates(1);
    gateway.kill();
    let denied = proxy.agent.next();
    assert_eq!(outcome(&denied), selected(1, "d"));
    assert!(denied.to_string().contains("the gateway ended while the call waited"), "{denied}");
}

#[test]
fn files_and_terminals_are_decided_on_what_is_written_and_run() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &["--approvals", "gateway"]);
    let request = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let path = place.folder.join("notes.txt");
    let write = |id, content: &str| {
        request(id, "fs/write_text_file", json!({ "sessionId": "s", "path": path, "content": content }))
    };
    proxy.agent_sends(&write(1, "first\n"));
    let gate = place.wait_gates(1).remove(0);
    assert!(gate.to_string().contains("first"), "{gate}");
    place.allow_gate(gate["id"].as_str().unwrap());
    assert_eq!(proxy.client_reads(), write(1, "first\n"), "the editor writes the bytes that were shown");
    proxy.client_sends(&json!({ "jsonrpc": "2.0", "id": 1, "result": null }));
    assert_eq!(proxy.agent.next()["id"], 1);
    proxy.agent_sends(&write(2, "second\n"));
    place.deny_gate(&place.wait_gate());
    let denied = proxy.agent.next();
    assert_eq!((&denied["id"], &denied["error"]["code"]), (&json!(2), &json!(-32003)), "{denied}");
    // Each argument is one word of the command that is decided.
    let run = |id, arguments: Value| {
        request(
            id,
            "terminal/create",
            json!({ "sessionId": "s", "command": "echo", "args": arguments, "cwd": place.folder }),
        )
    };
    proxy.agent_sends(&run(3, json!(["a; rm -rf x"])));
    assert_eq!(proxy.client_reads(), run(3, json!(["a; rm -rf x"])));
    let remove = json!({ "sessionId": "s", "command": "rm", "args": ["-rf", "x"], "cwd": place.folder });
    proxy.agent_sends(&request(4, "terminal/create", remove));
    let denied = proxy.agent.next();
    assert_eq!((&denied["id"], &denied["error"]["code"]), (&json!(4), &json!(-32003)), "{denied}");
    assert!(denied["error"]["message"].as_str().unwrap().contains("Denied by policy"), "{denied}");
    place.verify_log();
}

#[test]
fn an_agent_that_ends_leaves_no_request_without_an_answer() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &[]);
    let prompt = json!({ "jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": { "sessionId": "s" } });
    proxy.client_sends(&prompt);
    assert_eq!(proxy.agent.next(), prompt);
    proxy.kill_agent();
    let ProxyExit { status, lines, notices } = proxy.wait_end();
    assert_eq!(status.code(), Some(1), "{notices}");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let error: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!("p"), &json!(-32603)), "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("SIGKILL"), "{error}");
}

#[test]
fn what_is_no_message_of_the_client_is_an_error_and_the_agents_is_not_passed_on() {
    let place = fixture();
    let mut proxy = start(&place, &[]);
    for (line, code) in [("{", -32700), ("[]", -32600), (r#"{"id":1,"id":2,"method":"x"}"#, -32600)] {
        proxy.client_sends(&line);
        assert_eq!(proxy.client_reads()["error"]["code"], code, "{line}");
    }
    proxy.agent_sends(&"Welcome!");
    proxy.wait_notice("Welcome!");
    let update = json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": {} } });
    proxy.agent_sends(&update);
    assert_eq!(proxy.client_reads(), update);
}

#[test]
fn a_proxy_that_is_killed_leaves_its_gate_and_the_same_call_takes_the_decision() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &["--approvals", "gateway"]);
    proxy.agent_sends(&permission(1, "make"));
    let gate = place.wait_gate();
    let pid = proxy.agent_pid.clone();
    proxy.kill();
    // Its input has ended.
    wait_dead(&pid);
    place.allow_gate(&gate);
    let mut proxy = start(&place, &["--approvals", "gateway"]);
    proxy.agent_sends(&permission(7, "make"));
    assert_eq!(outcome(&proxy.agent.next()), selected(7, "c"));
    assert!(place.pending_gates().is_empty());
    place.verify_log();
}

#[test]
fn a_call_that_ran_in_another_form_is_an_incident_even_if_the_proxy_ends_at_once() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &[]);
    proxy.agent_sends(&permission(1, "echo hi"));
    assert_eq!(outcome(&proxy.agent.next()), selected(1, "c"));
    let update = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "echo hi", "kind": "execute", "status": "completed",
        "rawInput": { "command": "echo other" },
    });
    let update =
        json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "update": update } });
    proxy.agent_sends(&update);
    assert_eq!(proxy.client_reads(), update);
    let exit = proxy.leave();
    assert!(exit.status.success(), "{}", exit.notices);
    let incident = place.pending_gates().remove(0);
    assert!(incident["subject"].as_str().unwrap().contains("echo other"), "{incident}");
    place.verify_log();
}
