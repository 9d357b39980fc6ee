//! Hosts over stdio, in both generations of the protocol.

use countersign_testkit::process::{GatewayFixture, GatewayServer};
use serde_json::{Value, json};

use crate::mcp_host::{McpHost, SESSIONLESS, request, sessionless, text};

const TOOLS: [&str; 8] =
    ["ask_human", "request_approval", "permission_prompt", "gate_status", "gate_wait", "look", "turn", "lookup"];

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn a_host_that_initializes_calls_tools() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    for (offered, want) in [("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"), ("2024-01-01", "2025-11-25")] {
        let mut host = McpHost::start(&place);
        let hello = host.initialize(offered);
        assert_eq!((&hello["protocolVersion"], &hello["serverInfo"]["name"]), (&json!(want), &json!("countersign")));
        assert_eq!(hello["capabilities"], json!({ "tools": { "listChanged": true } }));
        assert_eq!(host.request(1, "ping", json!({}))["result"], json!({}));
        let listed = host.request(2, "tools/list", json!({}));
        assert_eq!(names(&listed), TOOLS, "{listed}");
        let look = &listed["result"]["tools"][5];
        assert_eq!(look["description"], "Looks at a thing");
        assert_eq!(look["inputSchema"]["required"], json!(["thing"]));
        assert!(look.get("annotations").is_none() && look["inputSchema"]["properties"]["thing"].is_object());
        let result = host.call(3, "look", json!({ "thing": "lamp" }));
        assert_eq!((&result["isError"], result.get("resultType")), (&json!(false), None), "{result}");
        assert_eq!(host.finish(), Some(0));
    }
    assert_eq!(place.service.request_count("/look/lamp"), 3);
}

#[test]
fn a_host_without_initialize_discovers_and_calls_tools() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start(&place);
    let found = host.request(1, "server/discover", sessionless(json!({})))["result"].clone();
    assert_eq!(found["supportedVersions"], json!(["2025-06-18", "2025-11-25", SESSIONLESS]), "{found}");
    assert_eq!(names(&host.request(2, "tools/list", sessionless(json!({})))), TOOLS);
    let call = sessionless(json!({ "name": "look", "arguments": { "thing": "lamp" } }));
    let result = host.request(3, "tools/call", call)["result"].clone();
    assert_eq!((&result["isError"], &result["resultType"]), (&json!(false), &json!("complete")), "{result}");
}

#[test]
fn arguments_that_do_not_fit_never_reach_an_approver() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    for (tool, arguments, want) in [
        ("look", json!({}), "Missing required argument: thing"),
        ("look", json!({ "thing": "Lamp" }), "Invalid value for thing: 'Lamp'"),
        ("turn", json!({ "thing": "a*" }), "Argument 'thing' contains forbidden characters"),
        ("request_approval", json!({ "action": 7 }), "not approved: Invalid value for action: expected string"),
        ("gate_status", json!({ "gate": 7 }), "Invalid value for gate: expected string"),
    ] {
        let result = host.call(1, tool, arguments);
        assert_eq!(text(&result), want, "{result}");
    }
    let unknown = host.request(2, "tools/call", json!({ "name": "nothing", "arguments": {} }));
    assert_eq!(unknown["error"], json!({ "code": -32602, "message": "Unknown tool: nothing" }));
    assert_eq!(place.pending_gates(), Vec::<Value>::new());
}

#[test]
fn without_a_gateway_the_host_gets_the_reason() {
    let place = GatewayFixture::new();
    let output = place.run(&["mcp", "--config", "config.yaml"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.out.is_empty() && output.err.contains("no gateway runs with the data directory"), "{output:?}");
}

#[test]
fn a_host_whose_gateway_ends_keeps_its_process_and_gets_the_next_gateway() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    host.send_call(1, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    // An orderly end answers nothing that is open: the next gateway does. What comes meanwhile waits for it.
    assert_eq!(gateway.stop().code, Some(0));
    host.send_call(2, "look", json!({ "thing": "lamp" }));
    let gateway = GatewayServer::start(&place);
    host.wait_message("list_changed", |message| message["method"] == json!("notifications/tools/list_changed"));
    assert_eq!(host.wait_reply(2)["result"]["isError"], json!(false));
    assert_eq!(place.wait_gate(), gate, "the end decided nothing");
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    place.allow_gate(&gate);
    assert_eq!(host.wait_reply(1)["result"]["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 1);
    assert_eq!(host.finish(), Some(0));
    place.verify_log();
}

#[test]
fn a_call_of_a_host_without_initialize_survives_a_crash() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut host = McpHost::start(&place);
    let call = sessionless(json!({ "name": "turn", "arguments": { "thing": "door" } }));
    host.send(&request(1, "tools/call", call));
    let gate = place.wait_gate();
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    place.allow_gate(&gate);
    assert_eq!(host.wait_reply(1)["result"]["isError"], json!(false));
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn a_gateway_does_not_become_an_mcp_server_of_its_own() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    for (folder, is_refused) in [(place.data_dir(), true), (place.folder.clone(), false)] {
        let mut command = place.binary_command();
        command.args(["mcp", "--config", "config.yaml"]).env("COUNTERSIGN_MCP", folder);
        let output = countersign_testkit::process::run_command(command);
        assert_eq!(output.err.contains("it would call itself"), is_refused, "{output:?}");
        assert_eq!(output.code, Some(i32::from(is_refused)), "{output:?}");
    }
}
