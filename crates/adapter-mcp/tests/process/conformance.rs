//! Exchanges of the public conformance suites, replayed as they are on the wire. `cargo xtask conformance` runs the suites themselves.

use std::thread;

use countersign_testkit::process::{GatewayFixture, GatewayServer, http::HttpClientReply};
use serde_json::{Value, json};

use crate::mcp_host::{McpHttp, SESSIONLESS, initialize_params, message, request, sessionless};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

fn gateway_and_client() -> (GatewayFixture, GatewayServer, McpHttp) {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let client = McpHttp::new(&place, &gateway, "suite", "call");
    (place, gateway, client)
}

/// Sends a request of the generation without `initialize`, with its headers.
fn ask(client: &McpHttp, id: u64, method: &str, params: Value) -> HttpClientReply {
    let name = params["name"].as_str().map(str::to_owned);
    client.sessionless(method, name.as_deref()).post(&request(id, method, params))
}

/// Asserts an error with its status, its code and the id of its request.
fn assert_error(case: &str, reply: &HttpClientReply, (status, code, id): (u16, i64, u64)) -> Value {
    let sent = message(reply);
    assert_eq!(
        (reply.status, &sent["error"]["code"], &sent["id"]),
        (status, &json!(code), &json!(id)),
        "{case}: {sent}"
    );
    sent["error"].clone()
}

#[test]
fn each_version_with_a_handshake_is_initialized() {
    let (_place, _gateway, client) = gateway_and_client();
    for (requested, version) in
        [("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-11-25"), ("2024-11-05", "2025-11-25"), ("9", "2025-11-25")]
    {
        let reply = client.post(&request(1, "initialize", initialize_params(requested)));
        let result = message(&reply)["result"].clone();
        assert_eq!((reply.status, &result["protocolVersion"]), (200, &json!(version)), "{requested}: {reply:?}");
        assert_eq!(result["capabilities"], json!({ "tools": { "listChanged": true } }));
        assert_eq!(result["serverInfo"]["name"], "countersign");
        assert!(result.get("resultType").is_none(), "{result}");
        let session = client.with_header("mcp-session-id", reply.header("mcp-session-id").unwrap());
        let session = session.with_header("mcp-protocol-version", version);
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&initialized).status, 202);
        assert_eq!(message(&session.post(&request(2, "ping", json!({}))))["result"], json!({}));
        assert_eq!(session.0.send_request("DELETE", "/mcp", "").status / 100, 2);
        assert_eq!(session.post(&request(3, "ping", json!({}))).status, 404);
    }
}

#[test]
fn requests_of_a_session_are_answered_on_their_own_streams() {
    let (_place, _gateway, client) = gateway_and_client();
    let session = client.begin_session();
    thread::scope(|scope| {
        for id in 1..=3 {
            let session = &session;
            scope.spawn(move || {
                let reply = session.post(&request(id, "tools/list", json!({})));
                assert_eq!((reply.status, &message(&reply)["id"]), (200, &json!(id)), "{reply:?}");
            });
        }
    });
}

#[test]
fn a_server_without_sessions_is_discovered() {
    let (_place, _gateway, client) = gateway_and_client();
    let found = message(&ask(&client, 1, "server/discover", sessionless(json!({}))))["result"].clone();
    assert_eq!(found["supportedVersions"], json!(["2025-06-18", "2025-11-25", SESSIONLESS]), "{found}");
    assert_eq!(
        (&found["resultType"], &found["capabilities"]),
        (&json!("complete"), &json!({ "tools": { "listChanged": true } }))
    );
    assert_eq!(found["_meta"][SERVER]["name"], "countersign");
    for result in [found, message(&ask(&client, 2, "tools/list", sessionless(json!({}))))["result"].clone()] {
        assert_eq!(
            (&result["ttlMs"], &result["cacheScope"]),
            (&json!(0), &json!("private")),
            "nobody caches it: {result}"
        );
    }
}

