//! Tools of nodes in runs: parallel calls, approvals, disconnects, and executions that continue after a result.

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, Latch, eventually,
    gsv::GsvPeer,
    provider::{ProviderReply, ReplyPart, call_part, text_part, text_reply},
};
use serde_json::{Value, json};

use crate::{
    chat::{message_text, send, talk},
    nodes::{connect_journaling_node, next_invocation},
};

/// Rules that allow everything except dangerous calls.
const RULES: &str = "
rules:
  - { pattern: '*Danger*', action: ask }
defaults:
  - { pattern: '*', action: allow }
";

fn open() -> GatewayFixture {
    GatewayOptions::for_peers().with_rules(RULES).create()
}

/// Returns the result of a call, as the model reads it in its request of this number.
fn result(scene: &GatewayFixture, number: usize, call: &str) -> String {
    scene.provider.wait_request_when(number, |request| request.call_result(call).is_some()).call_result(call).unwrap()
}

fn send_result(node: &mut GsvPeer, call: &Value, result: Value) -> Value {
    node.expect_ok("tool.result", json!({ "callId": call["callId"], "result": result }))
}

fn final_event(peer: &mut GsvPeer, run: &str) -> Value {
    peer.wait_event("chat", &json!({ "runId": run, "state": "final" }))
}

#[test]
fn calls_of_a_message_are_with_their_nodes_side_by_side_and_read_in_order() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Meet", "Fail"]);
    let calls = vec![
        call_part("c0", "box__Meet", &json!({ "n": 1 })),
        call_part("c1", "box__Fail", &json!({})),
        call_part("c2", "box__Meet", &json!({ "n": 2 })),
        call_part("c3", "gone__X", &json!({})),
    ];
    scene.provider.script_replies([ProviderReply::new(calls), text_reply("all checked")]);
    send(&mut client, "s", "go", "r-1");
    // They begin in parallel, in any order.
    let mut both = [next_invocation(&mut node, "Meet"), next_invocation(&mut node, "Meet")];
    both.sort_by_key(|call| call["args"]["n"].as_u64());
    let [first, second] = both;
    assert_eq!((&first["args"], &second["args"]), (&json!({ "n": 1 }), &json!({ "n": 2 })));
    let third = next_invocation(&mut node, "Fail");
    send_result(&mut node, &second, json!({ "got": 2 }));
    send_result(&mut node, &first, json!("plain"));
    node.expect_ok("tool.result", json!({ "callId": third["callId"], "error": "boom" }));
    assert_eq!(message_text(&final_event(&mut client, "r-1")), "all checked");
    let results = ["c0", "c1", "c2", "c3"].map(|call| result(&scene, 1, call));
    assert_eq!(results, ["plain", "Error: boom", r#"{"got":2}"#, "Error: No node provides tool: gone__X"]);
    let preview = client.expect_ok("session.preview", json!({ "sessionKey": "s" }));
    let failed = &preview["messages"][3];
    assert_eq!((&failed["toolName"], &failed["isError"]), (&json!("box__Fail"), &json!(true)));
}

#[test]
fn a_run_has_the_tools_of_the_nodes_that_are_there() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Echo"]);
    talk(&mut client, "s", "one", "r-1");
    let offers = |number: usize| scene.provider.wait_request(number).body["tools"].to_string().contains("box__Echo");
    assert!(offers(0));
    drop(node);
    eventually("its tools are gone", || {
        let listed = client.expect_ok("tools.list", json!({})).to_string();
        (!listed.contains("box__Echo")).then_some(())
    });
    talk(&mut client, "s", "two", "r-2");
    assert!(!offers(1));
    node = GsvPeer::connect_node(&gateway, "box", &["Echo"]);
    talk(&mut client, "s", "three", "r-3");
    assert!(offers(2));
    drop(node);
}

