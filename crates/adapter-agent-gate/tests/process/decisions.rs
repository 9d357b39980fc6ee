//! Decisions of approvers: from the command line, once, for longer, too late, and not at all.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, RULES,
    agent_gate::{AgentClient, AgentSocketEvent, error_body, executed_result},
    service::ServiceBehavior,
};
use serde_json::{Value, json};

fn door() -> Value {
    json!({ "thing": "door", "way": "open" })
}

#[test]
fn what_waits_is_shown_and_runs_once_it_is_allowed() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut watch = place.watch_gates();
    assert_eq!(watch.wait_rows(|_| true), Vec::<Value>::new());
    agent.request_tool(1, "turn", door());
    let rows = watch.wait_rows(|rows| !rows.is_empty());
    let listed = place.pending_gates();
    assert_eq!(listed, rows);
    let row = &listed[0];
    let shown = |name: &str| row[name].clone();
    assert_eq!(
        [shown("kind"), shown("door"), shown("session"), shown("title"), shown("subject"), shown("arguments")],
        [
            json!("approval"),
            json!("agent-gate"),
            json!("agent:default"),
            json!("turn"),
            json!("turn(door, open)"),
            door()
        ]
    );
    assert!(row["opened_at"].as_str() < row["deadline"].as_str(), "{row}");
    let id = row["id"].as_str().unwrap();
    // The end of an id is enough to name it.
    let short = &id[id.len() - 8..];
    assert_eq!(&place.run_as_person(&["gates", "show", short, "--json"]).json(), row);
    assert!(place.run_as_person(&["gates", "show", short]).out.contains("turn(door, open)"));
    assert_eq!(place.service.request_count("/turn/door"), 0);
    // An answer needs more than one or seven characters.
    for little in [&id[id.len() - 1..], &id[id.len() - 7..]] {
        for verb in ["allow", "deny"] {
            let output = place.run_as_person(&["gates", verb, little]);
            assert_eq!((output.code, output.err.contains("at least its last 8")), (Some(1), true), "{output:?}");
        }
        assert_eq!(place.run_as_person(&["gates", "show", little]).code, Some(0));
    }
    let output = place.run_as_person(&["gates", "allow", short]);
    assert_eq!((output.code, output.out.contains(id)), (Some(0), true), "{output:?}");
    assert_eq!(agent.wait_reply(&json!(1))["result"], executed_result(json!({ "result": { "did": "/turn/door" } })));
    watch.wait_rows(<[Value]>::is_empty);
    assert_eq!(place.service.request_count("/turn/door"), 1);
    // A late answer, or one for an unknown gate, gets an error.
    for id in [id, "gate_0000"] {
        for arguments in [&["gates", "allow", id][..], &["gates", "deny", id], &["gates", "show", id]] {
            let output = place.run_as_person(arguments);
            assert_eq!((output.code, output.out.as_str(), output.err.is_empty()), (Some(1), "", false), "{output:?}");
        }
    }
    assert_eq!(place.service.request_count("/turn/door"), 1);
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_denial_carries_its_reason() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let output = place.run_as_person(&["gates", "deny", &place.wait_gate(), "--reason", "not at night"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let reply = agent.wait_reply(&json!(1));
    assert_eq!((&reply["error"]["code"], &reply["error"]["message"]), (&json!(-32001), &json!("Denied by user")));
    assert!(reply["error"]["data"]["reason"].as_str().unwrap().contains("not at night"), "{reply}");
    assert_eq!(place.service.request_count("/turn/door"), 0);
}

#[test]
fn nobody_who_decides_in_time_denies() {
    let place = GatewayFixture::with_config_and_rules("approval_timeout: 1", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // The rate of the deadline is real time: the reply is waited for.
    let reply = agent.call_tool(1, "turn", door());
    assert_eq!((&reply["code"], &reply["message"]), (&json!(-32002), &json!("Approval timed out")), "{reply}");
    assert_eq!(place.pending_gates(), Vec::<Value>::new());
    assert_eq!(place.service.request_count("/turn/door"), 0);
}

#[test]
fn a_grant_covers_what_was_shown_until_it_is_revoked() {
    for scope in ["session", "always"] {
        let place = GatewayFixture::new();
        let gateway = GatewayServer::start(&place);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        assert_eq!(place.run_as_person(&["grants", "list", "--json"]).json(), json!([]));
        agent.request_tool(1, "turn", door());
        let output = place.run_as_person(&["gates", "allow", &place.wait_gate(), "--scope", scope]);
        assert_eq!(output.code, Some(0), "{scope}: {output:?}");
        assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed", "{scope}");
        let grants = place.run_as_person(&["grants", "list", "--json"]).json();
        assert_eq!(grants.as_array().unwrap().len(), 1, "{scope}: {grants}");
        assert_eq!((&grants[0]["scope"], &grants[0]["to"]), (&json!(scope), &json!("agent:default")), "{grants}");
        assert_eq!(grants[0]["door"], "authenticated", "the system says who asks: {grants}");
        // The same call again needs no approval; any other call, or another agent's, does.
        assert_eq!(agent.call_tool(2, "turn", door())["status"], "executed", "{scope}");
        agent.request_tool(3, "turn", json!({ "thing": "door", "way": "shut" }));
        let mut kitchen = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
        kitchen.request_tool(1, "turn", door());
        for gate in place.wait_gates(2) {
            assert_eq!(place.run_as_person(&["gates", "deny", gate["id"].as_str().unwrap()]).code, Some(0), "{scope}");
        }
        assert_eq!(agent.wait_reply(&json!(3))["error"]["code"], -32001, "{scope}");
        assert_eq!(kitchen.wait_reply(&json!(1))["error"]["code"], -32001, "{scope}");
        let id = grants[0]["id"].as_str().unwrap();
        assert_eq!(place.run_as_person(&["grants", "revoke", id]).code, Some(0), "{scope}");
        assert_eq!(place.run_as_person(&["grants", "list", "--json"]).json(), json!([]), "{scope}");
        assert_eq!(place.run_as_person(&["grants", "revoke", id]).code, Some(1), "{scope}");
        agent.request_tool(4, "turn", door());
        place.wait_gate();
        assert_eq!(place.service.request_count("/turn/door"), 2, "{scope}");
    }
}

#[test]
fn no_more_than_the_limit_wait_at_once() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_pending_approvals: 10 }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for id in 0..25 {
        agent.request_tool(id, "turn", json!({ "thing": format!("door{id}") }));
    }
    // Requests beyond the limit are answered at once, in any order.
    let refused: Vec<Value> = (0..15)
        .map(|_| match agent.next() {
            AgentSocketEvent::Frame(frame) => frame,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        refused.iter().all(|reply| reply["error"] == error_body(-32006, "Too many pending approvals")),
        "{refused:?}"
    );
    let gates = place.wait_gates(10);
    // The limit is of one agent.
    let mut kitchen = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    kitchen.request_tool(1, "turn", door());
    place.wait_gates(11);
    for gate in &gates {
        place.allow_gate(gate["id"].as_str().unwrap());
    }
    let done: Vec<AgentSocketEvent> = (0..10).map(|_| agent.next()).collect();
    assert!(
        done.iter().all(
            |received| matches!(received, AgentSocketEvent::Frame(reply) if reply["result"]["status"] == "executed")
        )
    );
    // There is room again.
    agent.request_tool(25, "turn", json!({ "thing": "door25" }));
    place.wait_gates(2);
}

#[test]
fn an_agent_that_went_while_it_waited_is_answered_when_it_is_back() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let gate = place.wait_gate();
    drop(agent);
    place.allow_gate(&gate);
    place.service.wait_requests("/turn/door", 1);
    place.wait_gates(0);
    // The program continues its count: it is the same one.
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let data = json!({ "result": { "did": "/turn/door" } });
    agent.pending_results(2);
    assert_eq!(agent.wait_reply(&json!(1))["result"], executed_result(data));
    agent.confirm_received();
    // Read once: a received result is not listed again, on this connection or the next.
    let nothing = json!({ "results": [], "queued": [] });
    assert_eq!(agent.pending_results(3), nothing);
    drop(agent);
    place.wait_gates(0);
    assert_eq!(AgentClient::connect_authenticated(&gateway, AGENT_TOKEN).pending_results(4), nothing);
}