#[test]
fn what_a_request_says_about_itself_is_complete_and_names_a_version_that_is_spoken() {
    let (_place, _gateway, client) = gateway_and_client();
    let whole = sessionless(json!({}))["_meta"].clone();
    let without = |name: &str| {
        let mut meta = whole.clone();
        meta.as_object_mut().unwrap().remove(name);
        json!({ "_meta": meta })
    };
    for (case, params) in
        [("nothing", json!({})), ("no version", without(VERSION)), ("no capabilities", without(CAPABILITIES))]
    {
        assert_error(case, &ask(&client, 101, "server/discover", params), (400, -32602, 101));
    }
    assert_eq!(ask(&client, 105, "server/discover", without(CLIENT)).status, 200, "a client need not name itself");
    let mut unknown = whole.clone();
    unknown[VERSION] = json!("v999.0.0");
    let discover = request(301, "server/discover", json!({ "_meta": unknown }));
    let named = client.with_header("mcp-protocol-version", "v999.0.0").with_header("mcp-method", "server/discover");
    let error = assert_error("unknown version", &named.post(&discover), (400, -32022, 301));
    let supported = json!({ "requested": "v999.0.0", "supported": ["2025-06-18", "2025-11-25", SESSIONLESS] });
    assert_eq!(error["data"], supported);
    let other = client.sessionless("server/discover", None).post(&discover);
    assert_error("another version in the header", &other, (400, -32020, 301));
}

#[test]
fn methods_that_this_generation_has_not_are_not_found() {
    let (_place, _gateway, client) = gateway_and_client();
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "resources/list",
        "prompts/list",
        "completion/complete",
        "tasks/get",
        "unknown/method",
    ] {
        assert_error(method, &ask(&client, 500, method, sessionless(json!({}))), (404, -32601, 500));
    }
}

#[test]
fn headers_are_compared_with_the_message_by_their_values() {
    let (place, _gateway, client) = gateway_and_client();
    let list = request(1, "tools/list", sessionless(json!({})));
    let call = request(2, "tools/call", sessionless(json!({ "name": "look", "arguments": { "thing": "lamp" } })));
    let versioned = client.with_header("mcp-protocol-version", SESSIONLESS);
    for (case, headers, sent, status) in [
        ("name in capitals", vec![("MCP-METHOD", "tools/list")], &list, 200),
        ("value in capitals", vec![("mcp-method", "TOOLS/LIST")], &list, 400),
        ("another method", vec![("mcp-method", "prompts/list")], &list, 400),
        ("no method", vec![], &list, 400),
        ("white space", vec![("mcp-method", "tools/call"), ("mcp-name", "  look  ")], &call, 200),
        ("another tool", vec![("mcp-method", "tools/call"), ("mcp-name", "turn")], &call, 400),
        ("no tool", vec![("mcp-method", "tools/call")], &call, 400),
    ] {
        let named =
            headers.iter().fold(McpHttp(versioned.0.clone()), |client, (name, value)| client.with_header(name, value));
        let reply = named.post(sent);
        assert_eq!(reply.status, status, "{case}: {reply:?}");
        if status == 400 {
            assert_eq!(message(&reply)["error"]["code"], json!(-32020), "{case}: {reply:?}");
        }
    }
    assert_eq!(place.service.request_count("/look/lamp"), 1);
}

#[test]
fn state_that_the_server_never_gave_is_refused_and_nothing_runs() {
    let (place, _gateway, client) = gateway_and_client();
    for added in [
        json!({ "requestState": "tampered" }),
        json!({ "requestState": "tampered", "inputResponses": { "name": { "action": "accept", "content": {} } } }),
    ] {
        let mut params = sessionless(json!({ "name": "look", "arguments": { "thing": "lamp" } }));
        params.as_object_mut().unwrap().extend(added.as_object().unwrap().clone());
        assert_error("state", &ask(&client, 7, "tools/call", params), (200, -32602, 7));
    }
    assert_eq!(place.service.request_count("/look/lamp"), 0);
}

#[test]
fn a_subscription_is_acknowledged_first_with_what_it_will_send() {
    let (_place, _gateway, client) = gateway_and_client();
    for (id, wanted, granted) in [
        (1, json!({ "toolsListChanged": true }), json!({ "toolsListChanged": true })),
        (2, json!({ "toolsListChanged": true, "promptsListChanged": true }), json!({ "toolsListChanged": true })),
        (3, json!({ "promptsListChanged": true }), json!({})),
    ] {
        let listen = request(id, "subscriptions/listen", sessionless(json!({ "notifications": wanted })));
        let client = client.sessionless("subscriptions/listen", None);
        let stream = client.0.open_post_stream("/mcp", &listen.to_string());
        let first = stream.wait_event("acknowledgement", |_| true).data;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        assert_eq!(first["params"]["notifications"], granted, "{first}");
        assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], json!(id), "{first}");
    }
}