#[test]
fn a_node_that_is_lost_in_a_run_leaves_an_error_and_the_run_goes_on() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Once"]);
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part("c0", "box__Once", &json!({}))]), text_reply("went on")]);
    send(&mut client, "s", "go", "r-1");
    let lost = next_invocation(&mut node, "Once");
    drop(node);
    assert_eq!(message_text(&final_event(&mut client, "r-1")), "went on");
    let output = result(&scene, 1, "c0");
    assert!(output.starts_with("Error: Node disconnected: box."), "{output}");
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Once"]);
    assert_eq!(send_result(&mut node, &lost, json!("late")), json!({ "ok": true, "dropped": true }));
}

/// Starts a run whose call is with a node that keeps a journal.
fn with_its_node(scene: &GatewayFixture) -> (GatewayServer, GsvPeer, GsvPeer, Value) {
    let (gateway, mut client) = scene.start_peer();
    let mut node = connect_journaling_node(&gateway, "box", &["Once"]);
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part("c0", "box__Once", &json!({}))]), text_reply("went on")]);
    send(&mut client, "s", "go", "r-1");
    let invocation = next_invocation(&mut node, "Once");
    (gateway, client, node, invocation)
}

#[test]
fn a_run_waits_for_the_journal_of_its_node() {
    for (outcome, want) in [
        (json!({ "result": "from the journal" }), "from the journal"),
        (json!({ "error": "it failed" }), "Error: it failed"),
        (json!({ "fate": "not_begun", "error": "it never came" }), "Error: it never came"),
        (json!({ "fate": "unknown", "error": "the node died" }), "Error: the node died"),
    ] {
        let scene = open();
        let (gateway, mut client, node, invocation) = with_its_node(&scene);
        drop(node);
        let mut node = connect_journaling_node(&gateway, "box", &["Once"]);
        assert_eq!(node.wait_event("tool.resume", &json!({})), json!({ "callId": invocation["callId"] }));
        let mut params = outcome.clone();
        params["callId"] = invocation["callId"].clone();
        assert_eq!(node.expect_ok("tool.result", params), json!({ "ok": true }), "{outcome}");
        assert_eq!(message_text(&final_event(&mut client, "r-1")), "went on", "{outcome}");
        assert_eq!(result(&scene, 1, "c0"), want);
        assert_eq!(node.take_early_frames(), Vec::<Value>::new(), "nothing is sent twice");
        scene.verify_log();
    }
}

#[test]
fn gateway_and_node_die_with_a_call_in_hand_and_it_is_done_once() {
    let scene = open();
    let (gateway, _client, node, invocation) = with_its_node(&scene);
    gateway.kill();
    drop(node);
    let gateway = scene.start();
    let mut client = GsvPeer::connect_client(&gateway, "again");
    client.expect_ok("session.get", json!({ "sessionKey": "s" }));
    let mut node = connect_journaling_node(&gateway, "box", &["Once"]);
    assert_eq!(node.wait_event("tool.resume", &json!({})), json!({ "callId": invocation["callId"] }));
    assert_eq!(send_result(&mut node, &invocation, json!("was done")), json!({ "ok": true }));
    assert_eq!(message_text(&final_event(&mut client, "r-1")), "went on");
    assert_eq!(result(&scene, 1, "c0"), "was done");
    assert_eq!(node.take_early_frames(), Vec::<Value>::new());
    scene.verify_log();
}

#[test]
fn a_call_that_a_person_allowed_goes_to_its_node_and_no_other_does() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Danger"]);
    let calls = vec![call_part("c0", "box__Danger", &json!({ "path": "/etc/passwd" }))];
    scene.provider.script_replies([ProviderReply::new(calls), text_reply("did it")]);
    let card = talk(&mut client, "s", "please", "r-1");
    let shown = message_text(&card);
    assert!(shown.contains("box__Danger") && shown.contains("/etc/passwd"), "{shown}");
    // The gateway's own folder is not that of the node.
    assert!(shown.contains("\non node: box\n") && !shown.contains("in folder"), "{shown}");
    assert_eq!(node.caught_up_node(), Vec::<Value>::new());
    send(&mut client, "s", "yes", "r-2");
    let invocation = next_invocation(&mut node, "Danger");
    assert_eq!(invocation["args"], json!({ "path": "/etc/passwd" }));
    send_result(&mut node, &invocation, json!("ok"));
    assert_eq!(message_text(&final_event(&mut client, "r-2")), "did it");
}

