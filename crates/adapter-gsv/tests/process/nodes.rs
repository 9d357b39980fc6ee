//! Nodes: their tools, calls of clients, and disconnects.

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, GatewayServer, eventually,
    gsv::{GsvPeer, GsvSocketEvent, error_body, node_params as params},
};
use serde_json::{Value, json};

/// Connects a node that keeps a journal.
pub(crate) fn connect_journaling_node(gateway: &GatewayServer, id: &str, tools: &[&str]) -> GsvPeer {
    let mut peer = GsvPeer::open_connection(gateway);
    let mut params = params(id, tools);
    params["journal"] = true.into();
    let hello = peer.expect_ok("connect", params);
    let events = hello["features"]["events"].as_array().unwrap();
    assert!(events.contains(&json!("tool.resume")), "{hello}");
    peer
}

/// Waits for the next call of a node.
pub(crate) fn next_invocation(node: &mut GsvPeer, tool: &str) -> Value {
    node.wait_event("tool.invoke", &json!({ "tool": tool }))
}

fn send_result(node: &mut GsvPeer, call: &Value, result: Value) -> Value {
    node.expect_ok("tool.result", json!({ "callId": call["callId"], "result": result }))
}

fn tool_names(peer: &mut GsvPeer) -> Vec<String> {
    let listed = peer.expect_ok("tools.list", json!({}));
    let tools = listed["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .filter(|name| !name.starts_with("gsv__"))
        .collect()
}

/// Returns the whole record.
fn audit(scene: &GatewayFixture) -> String {
    let log = scene.log_path();
    scene.run(&["audit", "export", "--log", log.to_str().unwrap()]).out
}

/// Returns the error of a request.
fn request_error(peer: &mut GsvPeer, id: &str) -> Value {
    peer.wait_response(id)["error"].take()
}

#[test]
fn a_client_has_a_node_do_something_under_either_name() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Echo", "Other"]);
    assert_eq!(tool_names(&mut client), ["box__Echo", "box__Other"]);
    assert_eq!(tool_names(&mut node), ["box__Echo", "box__Other"]);
    for (name, args) in [("box__Echo", json!({ "x": [1, null, "é"] })), ("box:Echo", json!({}))] {
        let request_id = client.send_request("tool.invoke", json!({ "tool": name, "args": args }));
        let call = next_invocation(&mut node, "Echo");
        assert_eq!(call["args"], args, "{name}");
        assert_eq!(send_result(&mut node, &call, json!({ "said": name })), json!({ "ok": true }));
        assert_eq!(client.wait_response(&request_id)["payload"], json!({ "result": { "said": name } }));
    }
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Echo" }));
    let call = next_invocation(&mut node, "Echo");
    node.expect_ok("tool.result", json!({ "callId": call["callId"], "error": "disk on fire" }));
    assert_eq!(request_error(&mut client, &request_id), error_body(500, "disk on fire"));
    drop(node);
    eventually("its tools are gone", || tool_names(&mut client).is_empty().then_some(()));
}

#[test]
fn what_cannot_be_called_is_refused() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let node = GsvPeer::connect_node(&gateway, "box", &["Echo"]);
    for (method, params, want) in [
        ("tool.invoke", json!({}), error_body(400, "tool required")),
        ("tool.invoke", json!({ "tool": "box__Nope" }), error_body(404, "No node provides tool: box__Nope")),
        ("tool.invoke", json!({ "tool": "gsv__ReadFile" }), error_body(404, "No node provides tool: gsv__ReadFile")),
        ("tool.invoke", json!({ "tool": "Echo" }), error_body(404, "No node provides tool: Echo")),
        ("tool.request", json!({ "tool": "box__Echo" }), error_body(400, "callId, tool, and sessionKey required")),
        (
            "tool.request",
            json!({ "callId": "r", "tool": "box__Nope", "args": {}, "sessionKey": "main" }),
            error_body(404, "No node provides tool: box__Nope"),
        ),
        (
            "tool.request",
            json!({ "callId": "call_1", "tool": "box__Echo", "args": {}, "sessionKey": "main" }),
            error_body(400, "callId is taken: call_1"),
        ),
    ] {
        assert_eq!(client.expect_error(method, params.clone()), want, "{method} {params}");
    }
    drop(node);
    // The offer of a node is known when it is away, also after a restart.
    let away = error_body(503, "Node not connected");
    eventually("it is away", || {
        (client.expect_error("tool.invoke", json!({ "tool": "box__Echo" })) == away).then_some(())
    });
    gateway.kill();
    let gateway = scene.start();
    let mut client = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(client.expect_error("tool.invoke", json!({ "tool": "box:Echo" })), away);
}

