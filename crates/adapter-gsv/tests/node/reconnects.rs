//! Connections that break, and processes that die: no call runs twice, and no result is lost.

use countersign_testkit::process::eventually;
use serde_json::{Value, json};

use crate::{fake_gateway::FakeGateway, node_process::NodeFixture};

/// Returns a command that reports its start, and waits for a file.
fn held() -> Value {
    json!({ "command": "echo began >> marks; while [ ! -e go ]; do sleep 0.02; done; echo ended >> marks" })
}

fn wait_for_start(place: &NodeFixture) {
    eventually("the command", || {
        std::fs::read_to_string(place.workspace_path("marks")).ok().filter(|marks| marks.starts_with("began\n"))
    });
}

#[test]
fn a_call_continues_while_disconnected_and_its_result_is_sent_on_request() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    line.invoke("c1", "Bash", held());
    wait_for_start(&place);
    drop(line);
    let mut line = gateway.accept();
    line.resume("c1");
    place.write("work/go", "");
    assert_eq!(line.outcome("c1")["result"]["exitCode"], 0);
    drop(line);
    // Acknowledged or not, it is sent again, and no result comes without a request.
    let mut line = gateway.accept();
    assert_eq!(line.unread_frames(), Vec::<Value>::new());
    line.resume("c1");
    assert_eq!(line.outcome("c1")["result"]["exitCode"], 0);
    line.invoke("c1", "Bash", held());
    assert_eq!(line.outcome("c1")["result"]["exitCode"], 0);
    assert_eq!(place.read("work/marks"), "began\nended\n");
}

#[test]
fn a_result_that_the_gateway_did_not_take_outlives_a_kill() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, mut line) = place.start_connected(&gateway);
    line.invoke("c1", "Bash", json!({ "command": "echo once >> marks; cat marks" }));
    let first = line.result("c1")["params"].clone();
    node.kill();
    let (_node, mut line) = place.start_connected(&gateway);
    line.resume("c1");
    assert_eq!(line.outcome("c1"), first);
    assert_eq!(place.read("work/marks"), "once\n");
}

#[test]
fn a_call_that_broke_off_with_the_process_is_unknown_and_never_runs_again() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, mut line) = place.start_connected(&gateway);
    line.invoke("c1", "Bash", held());
    wait_for_start(&place);
    node.kill();
    place.write("work/go", "");
    let (node, mut line) = place.start_connected(&gateway);
    node.wait_for_notice("the previous process of this node was interrupted");
    for attempt in 0..2 {
        match attempt {
            0 => line.resume("c1"),
            _ => line.invoke("c1", "Bash", held()),
        }
        let error = "The node broke off while this ran, and does not know what came of it";
        assert_eq!(line.outcome("c1"), json!({ "callId": "c1", "error": error, "fate": "unknown" }));
    }
    assert_eq!(place.read("work/marks"), "began\n");
}

#[test]
fn a_call_that_never_came_is_not_begun_and_never_will_be() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, mut line) = place.start_connected(&gateway);
    line.resume("c1");
    assert_eq!(line.outcome("c1"), json!({ "callId": "c1", "fate": "not_begun" }));
    node.kill();
    let (_node, mut line) = place.start_connected(&gateway);
    line.invoke("c1", "Write", json!({ "path": "marks", "content": "" }));
    assert_eq!(line.outcome("c1"), json!({ "callId": "c1", "fate": "not_begun" }));
    assert!(!std::fs::exists(place.workspace_path("marks")).unwrap());
}

#[test]
fn a_result_that_cannot_be_taken_now_is_sent_again() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    line.invoke("c1", "Glob", json!({ "pattern": "*" }));
    let first = line.result("c1");
    line.refuse(&first, 500, "not recorded");
    let second = line.result("c1");
    assert_eq!(first["params"], second["params"]);
    line.refuse(&second, 404, "Unknown callId");
    line.call("c2", "Glob", json!({ "pattern": "*" }));
    assert_eq!(line.unread_frames(), Vec::<Value>::new());
}

#[test]
fn a_node_comes_back_by_itself() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, line) = place.start_connected(&gateway);
    let hello = line.hello.clone();
    line.close(1012, "restarting");
    node.wait_for_notice("the gateway is stopping or restarting; retrying in");
    let line = gateway.accept();
    assert_eq!(line.hello, hello);
    drop(line);
    node.wait_for_notice("the connection broke");
    // A token that is wrong later is no reason to give up: an operator may correct it.
    gateway.refuse(401, "Unauthorized: invalid or missing token");
    node.wait_for_notice("the gateway rejected the token");
    place.write("token", "tok-new\n");
    assert_eq!(gateway.accept().hello["auth"], json!({ "token": "tok-new" }));
}

#[test]
fn a_node_whose_place_is_taken_says_so() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, line) = place.start_connected(&gateway);
    line.close(1000, "Replaced by newer node connection");
    node.wait_for_notice("another node with this id has connected; retrying in 60.0 s");
}

#[test]
fn a_stopped_node_reports_the_calls_that_it_stopped() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (mut node, mut line) = place.start_connected(&gateway);
    line.invoke("c1", "Bash", held());
    wait_for_start(&place);
    node.terminate();
    let outcome = line.outcome("c1");
    assert_eq!((&outcome["result"]["status"], &outcome["result"]["signal"]), (&json!("failed"), &json!("SIG15")));
    assert_eq!(line.end().1, Some((1000, "the node ends".to_owned())));
    let end = node.end();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(place.read("work/marks"), "began\n");
    let (_node, mut line) = place.start_connected(&gateway);
    line.resume("c1");
    assert_eq!(line.outcome("c1"), outcome);
}
