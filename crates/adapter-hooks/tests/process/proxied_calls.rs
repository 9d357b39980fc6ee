//! Calls of agents behind a proxy, on the control socket: rules decide, people at any surface decide, and decisions survive both sides.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
};

use countersign_testkit::process::{GatewayFixture, GatewayServer};
use serde_json::{Value, json};

use crate::hook_process::fixture;

/// Connection of a proxy.
struct ProxyConnection(BufReader<UnixStream>);

impl ProxyConnection {
    fn open(place: &GatewayFixture, line: &Value) -> Self {
        let stream = UnixStream::connect(place.data_dir().join("countersign.sock")).unwrap();
        let mut opened = Self(BufReader::new(stream));
        opened.send(line);
        opened
    }

    fn send(&mut self, line: &Value) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    /// Reads the next line; none at the end.
    fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(length) if length > 0 => Some(serde_json::from_str(&line).unwrap()),
            _ => None,
        }
    }

    fn read_decision(&mut self) -> Value {
        self.read().unwrap()["ok"].clone()
    }
}

fn call(command: &str) -> Value {
    json!({
        "ask": "proxied_call", "program": "acp", "session": "s-1", "call": "c-1", "tool": "bash",
        "arguments": { "command": command }, "cwd": "/srv/work",
    })
}

fn ran(command: &str) -> Value {
    let mut ran = call(command);
    ran["ask"] = json!("proxied_run");
    ran
}

fn decide(place: &GatewayFixture, line: &Value) -> Value {
    ProxyConnection::open(place, line).read_decision()
}

#[test]
fn rules_decide_without_a_gate() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    assert_eq!(decide(&place, &call("echo hi")), json!({ "decision": "allow" }));
    let denied = decide(&place, &call("rm -rf x"));
    assert_eq!(denied["decision"], "deny");
    assert!(denied["reason"].as_str().unwrap().contains("Denied by policy"), "{denied}");
    let wrong = decide(
        &place,
        &json!({
            "ask": "proxied_call", "program": "vim", "session": "s", "tool": "bash", "arguments": {}, "cwd": "/",
        }),
    );
    assert_eq!(wrong["reason"], "unknown program \"vim\": expected one of acp, codex, opencode");
    place.verify_log();
}

#[test]
fn the_first_answer_at_any_surface_counts() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    for (number, at_proxy, allow) in [(0, true, true), (1, true, false), (2, false, true), (3, false, false)] {
        let mut proxy = ProxyConnection::open(&place, &call(&format!("make {number}")));
        let waiting = proxy.read().unwrap()["ok"].clone();
        let gate = waiting["gate"].as_str().unwrap().to_owned();
        assert!(waiting["title"].as_str().is_some_and(|title| !title.is_empty()), "{waiting}");
        // An answer to another gate, or none at all, changes nothing.
        proxy.send(&json!({ "answer": { "gate": "gate_x", "allow": true, "surface": "editor" } }));
        proxy.send(&json!({ "answer": "yes" }));
        if at_proxy {
            proxy.send(&json!({ "answer": { "gate": gate, "allow": allow, "surface": "editor" } }));
        } else if allow {
            place.allow_gate(&gate);
        } else {
            place.deny_gate(&gate);
        }
        let decided = proxy.read_decision();
        assert_eq!(decided["decision"], if allow { "allow" } else { "deny" }, "{decided}");
        assert_eq!(proxy.read(), None, "one decision ends the connection");
    }
    place.verify_log();
}

#[test]
fn a_decision_that_no_proxy_got_is_taken_once_by_the_same_call() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let mut gone = ProxyConnection::open(&place, &call("make"));
    let gate = gone.read().unwrap()["ok"]["gate"].as_str().unwrap().to_owned();
    gone.0.get_ref().shutdown(Shutdown::Both).unwrap();
    place.allow_gate(&gate);
    gateway.kill();
    let _gateway = GatewayServer::start(&place);
    assert_eq!(decide(&place, &call("make")), json!({ "decision": "allow" }));
    // The second time a person is asked again.
    let mut again = ProxyConnection::open(&place, &call("make"));
    assert!(again.read().unwrap()["ok"]["gate"].as_str().is_some_and(|new| new != gate));
    place.verify_log();
}

#[test]
fn a_gateway_that_ends_while_a_call_waits_says_nothing() {
    let place = fixture();
    let gateway = GatewayServer::start(&place);
    let mut proxy = ProxyConnection::open(&place, &call("make"));
    assert!(proxy.read().unwrap()["ok"]["gate"].is_string());
    gateway.kill();
    assert_eq!(proxy.read(), None);
    let mut gateway = GatewayServer::start(&place);
    let mut proxy = ProxyConnection::open(&place, &call("make"));
    assert!(proxy.read().unwrap()["ok"]["gate"].is_string());
    gateway.stop();
    assert_eq!(proxy.read(), None, "an orderly end is no denial");
    let log = gateway.log_text();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_call_that_ran_in_another_form_is_an_incident() {
    let place = fixture();
    let _gateway = GatewayServer::start(&place);
    decide(&place, &call("echo hi"));
    assert_eq!(decide(&place, &ran("echo hi")), json!({}));
    assert!(place.pending_gates().is_empty());
    assert_eq!(decide(&place, &ran("echo other")), json!({}));
    let incident = place.wait_gates(1).remove(0);
    assert!(incident["subject"].as_str().unwrap().contains("echo other"), "{incident}");
    place.verify_log();
}