/// Checks that each of many ids under one key has its reply, also if the first was confirmed while others are on their way.
#[test]
fn a_request_under_many_ids_is_answered_under_each() {
    let place = GatewayFixture::new();
    let large = json!({ "text": "x".repeat(700 << 10) }).to_string();
    place.service.set_behavior("/turn/door", ServiceBehavior::Answer(200, "application/json", large));
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for id in 1..=12 {
        let params = json!({ "tool": "turn", "args": door(), "idempotency_key": "k" });
        agent.send_frame(json!({ "method": "tool_request", "params": params, "id": id }));
    }
    place.allow_gate(&place.wait_gate());
    for id in 1..=12 {
        assert_eq!(agent.wait_reply(&json!(id))["result"]["status"], "executed", "{id}");
    }
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

/// Sends the same ids from another program of the same agent meanwhile: the gateway cannot distinguish the two.
#[test]
fn a_result_under_an_id_of_two_programs_goes_to_neither() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    for thing in ["door", "tap"] {
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        agent.request_tool(1, "turn", json!({ "thing": thing }));
        place.wait_gates(if thing == "door" { 1 } else { 2 });
    }
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.pending_results(2);
    for gate in place.wait_gates(2) {
        place.allow_gate(gate["id"].as_str().unwrap());
    }
    place.service.wait_requests("/turn/tap", 1);
    place.wait_gates(0);
    agent.send_frame(json!({ "method": "list_tools", "id": 3 }));
    let AgentSocketEvent::Frame(next) = agent.next() else { panic!("no reply") };
    assert_eq!(next["id"], 3, "{next}");
    let rows = agent.pending_results(4)["results"].clone();
    let ids: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["request_id"].as_str().unwrap()).collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| id.starts_with("gate_")), "{ids:?}");
}