#[test]
fn a_rule_that_denies_stops_what_a_client_has_a_node_do() {
    let scene = GatewayOptions::for_peers().with_rules(
        "rules:\n  - { pattern: 'box__Forbidden(*', action: deny }\n  - { pattern: 'box__Bash(rm *)', action: deny }\ndefaults:\n  - { pattern: '*', action: ask }\n",
    ).create();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Forbidden", "Asked", "Bash"]);
    for command in [json!("rm x"), json!(["rm", "x"]), json!(["sh", "-c", "rm x"]), json!(["ls", "rm x"])] {
        let denied = client.expect_error("tool.invoke", json!({ "tool": "box__Bash", "args": { "command": command } }));
        assert_eq!(denied["code"], 403, "{command}: {denied}");
    }
    let denied = client.expect_error("tool.invoke", json!({ "tool": "box__Forbidden", "args": { "a": 1 } }));
    assert_eq!(denied["code"], 403, "{denied}");
    assert!(denied["message"].as_str().unwrap().starts_with("Denied by policy: "), "{denied}");
    // A person's own call needs no approval.
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Asked" }));
    let call = next_invocation(&mut node, "Asked");
    send_result(&mut node, &call, json!("done"));
    assert_eq!(client.wait_response(&request_id)["payload"], json!({ "result": "done" }));
    let audit = audit(&scene);
    let by_whom = audit.lines().any(|line| line.contains("client:tester") && line.contains("allowed"));
    assert!(by_whom, "{audit}");
}

#[test]
fn a_result_that_cannot_be_read_ends_its_call() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let wrong_error = "error must be a string";
    let too_deep = "params cannot be read: recursion limit exceeded at line 1 column 128";
    for (name, value, why) in [("error", json!({ "text": "no" }), wrong_error), ("result", deep, too_deep)] {
        let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
        let call = next_invocation(&mut node, "Mute");
        let refused = node.expect_error("tool.result", json!({ "callId": call["callId"], name: value }));
        assert_eq!(refused, error_body(400, why));
        let failure = client.wait_response(&request_id)["error"].clone();
        assert_eq!(failure, error_body(500, &format!("the node's result was refused: {why}")));
        assert_eq!(send_result(&mut node, &call, json!("again")), json!({ "ok": true, "dropped": true }));
    }
}

#[test]
fn only_the_queried_node_answers_and_late_results_are_dropped() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    let mut other = GsvPeer::connect_node(&gateway, "other", &["Mute"]);
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let call = next_invocation(&mut node, "Mute");
    let forged = json!({ "callId": call["callId"], "result": "forged" });
    assert_eq!(other.expect_error("tool.result", forged), error_body(403, "Node not authorized for this call"));
    assert_eq!(send_result(&mut node, &call, json!("real")), json!({ "ok": true }));
    assert_eq!(client.wait_response(&request_id)["payload"], json!({ "result": "real" }));
    assert_eq!(send_result(&mut node, &call, json!("again")), json!({ "ok": true, "dropped": true }));
    assert_eq!(
        node.expect_error("tool.result", json!({ "callId": "zzz", "result": 1 })),
        error_body(404, "Unknown callId")
    );
    assert_eq!(node.expect_error("tool.result", json!({})), error_body(400, "callId required"));

    let mut gone = GsvPeer::connect_client(&gateway, "gone");
    gone.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let call = next_invocation(&mut node, "Mute");
    drop(gone);
    // The gateway has noticed: a second client of that id would get another answer.
    drop(GsvPeer::connect_client(&gateway, "gone"));
    assert_eq!(send_result(&mut node, &call, json!("for nobody")), json!({ "ok": true, "dropped": true }));
}

#[test]
fn what_a_lost_node_had_is_answered_at_once_and_never_sent_again() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let lost = next_invocation(&mut node, "Mute");
    drop(node);
    assert_eq!(request_error(&mut client, &request_id), error_body(503, "Node disconnected: box"));
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let replaced = next_invocation(&mut node, "Mute");
    assert_ne!(replaced["callId"], lost["callId"]);
    let mut newer = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    assert_eq!(request_error(&mut client, &request_id), error_body(503, "Node disconnected: box"));
    assert_eq!(node.read_frame(), GsvSocketEvent::Closed(1000, "Replaced by newer node connection".to_owned()));
    for call in [&lost, &replaced] {
        assert_eq!(send_result(&mut newer, call, json!("late")), json!({ "ok": true, "dropped": true }));
    }
    // It works, and got nothing of before.
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let call = next_invocation(&mut newer, "Mute");
    send_result(&mut newer, &call, json!(1));
    assert_eq!(client.wait_response(&request_id)["payload"], json!({ "result": 1 }));
    assert_eq!(newer.take_early_frames(), Vec::<Value>::new());
    let audit = audit(&scene);
    assert_eq!(audit.matches("result_dropped").count(), 2, "{audit}");
    scene.verify_log();
}

