//! Clients that send what they must not, or too much of it.

use countersign_testkit::process::{GatewayFixture, GatewayServer};
use serde_json::{Value, json};

use crate::mcp_host::{McpHost, McpHttp, initialize_params, message, request, sessionless};

#[test]
fn lines_that_are_no_messages_get_errors_and_the_connection_continues() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    for (line, code) in [
        ("{\"jsonrpc".to_owned(), -32700),
        (json!([request(1, "ping", json!({}))]).to_string(), -32600),
        ("x".repeat(10 << 20), -32600),
        ("7".to_owned(), -32600),
    ] {
        host.send_line(&line);
        let fault = host.wait_message("error", |message| message.get("error").is_some());
        assert_eq!((&fault["error"]["code"], fault.get("id")), (&json!(code), None), "{fault}");
    }
    let unknown = host.request(1, "no/such", json!({}));
    assert_eq!(unknown["error"]["code"], json!(-32601), "{unknown}");
    let wrong = host.request(2, "tools/call", json!({ "name": 7 }));
    assert_eq!(wrong["error"]["code"], json!(-32602), "{wrong}");
    let state = json!({ "name": "look", "arguments": { "thing": "lamp" }, "requestState": "x" });
    assert_eq!(host.request(3, "tools/call", state)["error"]["code"], json!(-32602));
    assert_eq!(host.request(4, "ping", json!({}))["result"], json!({}));
}

#[test]
fn a_host_that_mixes_both_generations_is_served_by_what_each_request_says() {
    let place = GatewayFixture::new();
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start(&place);
    let without = host.request(1, "tools/list", json!({}));
    assert_eq!(without["error"]["code"], json!(-32602), "neither initialized nor with _meta: {without}");
    host.request(2, "server/discover", sessionless(json!({})));
    let hello = host.request(3, "initialize", sessionless(initialize_params("2025-06-18")));
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18", "{hello}");
    let call = json!({ "name": "look", "arguments": { "thing": "lamp" } });
    let old = host.request(4, "tools/call", call.clone())["result"].clone();
    let new = host.request(5, "tools/call", sessionless(call))["result"].clone();
    assert_eq!((old.get("resultType"), &new["resultType"]), (None, &json!("complete")));
    let again = host.request(6, "initialize", initialize_params("2025-06-18"));
    assert!(again.get("error").is_some() || again["result"]["protocolVersion"] == "2025-06-18", "{again}");
}

#[test]
fn a_thousand_calls_at_once_are_all_answered() {
    let limits = "rate_limit: { max_requests_per_minute: 5000, max_pending_approvals: 10 }";
    let place = GatewayFixture::with_config_and_rules(limits, countersign_testkit::process::RULES);
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    for id in 1..=1_000 {
        host.send_call(id, "look", json!({ "thing": format!("lamp{id}") }));
    }
    for id in 1..=1_000 {
        assert_eq!(host.wait_reply(id)["result"]["isError"], json!(false), "{id}");
    }
    assert_eq!(place.service.received_requests().len(), 1_000);
    // Of as many that need an approval, so many wait as the settings allow.
    for id in 2_001..=3_000 {
        host.send_call(id, "turn", json!({ "thing": format!("door{id}") }));
    }
    let refused: Vec<Value> =
        (0..990).map(|_| host.wait_message("refusal", |message| message["id"].is_u64())).collect();
    assert!(refused.iter().all(|reply| reply["result"]["content"][0]["text"] == "Too many pending approvals"));
    assert_eq!(place.pending_gates().len(), 10);
}

#[test]
fn calls_of_a_minute_are_limited() {
    let place = GatewayFixture::with_config_and_rules(
        "rate_limit: { max_requests_per_minute: 2 }",
        countersign_testkit::process::RULES,
    );
    let _gateway = GatewayServer::start(&place);
    let mut host = McpHost::start_initialized(&place);
    let errors = [1, 2, 3].map(|id| host.call(id, "look", json!({ "thing": format!("lamp{id}") }))["isError"].clone());
    assert_eq!(errors, [json!(false), json!(false), json!(true)]);
}

#[test]
fn bodies_that_are_no_messages_are_refused_over_http() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let client = McpHttp::new(&place, &gateway, "ci", "call");
    let large = format!("\"{}\"", "x".repeat(5 << 20));
    let ping = request(1, "ping", json!({})).to_string();
    for (body, status, code) in [
        ("{\"jsonrpc".to_owned(), 400, -32700),
        (ping.replace(":1", ":1e999"), 400, -32700),
        (format!("[{ping}]"), 400, -32600),
        (ping.replace(":1", ":null"), 400, -32600),
        (ping.replace(":1", ":1.5"), 400, -32600),
        (ping.replace("\"jsonrpc\"", "\"rpc\""), 400, -32600),
        (large, 413, -32600),
    ] {
        let reply = client.0.send_request("POST", "/mcp", &body);
        let shown: String = body.chars().take(60).collect();
        assert_eq!((reply.status, &message(&reply)["error"]["code"]), (status, &json!(code)), "{shown}: {reply:?}");
    }
}

#[test]
fn parameters_of_a_list_that_do_not_fit_are_refused_over_both_transports() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let session = McpHttp::new(&place, &gateway, "ci", "call").begin_session();
    let mut host = McpHost::start_initialized(&place);
    for (id, cursor) in [(1, json!(5)), (2, json!(["x"])), (3, json!("x"))] {
        let params = json!({ "cursor": cursor });
        let over_http = message(&session.post(&request(id, "tools/list", params.clone())));
        for reply in [over_http, host.request(id, "tools/list", params)] {
            assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(id), &json!(-32602)), "{reply}");
        }
    }
}
