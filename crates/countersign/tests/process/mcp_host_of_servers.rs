//! Tools of MCP servers as a host sees them over HTTP, in the exchanges of the public conformance suites.

use std::path::Path;

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, eventually,
    http::{HttpClient, HttpClientReply},
};
use serde_json::{Value, json};

const RULES: &str = "defaults:\n  - { pattern: \"*\", action: allow }\n";
const VERSION: &str = "2026-07-28";

/// Gateway with the approved server `kit`.
struct HostFixture {
    place: GatewayFixture,
    _gateway: GatewayServer,
    host: HttpClient,
}

impl HostFixture {
    fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/mcp_host_of_servers/kit_server.py");
        let config = format!("mcp: {{ servers: {{ kit: {{ command: python3, args: [{script:?}] }} }} }}\n");
        let place = GatewayFixture::with_config_and_rules(&config, RULES);
        change_approval(&place, "approve");
        let gateway = place.start();
        let token = place.run_as_person(&["tokens", "add", "suite", "--scope", "call", "--json"]).json();
        let host = gateway
            .http_client()
            .with_header("authorization", &format!("Bearer {}", token["token"].as_str().unwrap()))
            .with_header("accept", "application/json, text/event-stream")
            .with_header("content-type", "application/json");
        Self { place, _gateway: gateway, host }
    }

    /// Returns a host of the generation without `initialize`, for requests of one method.
    fn sessionless(&self, method: &str) -> HttpClient {
        self.host.clone().with_header("mcp-protocol-version", VERSION).with_header("mcp-method", method)
    }

    /// Calls a tool of the server, with more headers.
    fn call(&self, tool: &str, arguments: Value, headers: &[(&str, &str)]) -> HttpClientReply {
        let name = format!("mcp__kit__{tool}");
        let host = self.sessionless("tools/call").with_header("mcp-name", &name);
        let host = headers.iter().fold(host, |host, (name, value)| host.with_header(name, value));
        host.send_request("POST", "/mcp", &request("tools/call", json!({ "name": name, "arguments": arguments })))
    }
}

/// Approves or revokes the server, as the operator of the gateway.
fn change_approval(place: &GatewayFixture, verb: &str) {
    let flags: &[&str] = if verb == "approve" { &["--yes"] } else { &[] };
    let output = place.run(&[&["mcp-servers", verb, "kit", "--config", "config.yaml"], flags].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
}

fn request(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Returns the message of a reply: JSON, or the last event of a stream.
fn message(reply: &HttpClientReply) -> Value {
    let mut events = reply.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let last = events.rfind(|data| data.contains("jsonrpc"));
    serde_json::from_str(last.unwrap_or(&reply.body)).unwrap_or_else(|_| panic!("no message: {reply:?}"))
}

#[test]
fn a_result_of_a_server_is_complete_in_the_version_of_the_host() {
    let fixture = HostFixture::new();
    let png = "iVBORw0KGgo=";
    for (tool, content, is_error) in [
        ("text", json!({ "type": "text", "text": "words" }), false),
        ("image", json!({ "type": "image", "data": png, "mimeType": "image/png" }), false),
        ("broken", json!({ "type": "text", "text": "it broke" }), true),
    ] {
        let result = message(&fixture.call(tool, json!({}), &[]))["result"].clone();
        assert_eq!((&result["resultType"], &result["content"]), (&json!("complete"), &json!([content])), "{tool}");
        assert_eq!(result["isError"] == true, is_error, "{tool}: {result}");
    }
}

#[test]
fn a_schema_of_a_server_reaches_the_host_with_every_keyword() {
    let fixture = HostFixture::new();
    let host = fixture.sessionless("tools/list");
    let listed = message(&host.send_request("POST", "/mcp", &request("tools/list", json!({}))));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "mcp__kit__schema").unwrap();
    let mut names: Vec<&str> = tool["inputSchema"].as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["$defs", "$schema", "additionalProperties", "allOf", "else", "if", "properties", "then", "type"]
    );
    assert_eq!(tool["inputSchema"]["$defs"]["address"]["$anchor"], "addressDef");
}

#[test]
fn an_argument_that_is_a_header_too_must_be_the_same_in_both() {
    let fixture = HostFixture::new();
    let arguments = json!({ "region": "us-west1" });
    for (case, headers, status) in [
        ("the same", vec![("mcp-param-region", "us-west1")], 200),
        ("encoded", vec![("mcp-param-region", "=?base64?dXMtd2VzdDE=?=")], 200),
        ("another", vec![("mcp-param-region", "eu-north1")], 400),
        ("none", vec![], 400),
    ] {
        let reply = fixture.call("region", arguments.clone(), &headers);
        assert_eq!(reply.status, status, "{case}: {reply:?}");
        if status == 400 {
            assert_eq!(message(&reply)["error"]["code"], json!(-32020), "{case}: {reply:?}");
        }
    }
}

#[test]
fn a_changed_list_reaches_the_subscriptions_that_want_it_and_leaves_the_others_open() {
    let fixture = HostFixture::new();
    let listen = |notifications: Value| {
        let host = fixture.sessionless("subscriptions/listen");
        let stream =
            host.open_post_stream("/mcp", &request("subscriptions/listen", json!({ "notifications": notifications })));
        stream
            .wait_event("acknowledgement", |event| event.data["method"] == "notifications/subscriptions/acknowledged");
        stream
    };
    let of_tools = listen(json!({ "toolsListChanged": true }));
    let of_prompts = listen(json!({ "promptsListChanged": true }));
    for (count, verb) in [(1, "revoke"), (2, "approve")] {
        change_approval(&fixture.place, verb);
        of_tools.wait_event("change", |event| event.data["method"] == "notifications/tools/list_changed");
        eventually("each change", || {
            let events = of_tools.events_so_far();
            (events.len() > count).then_some(())
        });
    }
    // Both streams have seen the same changes by now.
    assert_eq!(of_prompts.events_so_far().len(), 1, "{:?}", of_prompts.events_so_far());
}