#[test]
fn a_result_after_a_restart_of_the_gateway_is_kept_once_with_its_call() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let call = next_invocation(&mut node, "Mute");
    gateway.kill();
    let gateway = scene.start();
    let mut other = GsvPeer::connect_node(&gateway, "other", &["Mute"]);
    let late = json!({ "callId": call["callId"], "result": "late" });
    assert_eq!(other.expect_error("tool.result", late), error_body(403, "Node not authorized for this call"));
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    assert_eq!(send_result(&mut node, &call, json!("late")), json!({ "ok": true, "dropped": true }));
    let again = json!({ "callId": call["callId"], "result": "late" });
    assert_eq!(node.expect_error("tool.result", again), error_body(404, "Unknown callId"));
    assert_eq!(node.take_early_frames(), Vec::<Value>::new());
    let audit = audit(&scene);
    assert_eq!(audit.matches("result_dropped").count(), 1, "{audit}");
    scene.verify_log();
}

#[test]
fn a_request_is_sent_under_the_clients_id_and_nobody_waits() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    let request = json!({ "callId": "r1", "tool": "box__Mute", "args": { "z": 1 }, "sessionKey": "main" });
    assert_eq!(client.expect_ok("tool.request", request.clone()), json!({ "status": "sent" }));
    assert_eq!(next_invocation(&mut node, "Mute"), json!({ "callId": "r1", "tool": "Mute", "args": { "z": 1 } }));
    assert_eq!(client.expect_error("tool.request", request), error_body(400, "callId is taken: r1"));
    let result = json!({ "callId": "r1", "result": 1 });
    assert_eq!(node.expect_error("tool.result", result), error_body(404, "Unknown session tool call: r1"));
}

#[test]
fn an_id_goes_to_one_of_those_who_ask_for_it_at_once() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut other = GsvPeer::connect_client(&gateway, "other");
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    for round in 0..8 {
        let request =
            json!({ "callId": format!("same{round}"), "tool": "box__Mute", "args": {}, "sessionKey": "main" });
        let request_ids =
            [client.send_request("tool.request", request.clone()), other.send_request("tool.request", request)];
        let answers = [client.wait_response(&request_ids[0]), other.wait_response(&request_ids[1])];
        let sent = answers.iter().filter(|answer| answer["ok"] == true).count();
        assert_eq!(sent, 1, "{answers:?}");
        assert_eq!(next_invocation(&mut node, "Mute")["callId"], format!("same{round}"));
    }
    assert_eq!(node.take_early_frames(), Vec::<Value>::new());
}

#[test]
fn a_request_is_executed_even_if_its_client_disconnects() {
    let scene = GatewayFixture::for_peers();
    let (gateway, _client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    for round in 0..20 {
        let mut asker = GsvPeer::connect_client(&gateway, "asker");
        asker.send_request("tool.invoke", json!({ "tool": "box__Mute", "args": { "round": round } }));
        drop(asker);
        assert_eq!(next_invocation(&mut node, "Mute")["args"], json!({ "round": round }));
    }
}

#[test]
fn a_node_with_a_journal_is_asked_for_the_outcome_of_a_clients_call() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = connect_journaling_node(&gateway, "box", &["Once"]);
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Once" }));
    let call = next_invocation(&mut node, "Once");
    drop(node);
    assert_eq!(request_error(&mut client, &request_id), error_body(503, "Node disconnected: box"));
    gateway.kill();
    let gateway = scene.start();
    let mut node = connect_journaling_node(&gateway, "box", &["Once"]);
    assert_eq!(node.wait_event("tool.resume", &json!({})), json!({ "callId": call["callId"] }));
    assert_eq!(send_result(&mut node, &call, json!("done once")), json!({ "ok": true, "dropped": true }));
    let audit = audit(&scene);
    assert!(audit.contains("done once") && audit.contains("asked_again"), "{audit}");
    assert_eq!(node.take_early_frames(), Vec::<Value>::new());
    scene.verify_log();
}

