//! State after a power cut: the service saw each action at most once, and the agent gets its outcome.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, Latch,
    agent_gate::{AgentClient, AgentSocketEvent, executed_result},
    eventually,
    service::ServiceBehavior,
};
use serde_json::{Value, json};

fn door() -> Value {
    json!({ "thing": "door" })
}

fn done() -> Value {
    executed_result(json!({ "result": { "did": "/turn/door" } }))
}

/// Returns missed results, as request id, status and data. Both forms are equal, except that `results` has the id of the gate or call where
/// the reply to the client's own id follows.
fn missed(listed: &Value) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let queued: Vec<_> = listed["queued"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (text(&row["request_id"]), text(&row["status"]), row["data"].clone()))
        .collect();
    let results: Vec<_> = listed["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert_eq!(row["tool_name"], "turn", "{row}");
            assert_eq!((&row["message_id"], &row["chat_id"]), (&Value::Null, &Value::Null), "{row}");
            let args: Value = serde_json::from_str(row["args"].as_str().unwrap()).unwrap();
            assert_eq!(args["thing"], "door", "{row}");
            assert!(row["created_at"].is_string() && row["signature"].is_string(), "{row}");
            let result: Value = serde_json::from_str(row["result"].as_str().unwrap()).unwrap();
            (text(&row["request_id"]), text(&result["status"]), result["data"].clone())
        })
        .collect();
    for ((own, status, data), (ours, also, same)) in queued.iter().zip(&results) {
        assert_eq!((status, data), (also, same));
        assert!(own == ours || ours.starts_with("gate_") || ours.starts_with("call_"), "{own} {ours}");
    }
    assert_eq!(queued.len(), results.len());
    queued
}

#[test]
fn what_waits_for_people_waits_again_and_runs_once() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let before = place.wait_gates(1);
    gateway.kill();
    // Without a gateway the record says what waits.
    assert_eq!(place.pending_gates(), before);
    let gateway = GatewayServer::start(&place);
    assert_eq!(place.pending_gates()[0]["id"], before[0]["id"]);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(missed(&agent.pending_results(2)), []);
    place.allow_gate(before[0]["id"].as_str().unwrap());
    // The original id is answered on the new connection.
    assert_eq!(agent.wait_reply(&json!(1))["result"], done());
    agent.confirm_received();
    assert_eq!(missed(&agent.pending_results(3)), []);
    assert_eq!(place.service.request_count("/turn/door"), 1);
    drop(gateway);
    place.verify_log();
}

#[test]
fn what_the_service_worked_at_is_unknown_and_not_begun_again() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/door", ServiceBehavior::Hang);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let gate = place.wait_gate();
    place.allow_gate(&gate);
    place.service.wait_requests("/turn/door", 1);
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(missed(&agent.pending_results(2)), [("1".to_owned(), "error".to_owned(), json!("Outcome unknown"))]);
    let reply = agent.wait_reply(&json!(1));
    assert_eq!(
        (&reply["error"]["code"], &reply["error"]["data"]["gate_id"]),
        (&json!(-32004), &json!(gate)),
        "{reply}"
    );
    assert!(reply["error"]["message"].as_str().unwrap().to_lowercase().contains("unknown"), "{reply}");
    agent.confirm_received();
    assert_eq!(missed(&agent.pending_results(3)), []);
    assert_eq!(place.pending_gates(), Vec::<Value>::new());
    assert_eq!(place.service.request_count("/turn/door"), 1);
    drop(gateway);
    place.verify_log();
}

#[test]
fn what_nobody_had_to_approve_is_unknown_too() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/lamp", ServiceBehavior::Hang);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool("a", "turn", json!({ "thing": "lamp" }));
    place.service.wait_requests("/turn/lamp", 1);
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.send_frame(json!({ "method": "get_pending_results", "id": "b" }));
    let listed = agent.wait_reply(&json!("b"))["result"].take();
    assert_eq!(listed["queued"], json!([{ "request_id": "a", "status": "error", "data": "Outcome unknown" }]));
    assert_eq!(agent.wait_reply(&json!("a"))["error"]["code"], -32004);
    assert_eq!(place.service.request_count("/turn/lamp"), 1);
}

#[test]
fn an_answer_of_the_service_before_the_crash_is_delivered_after_it() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let agent = {
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        agent.request_tool(1, "turn", door());
        agent
    };
    place.allow_gate(&place.wait_gate());
    // The reply went out, so the result is recorded; no pong comes from an agent that reads nothing.
    place.service.wait_requests("/turn/door", 1);
    let log = place.log_path();
    eventually("the end of the call in the record", || {
        let tail = place.run(&["audit", "tail", "--log", log.to_str().unwrap(), "-n", "3"]);
        tail.out.contains("done: turn").then_some(())
    });
    gateway.kill();
    drop(agent);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let data = json!({ "result": { "did": "/turn/door" } });
    assert_eq!(missed(&agent.pending_results(2)), [("1".to_owned(), "executed".to_owned(), data)]);
    assert_eq!(agent.wait_reply(&json!(1))["result"], done());
    agent.confirm_received();
    assert_eq!(missed(&agent.pending_results(3)), []);
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn a_program_that_counts_from_one_again_is_not_answered_under_ids_of_the_last_one() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/door", ServiceBehavior::Hang);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let gate = place.wait_gate();
    place.allow_gate(&gate);
    place.service.wait_requests("/turn/door", 1);
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // A new program asks for something else under the id 1 first: that is what 1 means now.
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    assert_eq!(missed(&agent.pending_results(2)), [(gate, "error".to_owned(), json!("Outcome unknown"))]);
    // Only the reply to the next request comes.
    agent.send_frame(json!({ "method": "list_tools", "id": 3 }));
    let AgentSocketEvent::Frame(next) = agent.next() else { panic!("no reply") };
    assert_eq!(next["id"], 3, "{next}");
}

