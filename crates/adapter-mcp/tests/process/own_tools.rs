//! Approvals, permissions, questions and gates of a host.

use countersign_testkit::process::{GatewayFixture, GatewayServer};
use serde_json::{Value, json};

use crate::mcp_host::{McpHost, McpHttp, message, request, text};

const SHELL_RULES: &str = r#"
defaults:
  - { pattern: "*", action: ask }
rules:
  - { pattern: "bash(ls*)", action: allow }
  - { pattern: "bash(rm*)", action: deny }
  - { pattern: "read(/tmp/*)", action: allow }
"#;

fn permission(result: &Value) -> Value {
    assert_eq!((result["content"].as_array().unwrap().len(), result.get("structuredContent")), (1, None), "{result}");
    serde_json::from_str(text(result)).unwrap()
}

#[test]
fn a_permission_is_judged_as_the_same_call_of_any_agent() {
    let place = GatewayFixture::with_config_and_rules("", SHELL_RULES);
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let prompt = |tool: &str, input: Value| json!({ "tool_name": tool, "input": input, "tool_use_id": "toolu_1" });
    for (tool, input, allowed) in [
        ("Bash", json!({ "command": "ls -l" }), true),
        ("Bash", json!({ "command": "rm -rf /" }), false),
        ("Bash", json!({ "command": "ls; rm -rf /" }), false),
        ("Read", json!({ "file_path": "/tmp/a" }), true),
        ("Read", json!({ "file_path": "/tmp/a", "path": "/etc/passwd" }), false),
    ] {
        let answer = permission(&host.call(1, "permission_prompt", prompt(tool, input.clone())));
        match allowed {
            true => assert_eq!(answer, json!({ "behavior": "allow", "updatedInput": input })),
            false => {
                assert_eq!((&answer["behavior"], answer["message"].is_string()), (&json!("deny"), true), "{answer}")
            }
        }
    }
    host.send_call(2, "permission_prompt", prompt("Write", json!({ "file_path": "/a", "content": "x" })));
    let gate = place.wait_gates(1).remove(0);
    assert_eq!((&gate["title"], &gate["subject"]), (&json!("write"), &json!("write(/a)")));
    place.allow_gate(gate["id"].as_str().unwrap());
    let answer = permission(&host.wait_reply(2)["result"]);
    assert_eq!(answer, json!({ "behavior": "allow", "updatedInput": { "file_path": "/a", "content": "x" } }));
    host.send_call(3, "permission_prompt", prompt("WebFetch", json!({ "url": "https://example.org" })));
    place.deny_gate(&place.wait_gate());
    assert_eq!(permission(&host.wait_reply(3)["result"])["behavior"], "deny");
    assert_eq!(place.service.received_requests().len(), 0);
}

#[test]
fn files_of_the_gateway_are_protected_from_the_tools_of_a_host() {
    let rules = "defaults:\n  - { pattern: \"*\", action: allow }\n";
    let place = GatewayFixture::with_config_and_rules("", rules);
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    for (tool, path, behavior) in [
        ("Write", place.folder.join("a.txt"), "allow"),
        ("Write", place.data_dir().join("tokens.json"), "deny"),
        ("Edit", place.folder.join("x/../data/tokens.json"), "deny"),
        ("Write", place.folder.join("permissions.yaml"), "deny"),
    ] {
        let input = json!({ "file_path": path, "content": "x" });
        let answer = permission(&host.call(1, "permission_prompt", json!({ "tool_name": tool, "input": input })));
        assert_eq!(answer["behavior"], behavior, "{}: {answer}", path.display());
    }
}

#[test]
fn an_approval_is_a_decision_and_no_error() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let action = json!({ "action": "deploy to production", "details": { "version": 7 } });
    host.send_call(1, "request_approval", action.clone());
    let gate = place.wait_gates(1).remove(0);
    assert_eq!((&gate["subject"], &gate["arguments"]), (&json!("request_approval(deploy to production)"), &action));
    let id = gate["id"].as_str().unwrap().to_owned();
    let status = host.call(2, "gate_status", json!({ "gate": id }));
    assert_eq!(status["structuredContent"]["status"], "pending");
    host.send_call(3, "gate_wait", json!({ "gate": id, "seconds": 60 }));
    place.allow_gate(&id);
    let result = host.wait_reply(1)["result"].clone();
    assert_eq!((text(&result), &result["isError"]), ("approved", &json!(false)));
    assert_eq!(result["structuredContent"], json!({ "decision": "allow", "gate": id }));
    let waited = host.wait_reply(3)["result"]["structuredContent"].clone();
    assert_eq!((&waited["status"], &waited["decision"]), (&json!("allowed once"), &json!("allow")), "{waited}");
    host.send_call(4, "request_approval", json!({ "action": "drop the database" }));
    place.deny_gate(&place.wait_gate());
    let result = host.wait_reply(4)["result"].clone();
    assert_eq!((&result["isError"], &result["structuredContent"]["decision"]), (&json!(false), &json!("deny")));
}

#[test]
fn a_gate_of_another_principal_is_unknown() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "request_approval", json!({ "action": "x" }));
    let gate = place.wait_gate();
    let other = McpHttp::new(&place, &gateway, "other", "call").begin_session();
    for (tool, arguments) in
        [("gate_status", json!({ "gate": gate })), ("gate_wait", json!({ "gate": gate, "seconds": 60 }))]
    {
        let reply = other.post(&request(1, "tools/call", json!({ "name": tool, "arguments": arguments })));
        assert_eq!(text(&message(&reply)["result"]), format!("There is no gate {gate} of yours"));
    }
    let waited = host.call(2, "gate_wait", json!({ "gate": gate, "seconds": 0.01 }));
    assert_eq!(waited["structuredContent"]["status"], "pending", "{waited}");
}

#[test]
fn a_person_answers_a_question_in_words_or_by_a_choice() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    for (id, arguments, answer) in [
        (1, json!({ "question": "Which colour?", "options": ["red", "blue"] }), "blue"),
        (2, json!({ "question": "What else?" }), "a green one"),
    ] {
        host.send_call(id, "ask_human", arguments.clone());
        let gate = place.wait_gates(1).remove(0);
        assert_eq!(gate["kind"], "question", "{gate}");
        let output = place.run_as_person(&["gates", "answer", gate["id"].as_str().unwrap(), answer]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let result = host.wait_reply(id)["result"].clone();
        assert_eq!((text(&result), &result["isError"]), (answer, &json!(false)), "{result}");
    }
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_question_survives_the_gateway() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let question = || json!({ "question": "Which colour?" });
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "ask_human", question());
    let gate = place.wait_gate();
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let output = place.run_as_person(&["gates", "answer", &gate, "red"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(text(&host.wait_reply(1)["result"]), "red", "the connection of the host repeats it");
    host.send_call(2, "ask_human", question());
    let gate = place.wait_gate();
    drop(host);
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    let output = place.run_as_person(&["gates", "answer", &gate, "blue"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let mut next = McpHost::start_initialized(&place);
    assert_eq!(text(&next.call(1, "ask_human", question())), "blue", "another host repeats it");
}