#[test]
fn a_line_for_a_nodes_shell_is_allowed_command_by_command() {
    let scene =
        GatewayOptions::for_peers().with_rules("rules:\n  - { pattern: 'box__Bash(ls*)', action: allow }\n").create();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Bash"]);
    let calls = |command: &str| vec![call_part("c0", "box__Bash", &json!({ "command": command }))];
    scene.provider.script_replies([ProviderReply::new(calls("ls -l; ls")), text_reply("looked")]);
    send(&mut client, "s", "look", "r-1");
    let invocation = next_invocation(&mut node, "Bash");
    assert_eq!(invocation["args"], json!({ "command": "ls -l; ls" }));
    send_result(&mut node, &invocation, json!("ok"));
    assert_eq!(message_text(&final_event(&mut client, "r-1")), "looked");
    for (number, command) in ["ls; touch x", "ls $(touch x)"].into_iter().enumerate() {
        scene.provider.script_replies([ProviderReply::new(calls(command)), text_reply("did not")]);
        let card = talk(&mut client, "s", "more", &format!("r-2{number}"));
        let shown = message_text(&card);
        assert!(shown.contains("touch x"), "{shown}");
        assert_eq!(node.caught_up_node(), Vec::<Value>::new());
        assert_eq!(message_text(&talk(&mut client, "s", "no", &format!("r-3{number}"))), "did not");
    }
}

#[test]
fn a_node_that_says_nothing_is_not_waited_for() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    client.expect_ok("config.set", json!({ "path": "timeouts.toolMs", "value": 1000 }));
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part("c0", "box__Mute", &json!({}))]), text_reply("went on")]);
    send(&mut client, "s", "go", "r-1");
    let invocation = next_invocation(&mut node, "Mute");
    assert_eq!(message_text(&final_event(&mut client, "r-1")), "went on");
    assert_eq!(result(&scene, 1, "c0"), "Error: Tool execution timed out");
    assert_eq!(send_result(&mut node, &invocation, json!("late")), json!({ "ok": true, "dropped": true }));
}

#[test]
fn a_run_that_is_stopped_does_not_wait_for_its_node() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    scene.provider.script_replies([ProviderReply::new(vec![call_part("c0", "box__Mute", &json!({}))])]);
    send(&mut client, "s", "go", "r-1");
    let invocation = next_invocation(&mut node, "Mute");
    let stopped = client.expect_ok("chat.send", json!({ "sessionKey": "s", "message": "/stop" }));
    assert_eq!(stopped["response"], "Stopped run r-1, cancelled 1 pending tool(s).");
    let ended = client.wait_event("chat", &json!({ "runId": "r-1", "state": "error" }));
    assert_eq!(ended["error"], "Run cancelled by user");
    assert_eq!(send_result(&mut node, &invocation, json!("late")), json!({ "ok": true, "dropped": true }));
}

/// Starts a run that left a command running at its node; returns the id of the call that began it.
fn leaves_behind(scene: &GatewayFixture, client: &mut GsvPeer, node: &mut GsvPeer) -> Value {
    scene.provider.script_replies([
        ProviderReply::new(vec![call_part("c0", "box__Bash", &json!({ "command": "make" }))]),
        text_reply("it builds"),
    ]);
    send(client, "s", "build", "r-1");
    let invocation = next_invocation(node, "Bash");
    let running = json!({ "status": "running", "sessionId": "x-1", "pid": 7, "tail": "" });
    assert_eq!(send_result(node, &invocation, running), json!({ "ok": true }));
    assert_eq!(message_text(&final_event(client, "r-1")), "it builds");
    invocation["callId"].clone()
}

