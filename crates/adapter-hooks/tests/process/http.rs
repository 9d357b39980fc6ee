//! Hooks over HTTP.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
};

use countersign_testkit::process::{GatewayFixture, GatewayServer, http::HttpClient};
use serde_json::{Value, json};

use crate::hook_process::{claude_command, fixture};

/// Returns a client with a new token with this scope.
fn client_with(place: &GatewayFixture, gateway: &GatewayServer, name: &str, scope: &str) -> HttpClient {
    let added = place.run_as_person(&["tokens", "add", name, "--scope", scope, "--json"]);
    let token = added.json()["token"].as_str().unwrap().to_owned();
    HttpClient::new(&gateway.address).with_header("authorization", &format!("Bearer {token}"))
}

#[test]
fn a_hook_over_http_is_answered_with_the_same_document() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let client = client_with(&place, &gateway, "claude", "call");
    let post = |path: &str, body: &str| client.send_request("POST", path, body);
    for (command, word) in [("echo hi", "allow"), ("rm x", "deny")] {
        let reply = post("/hooks/claude", &claude_command(command).to_string());
        let document: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!((reply.status, &document["hookSpecificOutput"]["permissionDecision"]), (200, &json!(word)));
    }
    let late = post("/hooks/claude?wait=1", &claude_command("make").to_string());
    assert!(late.status == 200 && late.body.contains("is still open"), "{late:?}");
    let gate = place.wait_gates(1).remove(0);
    assert_eq!(gate["session"], "claude:5f0c@token:claude");
    place.allow_gate(gate["id"].as_str().unwrap());
    let again = post("/hooks/claude", &claude_command("make").to_string());
    assert!(again.body.contains("\"allow\""), "{again:?}");
    let once_more = post("/hooks/claude?wait=1", &claude_command("make").to_string());
    assert!(once_more.body.contains("is still open"), "a decision is taken once: {once_more:?}");
}

#[test]
fn whatever_is_no_hook_of_a_known_sender_is_refused() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let input = claude_command("echo hi").to_string();
    let known = client_with(&place, &gateway, "claude", "call");
    let reader = client_with(&place, &gateway, "reader", "read");
    let nobody = HttpClient::new(&gateway.address);
    for (client, path, body, status) in [
        (&nobody, "/hooks/claude", input.as_str(), 401),
        (&reader, "/hooks/claude", input.as_str(), 403),
        (&known, "/hooks/claude", "", 400),
        (&known, "/hooks/claude", "[]", 400),
        (&known, "/hooks/claude?wait=x", input.as_str(), 400),
        (&known, "/hooks/claude?allow=1", input.as_str(), 400),
        (&known, "/hooks/codex", input.as_str(), 404),
    ] {
        let reply = client.send_request("POST", path, body);
        assert_eq!(reply.status, status, "{path} {reply:?}");
        assert!(!reply.body.contains("permissionDecision"), "{reply:?}");
    }
}

#[test]
fn an_input_that_breaks_off_is_not_called_too_large() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let added = place.run_as_person(&["tokens", "add", "claude", "--scope", "call", "--json"]);
    let token = added.json()["token"].as_str().unwrap().to_owned();
    let mut stream = TcpStream::connect(&gateway.address).unwrap();
    let head = format!(
        "POST /hooks/claude HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n{{",
        gateway.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    assert!(!reply.contains("413") && !reply.contains("larger"), "{reply}");
    assert!(reply.is_empty() || reply.contains(" 400 ") && reply.contains("broke off"), "{reply}");
}

#[test]
fn the_token_of_a_hook_decides_nothing_about_its_calls() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let added = place.run_as_person(&["tokens", "add", "both", "--scope", "call,answer,read", "--json"]);
    let token = added.json()["token"].as_str().unwrap().to_owned();
    let client = HttpClient::new(&gateway.address).with_header("authorization", &format!("Bearer {token}"));
    client.send_request("POST", "/hooks/claude?wait=1", &claude_command("make").to_string());
    let gate = place.wait_gate();
    let reply = client.send_request("POST", &format!("/api/v1/gates/{gate}/allow"), "{}");
    assert!(reply.status >= 400, "{reply:?}");
    assert_eq!(place.wait_gate(), gate);
}
