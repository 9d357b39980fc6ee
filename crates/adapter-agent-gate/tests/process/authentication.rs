//! Authentication: the first frame, its failures, and the connections that are refused before it.

use std::thread;

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, Latch, RULES,
    agent_gate::{AgentClient, AgentSocketEvent, error_body},
    service::ServiceBehavior,
};
use serde_json::{Value, json};

fn error_reply(id: Value, code: i64, message: &str) -> AgentSocketEvent {
    AgentSocketEvent::Frame(json!({ "jsonrpc": "2.0", "error": error_body(code, message), "id": id }))
}

#[test]
fn a_connection_without_a_token_gets_a_reason_and_is_closed_with_1000() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let invalid = "Invalid request: ";
    for (case, first, want) in [
        ("not JSON", "{{{", error_reply(Value::Null, -32700, "Parse error")),
        ("another method", r#"{"method":"list_tools","id":7}"#, error_reply(7.into(), -32005, "Not authenticated")),
        ("an unknown method", r#"{"method":"nope","id":"x"}"#, error_reply("x".into(), -32005, "Not authenticated")),
        (
            "a request",
            r#"{"method":"tool_request","params":{"tool":"look"},"id":1.5}"#,
            error_reply(json!(1.5), -32005, "Not authenticated"),
        ),
        (
            "a wrong token",
            r#"{"method":"auth","params":{"token":"wrong"},"id":"a"}"#,
            error_reply("a".into(), -32005, "Invalid token"),
        ),
        (
            "an empty token",
            r#"{"method":"auth","params":{"token":""},"id":1}"#,
            error_reply(1.into(), -32005, "Invalid token"),
        ),
        ("no token", r#"{"method":"auth","params":{},"id":1}"#, error_reply(1.into(), -32005, "Invalid token")),
        ("no parameters", r#"{"method":"auth","id":1}"#, error_reply(1.into(), -32005, "Invalid token")),
        (
            "a number for a token",
            r#"{"method":"auth","params":{"token":5}}"#,
            error_reply(Value::Null, -32005, "Invalid token"),
        ),
        ("a list", "[]", error_reply(Value::Null, -32600, &format!("{invalid}not an object"))),
        ("a number", "5", error_reply(Value::Null, -32600, &format!("{invalid}not an object"))),
    ] {
        let mut agent = AgentClient::connect(&gateway);
        agent.send_frame(first);
        assert_eq!(agent.next(), want, "{case}");
        assert_eq!(agent.next(), AgentSocketEvent::Closed(1000, String::new()), "{case}");
    }
}

#[test]
fn parameters_that_are_null_show_no_token() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect(&gateway);
    let reply = agent.exchange_frame(json!({ "method": "auth", "params": null, "id": 1 }));
    assert!([-32600, -32005].map(Value::from).contains(&reply["error"]["code"]), "{reply}");
    assert_eq!(agent.next(), AgentSocketEvent::Closed(1000, String::new()));
}

#[test]
fn a_token_authenticates_once_in_text_or_binary() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect(&gateway);
    let auth = json!({ "method": "auth", "params": { "token": AGENT_TOKEN } });
    agent.send_binary(auth.to_string());
    let want = json!({ "jsonrpc": "2.0", "result": { "status": "authenticated" }, "id": null });
    assert_eq!(agent.next(), AgentSocketEvent::Frame(want));
    agent.send_frame(json!({ "method": "auth", "params": { "token": AGENT_TOKEN }, "id": 2 }));
    assert_eq!(agent.next(), error_reply(2.into(), -32601, "Unknown method: auth"));
    agent.send_binary(json!({ "method": "list_tools", "id": 3 }).to_string());
    assert!(matches!(agent.next(), AgentSocketEvent::Frame(frame) if frame["id"] == 3));
}

#[test]
fn a_second_connection_of_an_agent_that_lives_is_closed_with_4000() {
    let place = GatewayFixture::new();
    let latch = Latch::default();
    place.service.set_behavior("/look/late", ServiceBehavior::Late(latch.clone()));
    let gateway = GatewayServer::start(&place);
    let mut first = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    first.request_tool("late", "look", json!({ "thing": "late" }));
    // A client that waits for a reply answers pings on the way.
    let first = thread::spawn(move || {
        let reply = first.wait_reply(&json!("late"));
        (first, reply)
    });
    for _ in 0..2 {
        let mut second = AgentClient::connect(&gateway);
        second.send_frame(json!({ "method": "auth", "params": { "token": AGENT_TOKEN }, "id": 1 }));
        assert_eq!(second.next(), AgentSocketEvent::Closed(4000, "Another agent is already connected".to_owned()));
    }
    // Another agent is not affected, and the first one is still served.
    let mut other = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    assert_eq!(other.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    latch.open();
    let (mut first, reply) = first.join().unwrap();
    assert_eq!(reply["result"]["status"], "executed");
    assert_eq!(first.call_tool(1, "look", json!({ "thing": "b" }))["status"], "executed");
}

/// Opens the connection that replaces `first`, which is silent: attempts within a second are refused.
fn successor(gateway: &GatewayServer) -> AgentClient {
    loop {
        let mut second = AgentClient::connect(gateway);
        second.send_frame(json!({ "method": "auth", "params": { "token": AGENT_TOKEN }, "id": 1 }));
        match second.next() {
            AgentSocketEvent::Closed(4000, _) => {}
            AgentSocketEvent::Frame(frame) => {
                assert_eq!(frame["result"]["status"], "authenticated");
                return second;
            }
            AgentSocketEvent::Closed(..) | AgentSocketEvent::Gone => panic!("neither served nor refused"),
        }
    }
}

#[test]
fn a_connection_that_answers_no_ping_gives_its_place_up() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut first = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut second = successor(&gateway);
    assert_eq!(second.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    assert_eq!(first.next(), AgentSocketEvent::Gone);
}

#[test]
fn unsolicited_pongs_do_not_extend_a_connection() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut first = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    first.send_pong(b"");
    first.send_pong(&[0; 8]);
    let mut second = successor(&gateway);
    assert_eq!(second.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
}

#[test]
fn failed_tokens_of_one_address_are_limited_and_the_right_one_is_not() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_failed_auth_per_minute: 3 }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for _ in 0..3 {
        assert_eq!(AgentClient::connect(&gateway).authenticate("wrong")["error"], error_body(-32005, "Invalid token"));
    }
    let mut bad = AgentClient::connect(&gateway);
    assert_eq!(bad.authenticate("wrong")["error"], error_body(-32006, "Too many failed authentications"));
    assert_eq!(bad.next(), AgentSocketEvent::Closed(1000, String::new()));
    // Another agent behind the same address is admitted, and connected agents stay.
    let mut good = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    assert_eq!(good.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
}

#[test]
fn foreign_origins_and_names_are_refused_before_the_upgrade() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    for (case, header, value, want) in [
        ("a foreign page", "origin", "https://evil.example", Some(403)),
        ("a page of nowhere", "origin", "null", Some(403)),
        ("its own page", "origin", "http://localhost:1", None),
        ("another name", "host", "evil.example", Some(403)),
        ("a name of loopback", "host", "localhost:9", None),
    ] {
        let got = AgentClient::connect_with(&gateway, &[(header, value)]).err();
        assert_eq!(got, want, "{case}");
    }
}