#[test]
fn a_new_program_that_first_asks_for_results_under_its_id_one_gets_the_list_alone() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/door", ServiceBehavior::Hang);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    place.allow_gate(&place.wait_gate());
    place.service.wait_requests("/turn/door", 1);
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(missed(&agent.pending_results(1)).len(), 1);
    agent.send_frame(json!({ "method": "list_tools", "id": 2 }));
    let AgentSocketEvent::Frame(next) = agent.next() else { panic!("no reply") };
    assert_eq!(next["id"], 2, "{next}");
}

/// Tests that a request of a program under an id is answered under it, whatever another requested under the same before.
#[test]
fn a_new_program_does_not_get_the_results_of_another() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let nothing = json!({ "results": [], "queued": [] });
    assert_eq!(agent.pending_results(1), nothing);
    agent.request_tool(2, "turn", door());
    let old = place.wait_gate();
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.pending_results(1), nothing);
    agent.request_tool(2, "turn", json!({ "thing": "tap" }));
    place.wait_gates(2);
    place.allow_gate(&old);
    place.service.wait_requests("/turn/door", 1);
    place.wait_gates(1);
    place.deny_gate(&place.wait_gate());
    assert_eq!(agent.wait_reply(&json!(2))["error"]["code"], -32001, "that is what it asked for");
    assert_eq!(
        missed(&agent.pending_results(3)),
        [(old, "executed".to_owned(), json!({ "result": { "did": "/turn/door" } }))]
    );
}

/// Ids that are no numbers do not tell who counts on. The first that comes again does.
#[test]
fn an_id_that_comes_again_ends_what_was_to_be_answered_under_ids_of_before() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool("b", "turn", door());
    let old = place.wait_gate();
    drop(agent);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.send_frame(json!({ "method": "get_pending_results", "id": "a" }));
    agent.wait_reply(&json!("a"));
    agent.send_frame(json!({ "method": "list_tools", "id": "b" }));
    assert!(agent.wait_reply(&json!("b"))["result"].is_object());
    place.allow_gate(&old);
    place.service.wait_requests("/turn/door", 1);
    place.wait_gates(0);
    agent.send_frame(json!({ "method": "get_pending_results", "id": "c" }));
    let AgentSocketEvent::Frame(next) = agent.next() else { panic!("no reply") };
    assert_eq!(next["id"], "c", "{next}");
}

#[test]
fn a_kill_anywhere_after_the_approval_leaves_at_most_one_action() {
    let place = GatewayFixture::new();
    let latch = Latch::default();
    latch.open();
    place.service.set_behavior("/turn/door", ServiceBehavior::Late(latch));
    for round in 0..8_usize {
        let before = place.service.request_count("/turn/door");
        let gateway = GatewayServer::start(&place);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        let id = json!(format!("r{round}"));
        // Each round is another action, so that no round is covered by another.
        agent.request_tool(id.clone(), "turn", json!({ "thing": "door", "way": format!("w{round}") }));
        let gate = place.wait_gate();
        place.allow_gate(&gate);
        gateway.kill();
        let gateway = GatewayServer::start(&place);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        agent.send_frame(json!({ "method": "get_pending_results", "id": format!("p{round}") }));
        let reply = agent.wait_reply(&id);
        let did = place.service.request_count("/turn/door") - before;
        match reply["error"]["code"].as_i64() {
            None => assert_eq!((did, &reply["result"]), (1, &done()), "{round}"),
            Some(code) => assert!(code == -32004 && did <= 1, "{round}: {did} {reply}"),
        }
        agent.confirm_received();
        assert_eq!(place.pending_gates(), Vec::<Value>::new());
        drop(gateway);
    }
    place.verify_log();
}

fn keyed(id: u32, thing: &str) -> Value {
    let params = json!({ "tool": "turn", "args": { "thing": thing }, "idempotency_key": "k" });
    json!({ "method": "tool_request", "params": params, "id": id })
}

#[test]
fn a_key_means_the_same_request_across_a_crash() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/lamp", ServiceBehavior::Hang);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.send_frame(keyed(1, "lamp"));
    place.service.wait_requests("/turn/lamp", 1);
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let reply = agent.exchange_frame(keyed(1, "lamp"));
    assert_eq!(reply["error"]["code"], -32004, "{reply}");
    assert_eq!(reply["error"].get("data"), None, "no gate decided it: {reply}");
    assert_eq!(place.service.request_count("/turn/lamp"), 1);
}

#[test]
fn an_unknown_outcome_names_its_gate_whichever_process_opened_it() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/door", ServiceBehavior::BreakOff);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.send_frame(keyed(1, "door"));
    let gate = place.wait_gate();
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let named = |reply: &Value| {
        assert_eq!(reply["error"]["code"], -32004, "{reply}");
        assert_eq!(reply["error"]["data"], json!({ "gate_id": gate }), "{reply}");
    };
    agent.send_frame(json!({ "method": "get_pending_results", "id": 2 }));
    place.allow_gate(&gate);
    named(&agent.wait_reply(&json!(1)));
    // Also once it was received, and under the key after another restart.
    agent.confirm_received();
    assert_eq!(missed(&agent.pending_results(3)), []);
    named(&agent.exchange_frame(keyed(4, "door")));
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    named(&agent.exchange_frame(keyed(5, "door")));
    drop(gateway);
    assert_eq!(place.service.request_count("/turn/door"), 1);
}
