//! Who may call over HTTP, and whose session it is.

use countersign_testkit::process::{GatewayFixture, GatewayServer, eventually};
use serde_json::json;

use crate::mcp_host::{McpHttp, initialize_params, message, plain_client, request, sessionless};

#[test]
fn a_token_with_the_scope_call_is_needed() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let hello = request(0, "initialize", initialize_params("2025-11-25"));
    let wrong = plain_client(&gateway).with_header("authorization", "Bearer cst_wrong");
    for (client, status) in [
        (McpHttp(plain_client(&gateway)), 401),
        (McpHttp(wrong), 401),
        (McpHttp::new(&place, &gateway, "reader", "read"), 403),
        (McpHttp::new(&place, &gateway, "caller", "call"), 200),
    ] {
        let reply = client.post(&hello);
        assert_eq!(reply.status, status, "{reply:?}");
    }
    let reading = McpHttp::new(&place, &gateway, "only", "call").0.get("/api/v1/gates");
    assert_eq!(reading.status, 403, "the scope opens nothing else");
}

#[test]
fn a_foreign_page_and_a_foreign_name_are_refused() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let client = McpHttp::new(&place, &gateway, "ci", "call");
    let hello = request(0, "initialize", initialize_params("2025-11-25"));
    for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("host", "evil.example")] {
        let reply = client.with_header(name, value).post(&hello);
        assert!(matches!(reply.status, 403 | 421), "{name}: {value}: {reply:?}");
    }
    let own = client.with_header("origin", &format!("http://{}", gateway.address)).post(&hello);
    assert_eq!(own.status, 200, "{own:?}");
}

#[test]
fn a_session_belongs_to_the_principal_that_began_it_and_ends_with_its_token() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let session = McpHttp::new(&place, &gateway, "one", "call").begin_session();
    let other = McpHttp::new(&place, &gateway, "other", "call").begin_session();
    let list = request(1, "tools/list", json!({}));
    assert_eq!(session.post(&list).status, 200);
    let id = session.0.headers.iter().find(|(name, _)| name == "mcp-session-id").unwrap().1.clone();
    let mut stolen = other.0.clone();
    stolen.headers.retain(|(name, _)| name != "mcp-session-id");
    let stolen = McpHttp(stolen).with_header("mcp-session-id", &id);
    assert_eq!(stolen.post(&list).status, 404);
    assert_eq!(place.run_as_person(&["tokens", "remove", "one"]).code, Some(0));
    eventually("end of the session", || (session.post(&list).status == 401).then_some(()));
    assert_eq!(other.post(&list).status, 200);
    let end = other.0.send_request("DELETE", "/mcp", "");
    assert!(matches!(end.status, 200 | 202 | 204), "{end:?}");
    assert_eq!(other.post(&list).status, 404);
}

#[test]
fn headers_that_contradict_the_message_are_refused() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let client = McpHttp::new(&place, &gateway, "ci", "call");
    let call = request(1, "tools/call", sessionless(json!({ "name": "look", "arguments": { "thing": "lamp" } })));
    let right = client.sessionless("tools/call", Some("look"));
    assert_eq!(message(&right.post(&call))["result"]["isError"], json!(false));
    for (case, client) in [
        ("wrong name", client.sessionless("tools/call", Some("turn"))),
        ("no name", client.sessionless("tools/call", None)),
        ("wrong method", client.sessionless("tools/list", Some("look"))),
        ("no version", McpHttp(client.0.clone())),
        ("another version", client.with_header("mcp-protocol-version", "2025-11-25")),
    ] {
        let reply = client.post(&call);
        assert_eq!(reply.status, 400, "{case}: {reply:?}");
    }
    assert_eq!(place.service.request_count("/look/lamp"), 1);
    let no_meta = right.post(&request(1, "tools/call", json!({ "name": "look", "arguments": { "thing": "lamp" } })));
    assert_eq!((no_meta.status, &message(&no_meta)["error"]["code"]), (400, &json!(-32602)), "{no_meta:?}");
}
