//! Requested ends, and rules that are read again.

use std::time::Duration;

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, Latch, RULES,
    agent_gate::{AgentClient, AgentSocketEvent, executed_result},
    eventually,
    service::ServiceBehavior,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

#[test]
fn sigterm_closes_with_1012_and_ends_with_0_whatever_is_pending() {
    let place = GatewayFixture::new();
    place.service.set_behavior("/turn/lamp", ServiceBehavior::Hang);
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut kitchen = AgentClient::connect_authenticated(&gateway, KITCHEN_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    agent.request_tool(2, "turn", json!({ "thing": "lamp" }));
    kitchen.request_tool(1, "turn", json!({ "thing": "door" }));
    let before = place.wait_gates(2);
    place.service.wait_requests("/turn/lamp", 1);
    // One that never says who it is, and one that reads nothing.
    let mut silent = AgentClient::connect(&gateway);
    let end = gateway.stop();
    assert_eq!(end.code, Some(0));
    assert!(end.took < Duration::from_secs(20), "{end:?}");
    for agent in [&mut agent, &mut kitchen, &mut silent] {
        assert_eq!(agent.next(), AgentSocketEvent::Closed(1012, "restarting".to_owned()));
    }
    let gateway = GatewayServer::start(&place);
    let ids = |rows: &[Value]| rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
    let after = place.pending_gates();
    assert_eq!(ids(&after), ids(&before));
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let listed = agent.pending_results(3);
    assert_eq!(listed["queued"], json!([{ "request_id": "2", "status": "error", "data": "Outcome unknown" }]));
    assert_eq!(agent.wait_reply(&json!(2))["error"]["code"], -32004);
    let mine = after.iter().find(|row| row["session"] == "agent:default").unwrap();
    place.allow_gate(mine["id"].as_str().unwrap());
    assert_eq!(agent.wait_reply(&json!(1))["result"], executed_result(json!({ "result": { "did": "/turn/door" } })));
    assert_eq!((place.service.request_count("/turn/lamp"), place.service.request_count("/turn/door")), (1, 1));
    drop(gateway);
    place.verify_log();
}

#[test]
fn with_on_shutdown_deny_sigterm_denies_pending_gates_and_agents_may_request_again() {
    let place = GatewayFixture::with_config_and_rules("on_shutdown: deny", RULES);
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    place.wait_gates(1);
    assert_eq!(gateway.stop().code, Some(0));
    let gateway = GatewayServer::start(&place);
    assert_eq!(place.pending_gates(), Vec::<Value>::new());
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let listed = agent.pending_results(9);
    assert_eq!(listed["queued"][0]["status"], "denied", "{listed}");
    let denied = agent.wait_reply(&json!(1));
    assert_eq!(denied["error"]["code"], -32002, "{denied}");
    assert_eq!(denied["error"]["data"]["reason"], "Denied: the approval was withdrawn before anybody decided.");
    agent.request_tool(2, "turn", json!({ "thing": "door" }));
    place.allow_gate(&place.wait_gate());
    assert_eq!(agent.wait_reply(&json!(2))["result"], executed_result(json!({ "result": { "did": "/turn/door" } })));
    assert_eq!(place.service.request_count("/turn/door"), 1);
    drop(gateway);
    place.verify_log();
}

#[test]
fn sighup_brings_new_rules_into_force_and_a_bad_file_leaves_those_of_before() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    assert_eq!(place.run_as_person(&["log-level", "info"]).code, Some(0));
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    place.write_file("permissions.yaml", "defaults: [ { pattern: \"look*\", action: deny } ]\n");
    gateway.send_signal(Signal::SIGHUP);
    gateway.wait_for_log("are in force");
    assert_eq!(agent.call_tool(2, "look", json!({ "thing": "a" }))["code"], -32003);
    place.write_file("permissions.yaml", "defaults: [ { pattern: \"look*\", action: DENY } ]\n");
    gateway.send_signal(Signal::SIGHUP);
    gateway.wait_for_log("the previous rules stay in force");
    gateway.wait_for_log("permissions.yaml");
    let log = gateway.log_text();
    for (text, level) in [("are in force", " INFO "), ("stay in force", " WARN ")] {
        assert!(log.lines().any(|line| line.contains(text) && line.contains(level)), "{log}");
    }
    assert_eq!(agent.call_tool(3, "look", json!({ "thing": "a" }))["code"], -32003);
    assert_eq!(place.service.request_count("/look/a"), 1);
}