#[test]
fn nodes_are_asked_for_programs_that_skills_need() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let folder = scene.folder.join("agents/main/skills/make");
    std::fs::create_dir_all(&folder).unwrap();
    let skill = "---\nname: make\ndescription: Makes things\nmetadata: {\"gsv\":{\"requires\":{\"bins\":[\"git\"]}}}\n---\nMake it.\n";
    std::fs::write(folder.join("SKILL.md"), skill).unwrap();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Echo"]);
    // A new node is probed automatically.
    let first = node.wait_event("node.probe", &json!({ "kind": "bins", "bins": ["git"] }));
    node.expect_ok("node.probe.result", json!({ "probeId": first["probeId"], "ok": true, "bins": {} }));
    let request_id = client.send_request("skills.update", json!({ "force": true }));
    let probe = node.wait_event("node.probe", &json!({ "kind": "bins", "bins": ["git"] }));
    let probe_result = json!({ "probeId": probe["probeId"], "ok": true, "bins": { "git": true } });
    let mut other = GsvPeer::connect_node(&gateway, "other", &["Echo"]);
    assert_eq!(other.expect_error("node.probe.result", probe_result.clone())["code"], 500);
    assert_eq!(node.expect_ok("node.probe.result", probe_result.clone()), json!({ "ok": true }));
    assert_eq!(node.expect_ok("node.probe.result", probe_result), json!({ "ok": true, "dropped": true }));
    let updated = client.wait_response(&request_id)["payload"].take();
    assert_eq!((&updated["updatedNodeCount"], &updated["errors"]), (&json!(1), &json!([])), "{updated}");
    assert_eq!(updated["skills"][0]["eligibleHosts"], json!(["box"]), "{updated}");
    // A program that it does not name is missing.
    let probe = other.wait_event("node.probe", &json!({ "bins": ["git"] }));
    other.expect_ok("node.probe.result", json!({ "probeId": probe["probeId"], "ok": true, "bins": {} }));
    let updated = client.expect_ok("skills.update", json!({}));
    assert_eq!(updated["skippedNodeIds"], json!(["box", "other"]), "{updated}");
    assert_eq!(updated["skills"][0]["eligibleHosts"], json!(["box"]), "{updated}");
}

#[test]
fn a_new_node_is_asked_automatically_for_the_programs_of_all_skills() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    for (agent, program) in [("main", "git"), ("other", "kettle")] {
        let folder = scene.folder.join(format!("agents/{agent}/skills/make"));
        std::fs::create_dir_all(&folder).unwrap();
        let skill = format!(
            "---\nname: make\ndescription: Makes\nmetadata: {{\"gsv\":{{\"requires\":{{\"bins\":[\"{program}\"]}}}}}}\n---\n"
        );
        std::fs::write(folder.join("SKILL.md"), skill).unwrap();
    }
    // Twice: a node's answers are dropped with its connection, and it is probed again when it comes back.
    for _ in 0..2 {
        let mut node = GsvPeer::connect_node(&gateway, "box", &["Echo"]);
        let probe = node.wait_event("node.probe", &json!({ "kind": "bins", "bins": ["git", "kettle"] }));
        let has = json!({ "probeId": probe["probeId"], "ok": true, "bins": { "git": true, "kettle": true } });
        assert_eq!(node.expect_ok("node.probe.result", has), json!({ "ok": true }));
        for agent in ["main", "other"] {
            eventually("the skill can be used", || {
                let status = client.expect_ok("skills.status", json!({ "agentId": agent }));
                (status["skills"][0]["eligibleHosts"] == json!(["box"])).then_some(())
            });
        }
        drop(node);
        eventually("it is away", || {
            let status = client.expect_ok("skills.status", json!({}));
            (status["nodes"] == json!([])).then_some(())
        });
    }
}

#[test]
fn what_command_lines_have_nodes_do_stands_in_one_session_whatever_they_are_called() {
    let scene = GatewayFixture::for_peers();
    let (gateway, _client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Echo"]);
    for number in 0..3 {
        let mut client = GsvPeer::connect_client(&gateway, &format!("client-{number}"));
        let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Echo" }));
        let call = next_invocation(&mut node, "Echo");
        send_result(&mut node, &call, json!(number));
        assert_eq!(client.wait_response(&request_id)["payload"], json!({ "result": number }));
    }
    let audit = audit(&scene);
    assert_eq!(audit.matches("Tools that clients called").count(), 1, "{audit}");
    assert!(!audit.contains("gsv-tools:client-") && audit.contains("client:client-2"), "{audit}");
}

#[test]
fn a_call_has_its_time_and_what_comes_later_is_dropped() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    client.expect_ok("config.set", json!({ "path": "timeouts.toolMs", "value": 1000 }));
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
    let call = next_invocation(&mut node, "Mute");
    assert_eq!(request_error(&mut client, &request_id), error_body(503, "Tool execution timed out"));
    assert_eq!(send_result(&mut node, &call, json!("late")), json!({ "ok": true, "dropped": true }));
}

