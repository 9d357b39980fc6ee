//! Table of methods and their callers.

use countersign_testkit::process::{
    GatewayFixture,
    gsv::{GsvPeer, error_body},
};
use serde_json::{Value, json};

/// Every method with the modes that may call it.
const TABLE: &str = "
tools.list client node
tool.result node
node.probe.result node
node.exec.event node
logs.result node
channel.inbound channel
chat.send client
config.get client
config.set client
tool.invoke client
tool.request client
logs.get client
sessions.list client
session.get client
session.stats client
session.reset client
session.patch client
session.compact client
session.history client
session.preview client
channels.list client
channel.start client
channel.stop client
channel.status client
channel.login client
channel.logout client
heartbeat.status client
heartbeat.start client
heartbeat.trigger client
cron.status client
cron.list client
cron.add client
cron.update client
cron.remove client
cron.run client
cron.runs client
pair.list client
pair.approve client
pair.reject client
skills.status client
skills.update client
workspace.list client
workspace.read client
workspace.write client
workspace.delete client
";

#[test]
fn each_method_is_for_its_modes_only() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut peers = [
        ("client", GsvPeer::connect_client(&gateway, "c")),
        ("node", GsvPeer::connect_node(&gateway, "n", &["A"])),
        ("channel", GsvPeer::connect_channel(&gateway, "wx", "a")),
    ];
    let rows: Vec<Vec<&str>> =
        TABLE.lines().map(|row| row.split(' ').collect()).filter(|row: &Vec<_>| row.len() > 1).collect();
    assert_eq!(rows.len(), 45);
    for row in rows {
        let method = row[0];
        for (mode, peer) in &mut peers {
            // A log request that no node has to answer.
            let answer = peer.call_method(method, json!({ "lines": 0 }));
            let refused = error_body(403, &format!("Method {method} not allowed for mode"));
            assert_eq!(answer["error"] == refused, !row[1..].contains(mode), "{method} of a {mode}: {answer}");
        }
    }
}

#[test]
fn every_method_answers_whatever_it_is_given_in_whole_numbers_and_words() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let odd = json!({ "sessionKey": 5, "message": [], "path": {}, "channel": 3, "id": [], "schedule": "x", "tool": 4, "callId": {} });
    for params in [json!("text"), json!([]), json!(7), Value::Null, odd] {
        for method in TABLE.lines().filter_map(|row| row.split(' ').next()).filter(|method| !method.is_empty()) {
            let answer = peer.call_method(method, params.clone());
            let is_error = answer["error"]["code"].is_i64() && answer["error"]["message"].is_string();
            assert!(answer["ok"] == true || is_error, "{method} {params}: {answer}");
        }
    }
}

/// Checks the output of JavaScript for a text that was cut within a character.
#[test]
fn half_a_character_is_read_as_its_replacement() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let params = r#"{"path":"notes.md","content":"cut \ud83d"}"#;
    peer.send_frame(format!(r#"{{"type":"req","id":"w","method":"workspace.write","params":{params}}}"#));
    assert_eq!(peer.wait_response("w")["ok"], true);
    assert_eq!(peer.expect_ok("workspace.read", json!({ "path": "notes.md" }))["content"], "cut \u{fffd}");
}

/// Sends values that take many times the room of their text.
#[test]
fn more_values_than_a_gateway_has_room_for_are_refused_before_they_are_read() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let lists = "[],".repeat(1 << 20);
    peer.send_frame(format!(r#"{{"type":"req","id":"m","method":"tools.list","params":{{"a":[{lists}0]}}}}"#));
    let refused = peer.wait_response("m");
    let why = "Too many values: read, they take more than 256 MiB";
    assert_eq!((&refused["error"]["code"], &refused["error"]["message"]), (&json!(400), &json!(why)));
    let text = "[],".repeat(1 << 20);
    peer.expect_ok("workspace.write", json!({ "path": "notes.md", "content": text }));
}
