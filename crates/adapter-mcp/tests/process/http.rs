//! Who may call over HTTP, and whose session it is.

use std::thread;

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

#[test]
fn an_approval_reaches_the_call_that_an_approver_allowed_and_no_other_with_its_id() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let session = McpHttp::new(&place, &gateway, "ci", "call").begin_session();
    let ask = |action: &str| {
        let params = json!({ "name": "request_approval", "arguments": { "action": action } });
        request(7, "tools/call", params)
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| session.post(&ask("list files")));
        let gate = place.wait_gate();
        let second = session.post(&ask("drop the database"));
        assert_eq!((second.status, &message(&second)["error"]["code"]), (400, &json!(-32600)), "{second:?}");
        place.allow_gate(&gate);
        let first = message(&first.join().unwrap());
        assert_eq!(first["result"]["structuredContent"], json!({ "decision": "allow", "gate": gate }));
    });
    assert!(place.pending_gates().is_empty());
}

#[test]
fn every_call_that_waits_gets_an_error_when_the_gateway_ends() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let client = McpHttp::new(&place, &gateway, "ci", "call");
    let params = |number: usize| json!({ "name": "request_approval", "arguments": { "action": format!("a{number}") } });
    let replies: Vec<_> = (0..8)
        .map(|number| {
            let (client, params) = match number % 2 {
                0 => (client.begin_session(), params(number)),
                _ => (client.sessionless("tools/call", Some("request_approval")), sessionless(params(number))),
            };
            thread::spawn(move || client.post(&request(9, "tools/call", params)))
        })
        .collect();
    place.wait_gates(8);
    assert_eq!(gateway.stop().code, Some(0));
    for reply in replies {
        let reply = reply.join().unwrap();
        let sent = message(&reply);
        assert_eq!((reply.status, &sent["id"], &sent["error"]["code"]), (200, &json!(9), &json!(-32603)), "{reply:?}");
    }
    let _gateway = GatewayServer::start(&place);
    assert_eq!(place.pending_gates().len(), 8, "the requests stay pending");
}

#[test]
fn a_further_session_ends_an_idle_one_and_never_one_whose_call_waits() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let client = McpHttp::new(&place, &gateway, "ci", "call");
    let first = client.begin_session();
    thread::scope(|scope| {
        let params = json!({ "name": "request_approval", "arguments": { "action": "wait" } });
        let waiting = scope.spawn(|| first.post(&request(1, "tools/call", params)));
        let gate = place.wait_gate();
        let idle = client.begin_session();
        for _ in 0..63 {
            client.begin_session();
        }
        assert_eq!(idle.post(&request(1, "ping", json!({}))).status, 404);
        place.allow_gate(&gate);
        let reply = message(&waiting.join().unwrap());
        assert_eq!(reply["result"]["structuredContent"]["decision"], "allow", "{reply}");
    });
}