fn finished(id: &str) -> Value {
    json!({ "eventId": id, "sessionId": "x-1", "event": "finished", "exitCode": 0, "outputTail": "built", "startedAt": 1, "endedAt": 2 })
}

#[test]
fn the_end_of_what_a_run_left_working_begins_a_run_once() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Bash"]);
    let began = leaves_behind(&scene, &mut client, &mut node);
    // A node repeats an event that is not acknowledged, and holds back later ones.
    for odd in [json!({ "event": "melted" }), json!({ "event": 7 }), json!({}), json!({ "sessionId": "x-1" })] {
        assert_eq!(node.expect_ok("node.exec.event", odd.clone()), json!({ "ok": true, "dropped": true }), "{odd}");
    }
    let started = json!({ "eventId": "e-0", "sessionId": "x-1", "event": "started" });
    assert_eq!(node.expect_ok("node.exec.event", started), json!({ "ok": true }));
    scene.provider.script_replies([text_reply("it is built")]);
    assert_eq!(node.expect_ok("node.exec.event", finished("e-1")), json!({ "ok": true }));
    let last_event = client.wait_event("chat", &json!({ "state": "final" }));
    assert_eq!(message_text(&last_event), "it is built");
    let preview = client.expect_ok("session.preview", json!({ "sessionKey": "s", "limit": 2 }));
    let message = preview["messages"][0]["content"].as_str().unwrap();
    let (marker, event) = message.split_once('\n').unwrap();
    assert_eq!(marker, "System event: async_exec_completion");
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!(
        (&event["nodeId"], &event["outputTail"], &event["exitCode"], &event["callId"]),
        (&json!("box"), &json!("built"), &json!(0), &began)
    );
    // Another node may use the same id, and the same event is reported once, also over a restart.
    let count = scene.provider.request_count();
    let mut other = GsvPeer::connect_node(&gateway, "other", &["Bash"]);
    let unknown = other.send_request("node.exec.event", finished("e-1"));
    assert_eq!(node.expect_ok("node.exec.event", finished("e-1")), json!({ "ok": true }));
    gateway.kill();
    drop(unknown);
    let gateway = scene.start();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Bash"]);
    assert_eq!(node.expect_ok("node.exec.event", finished("e-1")), json!({ "ok": true }));
    let mut client = GsvPeer::connect_client(&gateway, "again");
    let stats = client.expect_ok("session.stats", json!({ "sessionKey": "s" }));
    assert_eq!((&stats["isProcessing"], &stats["queueSize"]), (&json!(false), &json!(0)));
    assert_eq!(scene.provider.request_count(), count);
    let nobodys = json!({ "eventId": "e-9", "sessionId": "x-9", "event": "failed" });
    assert_eq!(node.expect_ok("node.exec.event", nobodys), json!({ "ok": true, "dropped": true }));
}

#[test]
fn events_of_a_run_precede_messages_that_came_meanwhile() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Bash"]);
    leaves_behind(&scene, &mut client, &mut node);
    let latch = Latch::default();
    let held = ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("first")]);
    scene.provider.script_replies([held, text_reply("second"), text_reply("third")]);
    send(&mut client, "s", "one", "r-2");
    send(&mut client, "s", "two", "r-3");
    assert_eq!(node.expect_ok("node.exec.event", finished("e-1")), json!({ "ok": true }));
    latch.open();
    assert_eq!(message_text(&final_event(&mut client, "r-2")), "first");
    let happened = client.wait_event("chat", &json!({ "state": "final" }));
    assert_eq!(message_text(&happened), "second");
    assert_ne!(happened["runId"], "r-3");
    assert_eq!(message_text(&final_event(&mut client, "r-3")), "third");
}
