//! Commands in the background: their ends are reported in order, once, through crashes.

use serde_json::{Value, json};

use crate::{
    fake_gateway::{FakeConnection, FakeGateway},
    node_process::NodeFixture,
};

/// Waits for the next event, without an answer.
fn next_event(line: &mut FakeConnection) -> Value {
    line.next_request("node.exec.event")
}

/// Waits for the next event, and acknowledges it.
fn acknowledge_event(line: &mut FakeConnection) -> Value {
    let request = next_event(line);
    line.answer(&request, json!({ "ok": true }));
    request["params"].clone()
}

fn start_in_background(line: &mut FakeConnection, call: &str, command: &str) -> String {
    let begun = line.call(call, "Bash", json!({ "command": command, "background": true }));
    assert_eq!(begun["status"], "running");
    begun["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn the_events_of_a_command_follow_its_result() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (_node, mut line) = place.start_connected(&gateway);
    let command = json!({ "command": "read -r line; echo \"got $line\"; exit 4", "background": true });
    line.invoke("c1", "Bash", command);
    let result = line.result("c1");
    let id = result["params"]["result"]["sessionId"].as_str().unwrap().to_owned();
    // No event of it comes before the gateway has taken the result that names it.
    assert_eq!(line.unread_frames(), Vec::<Value>::new());
    line.answer(&result, json!({ "ok": true }));
    let started = next_event(&mut line);
    assert_eq!(
        started["params"],
        json!({ "eventId": format!("{id}-started"), "sessionId": id, "event": "started", "callId": "c1", "startedAt": result["params"]["result"]["startedAt"] })
    );
    line.call("c2", "Process", json!({ "action": "submit", "sessionId": id, "data": "it" }));
    // The next one waits until the one before is acknowledged.
    assert_eq!(line.unread_frames(), Vec::<Value>::new());
    line.answer(&started, json!({ "ok": true }));
    let ended = acknowledge_event(&mut line);
    assert_eq!(
        (&ended["event"], &ended["exitCode"], &ended["outputTail"], &ended["eventId"]),
        (&json!("failed"), &json!(4), &json!("got it\n"), &json!(format!("{id}-ended")))
    );
    assert!(ended["endedAt"].as_u64() >= ended["startedAt"].as_u64());
    let polled = line.call("c3", "Process", json!({ "action": "poll", "sessionId": id }));
    assert_eq!((&polled["status"], &polled["running"]), (&json!("failed"), &json!(false)));
}

#[test]
fn events_wait_for_the_gateway_in_their_order() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, mut line) = place.start_connected(&gateway);
    let first = start_in_background(&mut line, "c1", "true");
    let second = start_in_background(&mut line, "c2", "exit 2");
    let early = next_event(&mut line);
    assert_eq!(early["params"]["eventId"], format!("{first}-started"));
    // Without an acknowledgement it comes again, over the next connection and in the next process.
    drop(line);
    let mut line = gateway.accept();
    let again = next_event(&mut line);
    assert_eq!(again["params"], early["params"]);
    line.refuse(&again, 500, "not recorded");
    assert_eq!(next_event(&mut line)["params"], early["params"]);
    node.kill();
    let (_node, mut line) = place.start_connected(&gateway);
    let mut of: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for _ in 0..4 {
        let event = acknowledge_event(&mut line);
        let session = event["sessionId"].as_str().unwrap().to_owned();
        of.entry(session).or_default().push(event["event"].as_str().unwrap().to_owned());
    }
    let want =
        [(first, "finished"), (second, "failed")].map(|(id, end)| (id, vec!["started".to_owned(), end.to_owned()]));
    assert_eq!(of, want.into_iter().collect());
    line.call("c9", "Glob", json!({ "pattern": "*" }));
    assert_eq!(line.unread_frames(), Vec::<Value>::new());
}

#[test]
fn a_command_that_died_with_the_process_is_reported() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (node, mut line) = place.start_connected(&gateway);
    let id = start_in_background(&mut line, "c1", "sleep 600");
    assert_eq!(acknowledge_event(&mut line)["event"], "started");
    // Its answer to this shows that it has noted that.
    line.call("c0", "Glob", json!({ "pattern": "*" }));
    node.kill();
    let (_node, mut line) = place.start_connected(&gateway);
    let ended = acknowledge_event(&mut line);
    assert_eq!(
        (&ended["sessionId"], &ended["event"], &ended["signal"], &ended["callId"]),
        (&json!(id), &json!("failed"), &json!("SIG9"), &json!("c1"))
    );
    let polled = line.call("c2", "Process", json!({ "action": "poll", "sessionId": id }));
    assert_eq!(polled["error"], format!("No session found for {id}"));
}

#[test]
fn a_command_that_is_ended_or_takes_too_long_says_so() {
    let (place, gateway) = (NodeFixture::new(), FakeGateway::start());
    let (mut node, mut line) = place.start_connected(&gateway);
    let late = line.call("c1", "Bash", json!({ "command": "sleep 600", "background": true, "timeout": 50 }));
    assert_eq!(acknowledge_event(&mut line)["event"], "started");
    let ended = acknowledge_event(&mut line);
    assert_eq!(
        (&ended["sessionId"], &ended["event"], &ended["signal"]),
        (&late["sessionId"], &json!("timed_out"), &json!("SIG15"))
    );
    let id = start_in_background(&mut line, "c2", "sleep 600");
    assert_eq!(acknowledge_event(&mut line)["event"], "started");
    line.call("c3", "Process", json!({ "action": "kill", "sessionId": id }));
    let ended = acknowledge_event(&mut line);
    assert_eq!((&ended["event"], &ended["signal"]), (&json!("failed"), &json!("SIG15")));
    // A node that is stopped reports the commands that it ended, if the gateway is there.
    let id = start_in_background(&mut line, "c4", "sleep 600");
    assert_eq!(acknowledge_event(&mut line)["event"], "started");
    node.terminate();
    let ended = acknowledge_event(&mut line);
    assert_eq!((&ended["sessionId"], &ended["event"]), (&json!(id), &json!("failed")));
    assert_eq!(node.end().code, Some(0));
}
