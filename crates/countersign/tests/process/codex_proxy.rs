//! `countersign codex`: approvals of the app-server of Codex are decided by the gateway, each for itself.

use std::fs;

use countersign_testkit::process::{GatewayFixture, GatewayOptions, GatewayServer, wait_dead};
use serde_json::{Value, json};

use crate::proxied_agent::{ProxiedAgent, ProxyExit};

const RULES: &str = r#"
defaults:
  - { pattern: "*", action: ask }
rules:
  - { pattern: "bash(echo *)", action: allow }
  - { pattern: "bash(rm *)", action: deny }
"#;

fn fixture() -> GatewayFixture {
    GatewayOptions::new().with_rules(RULES).create()
}

/// Starts a proxy before a Codex with these arguments.
fn start(place: &GatewayFixture, arguments: &[&str]) -> ProxiedAgent {
    let folder = place.folder.join("codex");
    let program = ProxiedAgent::write_program(&folder);
    let own = ["codex", "--config", "config.yaml", "--program", &program];
    ProxiedAgent::start(place, &folder, &[&own, arguments].concat())
}

/// Request of Codex to run a command as item `i`.
fn command(id: impl Into<Value>, line: &str) -> Value {
    json!({
        "id": id.into(),
        "method": "item/commandExecution/requestApproval",
        "params": {
            "threadId": "t", "turnId": "u", "itemId": line, "command": format!("/bin/bash -lc '{line}'"),
            "availableDecisions": ["acceptForSession", "accept", "cancel"],
        },
    })
}

fn decision(answer: &Value) -> Value {
    json!([answer["id"], answer["result"]["decision"]])
}

#[test]
fn commands_are_accepted_or_declined_one_by_one() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &["--", "--listen", "stdio://"]);
    assert_eq!(proxy.arguments, "app-server --listen stdio://");
    let hello = r#"{ "id":0,"method":"initialize",  "params":{"clientInfo":{"name":"test"}}}"#;
    proxy.client_sends(&hello);
    assert_eq!(proxy.agent.next_line(), hello);
    for (id, line, want) in [(json!(1), "echo hi", "accept"), (json!("1"), "rm -rf x", "decline")] {
        proxy.agent_sends(&command(id.clone(), line));
        assert_eq!(decision(&proxy.agent.next()), json!([id, want]));
    }
    proxy.agent_sends(&command(2, "make all"));
    let gate = place.wait_gates(1).remove(0);
    assert_eq!(gate["subject"], "bash(make all)", "{gate}");
    place.allow_gate(gate["id"].as_str().unwrap());
    assert_eq!(decision(&proxy.agent.next()), json!([2, "accept"]));
    // An approval is for one call.
    proxy.agent_sends(&command(3, "make all"));
    place.deny_gate(&place.wait_gate());
    assert_eq!(decision(&proxy.agent.next()), json!([3, "decline"]));
    let pid = proxy.agent_pid.clone();
    let ProxyExit { status, lines, .. } = proxy.leave();
    assert!(status.success() && lines.is_empty(), "{status} {lines:?}");
    wait_dead(&pid);
    place.verify_log();
}

#[test]
fn a_gateway_that_is_killed_while_a_command_waits_decides_it_once_it_is_back() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &[]);
    proxy.agent_sends(&command(1, "make"));
    let gate = place.wait_gate();
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    place.deny_gate(&gate);
    assert_eq!(decision(&proxy.agent.next()), json!([1, "decline"]));
    drop(gateway);
    // There is none any more.
    proxy.agent_sends(&command(2, "make other"));
    let _gateway = GatewayServer::start(&place);
    place.allow_gate(&place.wait_gate());
    assert_eq!(decision(&proxy.agent.next()), json!([2, "accept"]));
    place.verify_log();
}

#[test]
fn a_thread_that_its_configuration_has_loosened_is_refused() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &[]);
    proxy.client_sends(&json!({ "id": 1, "method": "thread/start", "params": { "cwd": "/x" } }));
    let started = proxy.agent.next();
    assert_eq!(
        (&started["params"]["approvalPolicy"], &started["params"]["approvalsReviewer"]),
        (&json!("on-request"), &json!("user")),
        "{started}"
    );
    let sandbox = json!({ "type": "dangerFullAccess" });
    let thread = json!({ "thread": { "id": "t" }, "cwd": "/x", "approvalPolicy": "on-request", "approvalsReviewer": "user", "sandbox": sandbox });
    proxy.agent_sends(&json!({ "id": 1, "result": thread }));
    let refused = proxy.client_reads();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32003)), "{refused}");
}

#[test]
fn a_client_that_loosens_codex_asks_a_person() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    let mut proxy = start(&place, &[]);
    // What was denied stays denied for a while.
    for (id, is_allowed) in [(1, true), (2, false)] {
        proxy.client_sends(&json!({ "id": id, "method": "thread/start", "params": { "approvalPolicy": "never" } }));
        let gate = place.wait_gates(1).remove(0);
        assert!(gate["subject"].as_str().unwrap().starts_with("codex__thread_settings"), "{gate}");
        let gate = gate["id"].as_str().unwrap();
        if is_allowed {
            place.allow_gate(gate);
            assert_eq!(proxy.agent.next()["params"]["approvalPolicy"], "never");
        } else {
            place.deny_gate(gate);
            assert_eq!(proxy.client_reads()["error"]["code"], -32003);
        }
    }
}

#[test]
fn a_codex_that_was_not_proven_is_refused() {
    let place = fixture();
    let program = ProxiedAgent::write_program(&place.folder.join("codex"));
    let text = fs::read_to_string(&program).unwrap();
    for (version, want) in [
        ("codex-cli 0.170.9", "has the version 0.170.9: expected 0.171.0 or newer"),
        ("Codex", "--version printed \"Codex\": expected `codex-cli 0.171.0` or newer"),
    ] {
        fs::write(&program, text.replace("codex-cli 0.171.0", version)).unwrap();
        let output = place.run(&["codex", "--config", "config.yaml", "--program", &program]);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.err.contains(want), "{output:?}");
    }
    let output = place.run(&["codex", "--config", "config.yaml", "--program", "/nowhere/codex"]);
    assert!(output.code == Some(1) && output.err.contains("cannot start /nowhere/codex"), "{output:?}");
}