#[test]
fn asking_for_what_was_missed_brings_no_second_reply() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let gate = place.wait_gate();
    let nothing = json!({ "results": [], "queued": [] });
    assert_eq!([agent.pending_results(2), agent.pending_results(3)], [nothing.clone(), nothing.clone()]);
    place.allow_gate(&gate);
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    assert_eq!(agent.call_tool(4, "look", json!({ "thing": "a" }))["status"], "executed");
    // Replies that were sent on this connection are not missed on it, whether or not they were acknowledged.
    assert_eq!(agent.pending_results(5), nothing);
    agent.send_frame(json!({ "method": "list_tools", "id": 6 }));
    assert!(matches!(agent.next(), AgentSocketEvent::Frame(reply) if reply["id"] == 6));
}

#[test]
fn two_requests_with_one_key_wait_for_one_approval() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for id in [1, 2] {
        let params = json!({ "tool": "turn", "args": door(), "idempotency_key": "k" });
        agent.send_frame(json!({ "method": "tool_request", "params": params, "id": id }));
    }
    // The reply to a later request comes after both: no second gate may open.
    agent.confirm_received();
    place.allow_gate(&place.wait_gate());
    let done = executed_result(json!({ "result": { "did": "/turn/door" } }));
    assert_eq!([1, 2].map(|id| agent.wait_reply(&json!(id))["result"].take()), [done.clone(), done]);
    assert_eq!(place.service.request_count("/turn/door"), 1);
}

#[test]
fn a_denied_call_is_denied_again_without_a_gate() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let output = place.run_as_person(&["gates", "deny", &place.wait_gate(), "--reason", "not at night"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(agent.wait_reply(&json!(1))["error"]["code"], -32001);
    let again = agent.call_tool(2, "turn", door());
    assert!(again.to_string().contains("not at night"), "{again}");
    assert!([-32001, -32003].map(Value::from).contains(&again["code"]), "{again}");
    assert_eq!((place.pending_gates(), place.service.request_count("/turn/door")), (Vec::new(), 0));
}

#[test]
fn every_element_of_a_list_is_judged() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "turn", json!({ "thing": ["lamp1", "lamp2"], "way": "on" }))["status"], "executed");
    assert_eq!(agent.call_tool(2, "turn", json!({ "thing": ["lamp1", "lock"], "way": "on" }))["code"], -32003);
    agent.request_tool(3, "turn", json!({ "thing": ["lamp1", "door"], "way": ["on", "off"] }));
    assert_eq!(place.wait_gates(1)[0]["arguments"], json!({ "thing": ["lamp1", "door"], "way": ["on", "off"] }));
    let many: Vec<String> = (0..17).map(|number| format!("lamp{number}")).collect();
    assert_eq!(agent.call_tool(4, "turn", json!({ "thing": many, "way": many }))["code"], -32600);
}