#[test]
fn rules_whose_file_is_gone_stay_in_force_and_one_that_is_named_has_to_be_there() {
    let place = GatewayFixture::with_config_and_rules("", "defaults: [ { pattern: \"look*\", action: deny } ]\n");
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["code"], -32003);
    std::fs::remove_file(place.folder.join("permissions.yaml")).unwrap();
    gateway.send_signal(Signal::SIGHUP);
    gateway.wait_for_log("the file is missing; to remove all rules, save a file without rules");
    assert_eq!(agent.call_tool(2, "look", json!({ "thing": "a" }))["code"], -32003);
    drop(gateway);
    let refused = place.run(&["serve", "--config", "config.yaml", "--permissions", "nope.yaml"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("nope.yaml: cannot be read: file not found"), "{refused:?}");
}

#[test]
fn rules_that_came_after_the_request_still_deny() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    assert_eq!(place.run_as_person(&["log-level", "info"]).code, Some(0));
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    place.write_file("permissions.yaml", "rules: [ { pattern: \"turn(door*\", action: deny } ]\n");
    gateway.send_signal(Signal::SIGHUP);
    gateway.wait_for_log("are in force");
    // The gate may be there or not: nothing is turned.
    let _ = place.run_as_person(&["gates", "allow", &gate]);
    assert_eq!(agent.wait_reply(&json!(1))["error"]["code"], -32003);
    assert_eq!(place.service.request_count("/turn/door"), 0);
}

#[test]
fn a_call_that_a_service_answers_soon_after_sigterm_is_done() {
    let place = GatewayFixture::new();
    let latch = Latch::default();
    place.service.set_behavior("/turn/lamp", ServiceBehavior::Late(latch.clone()));
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "lamp" }));
    place.service.wait_requests("/turn/lamp", 1);
    gateway.send_signal(Signal::SIGTERM);
    assert_eq!(agent.next(), AgentSocketEvent::Closed(1012, "restarting".to_owned()));
    latch.open();
    let end = gateway.stop();
    assert!(end.code == Some(0) && end.took < Duration::from_secs(20), "{end:?}");
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let listed = agent.pending_results(2);
    assert_eq!(listed["queued"][0]["status"], "executed", "{listed}");
}

#[test]
fn sigterm_ends_a_gateway_whose_record_cannot_be_written() {
    let place = GatewayFixture::with_config_and_rules("on_shutdown: deny", RULES);
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for (id, thing) in [(1, "door"), (2, "gate")] {
        agent.request_tool(id, "turn", json!({ "thing": thing }));
    }
    place.wait_gates(2);
    // It is made after the first commit.
    let ballast = place.log_path().with_extension("ballast");
    eventually("space for the end of what was begun", || ballast.exists().then_some(()));
    // A file in its place is read, and never written.
    let copy = place.folder.join("copy.db");
    std::fs::copy(place.log_path(), &copy).unwrap();
    std::fs::rename(&copy, place.log_path()).unwrap();
    place.write_file("permissions.yaml", "defaults: [ { pattern: \"look*\", action: deny } ]\n");
    gateway.send_signal(Signal::SIGHUP);
    gateway.wait_for_log("the previous rules stay in force");
    let end = gateway.stop();
    assert!(end.took < Duration::from_secs(20), "{end:?}");
}

/// Tests a SIGTERM right after the start: handlers that come after the line would let the signal end the process as it is.
#[test]
fn sigterm_right_behind_the_ready_line_ends_with_0() {
    let place = GatewayFixture::new();
    for round in 0..10 {
        assert_eq!(GatewayServer::start(&place).stop().code, Some(0), "{round}");
    }
}