#[test]
fn a_call_that_never_began_or_is_in_doubt_is_no_success() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "box", &["Mute"]);
    for (outcome, want) in [
        (json!({ "fate": "not_begun" }), "the node never began this call"),
        (json!({ "fate": "not_begun", "error": "it never came" }), "it never came"),
        (json!({ "fate": "unknown" }), "the node does not know what became of this call"),
    ] {
        let request_id = client.send_request("tool.invoke", json!({ "tool": "box__Mute" }));
        let call = next_invocation(&mut node, "Mute");
        let mut result = outcome.clone();
        result["callId"] = call["callId"].clone();
        node.expect_ok("tool.result", result);
        assert_eq!(request_error(&mut client, &request_id), error_body(500, want), "{outcome}");
    }
}

#[test]
fn logs_are_given_by_the_node_that_is_meant() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    assert_eq!(client.expect_error("logs.get", json!({})), error_body(503, "No nodes connected"));
    let mut node = GsvPeer::connect_node(&gateway, "box", &["A"]);
    for (params, lines) in [(json!({}), 100), (json!({ "lines": 7.9 }), 7), (json!({ "lines": 999_999 }), 5000)] {
        let request_id = client.send_request("logs.get", params);
        let request = node.wait_event("logs.get", &json!({}));
        assert_eq!(request["lines"], lines);
        let result = json!({ "callId": request["callId"], "lines": ["a", "b"], "truncated": lines == 7 });
        assert_eq!(node.expect_ok("logs.result", result), json!({ "ok": true }));
        let want = json!({ "nodeId": "box", "lines": ["a", "b"], "count": 2, "truncated": lines == 7 });
        assert_eq!(client.wait_response(&request_id)["payload"], want);
    }
    let request_id = client.send_request("logs.get", json!({ "nodeId": "box" }));
    let request = node.wait_event("logs.get", &json!({}));
    let mut other = GsvPeer::connect_node(&gateway, "other", &["A"]);
    let result = json!({ "callId": request["callId"], "error": "no log" });
    assert_eq!(other.expect_error("logs.result", result.clone()), error_body(403, "Node not authorized for this call"));
    assert_eq!(node.expect_ok("logs.result", result.clone()), json!({ "ok": true }));
    assert_eq!(request_error(&mut client, &request_id), error_body(500, "no log"));
    assert_eq!(node.expect_error("logs.result", json!({ "callId": "zzz" })), error_body(404, "Unknown callId"));
    assert_eq!(node.expect_error("logs.result", result), error_body(404, "Unknown callId"), "it was answered");
    let request_id = client.send_request("logs.get", json!({ "nodeId": "box" }));
    let request = node.wait_event("logs.get", &json!({}));
    let unreadable = json!({ "callId": request["callId"], "lines": "a" });
    let refused = node.expect_error("logs.result", unreadable);
    let why = format!("the node's result was refused: {}", refused["message"].as_str().unwrap());
    assert_eq!(request_error(&mut client, &request_id), error_body(500, &why));
    let late = json!({ "callId": request["callId"], "lines": ["a"] });
    assert_eq!(node.expect_ok("logs.result", late), json!({ "ok": true, "dropped": true }));
    for (params, want) in [
        (json!({}), error_body(400, "nodeId required when multiple nodes are connected")),
        (json!({ "nodeId": "nope" }), error_body(503, "Node not connected")),
        (json!({ "nodeId": "box", "lines": 0 }), error_body(400, "lines must be a positive number")),
    ] {
        assert_eq!(client.expect_error("logs.get", params), want);
    }
    let lost = client.send_request("logs.get", json!({ "nodeId": "other" }));
    other.wait_event("logs.get", &json!({}));
    drop(other);
    assert_eq!(request_error(&mut client, &lost), error_body(503, "Node disconnected: other"));
    let replaced = client.send_request("logs.get", json!({ "nodeId": "box" }));
    node.wait_event("logs.get", &json!({}));
    let _newer = GsvPeer::connect_node(&gateway, "box", &["A"]);
    assert_eq!(request_error(&mut client, &replaced), error_body(503, "Node replaced during log request: box"));
}
