//! The end that was asked for, and rules that are read again.

use std::time::Duration;

use countersign_testkit::process::{
    AGENT_TOKEN, Gateway, GatewayFixture, KITCHEN_TOKEN, Latch, RULES,
    agent_gate::{AgentClient, Received, executed},
    eventually,
    service::Behavior,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

#[test]
fn sigterm_closes_with_1012_and_ends_with_0_whatever_is_pending() {
    let place = GatewayFixture::new();
    place.service.does("/turn/lamp", Behavior::Hang);
    let mut gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    let mut kitchen = AgentClient::join(&gateway, KITCHEN_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    agent.request(2, "turn", json!({ "thing": "lamp" }));
    kitchen.request(1, "turn", json!({ "thing": "door" }));
    let before = place.waits(2);
    place.service.wait("/turn/lamp", 1);
    // One that never says who it is, and one that reads nothing.
    let mut silent = AgentClient::connect(&gateway);
    let end = gateway.stop();
    assert_eq!(end.code, Some(0));
    assert!(end.took < Duration::from_secs(20), "{end:?}");
    for agent in [&mut agent, &mut kitchen, &mut silent] {
        assert_eq!(agent.next(), Received::Closed(1012, "restarting".to_owned()));
    }
    let gateway = Gateway::start(&place);
    let ids = |rows: &[Value]| rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
    let after = place.gates();
    assert_eq!(ids(&after), ids(&before));
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    let listed = agent.pending(3);
    assert_eq!(listed["queued"], json!([{ "request_id": "2", "status": "error", "data": "Outcome unknown" }]));
    assert_eq!(agent.reply(&json!(2))["error"]["code"], -32004);
    let mine = after.iter().find(|row| row["session"] == "agent:default").unwrap();
    place.allow(mine["id"].as_str().unwrap());
    assert_eq!(agent.reply(&json!(1))["result"], executed(json!({ "result": { "did": "/turn/door" } })));
    assert_eq!((place.service.count("/turn/lamp"), place.service.count("/turn/door")), (1, 1));
    drop(gateway);
    place.verify();
}

#[test]
fn where_settings_say_so_sigterm_denies_what_waits_and_it_may_be_asked_for_again() {
    let place = GatewayFixture::with("on_shutdown: deny", RULES);
    let mut gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    place.waits(1);
    assert_eq!(gateway.stop().code, Some(0));
    let gateway = Gateway::start(&place);
    assert_eq!(place.gates(), Vec::<Value>::new());
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    let listed = agent.pending(9);
    assert_eq!(listed["queued"][0]["status"], "denied", "{listed}");
    let denied = agent.reply(&json!(1));
    assert_eq!(denied["error"]["code"], -32002, "{denied}");
    assert_eq!(denied["error"]["data"]["reason"], "Denied: the approval was withdrawn before anybody decided.");
    agent.request(2, "turn", json!({ "thing": "door" }));
    place.allow(&place.gate());
    assert_eq!(agent.reply(&json!(2))["result"], executed(json!({ "result": { "did": "/turn/door" } })));
    assert_eq!(place.service.count("/turn/door"), 1);
    drop(gateway);
    place.verify();
}

#[test]
fn sighup_brings_new_rules_into_force_and_a_bad_file_leaves_those_of_before() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call(1, "look", json!({ "thing": "a" }))["status"], "executed");
    place.write("permissions.yaml", "defaults: [ { pattern: \"look*\", action: deny } ]\n");
    gateway.signal(Signal::SIGHUP);
    gateway.says("are in force");
    assert_eq!(agent.call(2, "look", json!({ "thing": "a" }))["code"], -32003);
    place.write("permissions.yaml", "defaults: [ { pattern: \"look*\", action: DENY } ]\n");
    gateway.signal(Signal::SIGHUP);
    gateway.says("those of before stay in force");
    gateway.says("permissions.yaml");
    assert_eq!(agent.call(3, "look", json!({ "thing": "a" }))["code"], -32003);
    assert_eq!(place.service.count("/look/a"), 1);
}

#[test]
fn rules_whose_file_is_gone_stay_in_force_and_one_that_is_named_has_to_be_there() {
    let place = GatewayFixture::with("", "defaults: [ { pattern: \"look*\", action: deny } ]\n");
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call(1, "look", json!({ "thing": "a" }))["code"], -32003);
    std::fs::remove_file(place.folder.join("permissions.yaml")).unwrap();
    gateway.signal(Signal::SIGHUP);
    gateway.says("it is not there any more; a file without rules says that there are none");
    assert_eq!(agent.call(2, "look", json!({ "thing": "a" }))["code"], -32003);
    drop(gateway);
    let refused = place.run(&["serve", "--config", "config.yaml", "--permissions", "nope.yaml"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("nope.yaml: cannot be read: it is not there"), "{refused:?}");
}

#[test]
fn rules_that_came_after_an_approval_was_asked_for_still_deny() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    let gate = place.gate();
    place.write("permissions.yaml", "rules: [ { pattern: \"turn(door*\", action: deny } ]\n");
    gateway.signal(Signal::SIGHUP);
    gateway.says("are in force");
    // Whether the gate is still there or not: nothing is turned.
    let _ = place.people(&["gates", "allow", &gate]);
    assert_eq!(agent.reply(&json!(1))["error"]["code"], -32003);
    assert_eq!(place.service.count("/turn/door"), 0);
}

#[test]
fn a_call_that_a_service_answers_soon_after_sigterm_is_done() {
    let place = GatewayFixture::new();
    let latch = Latch::default();
    place.service.does("/turn/lamp", Behavior::Late(latch.clone()));
    let mut gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "lamp" }));
    place.service.wait("/turn/lamp", 1);
    gateway.signal(Signal::SIGTERM);
    assert_eq!(agent.next(), Received::Closed(1012, "restarting".to_owned()));
    latch.open();
    let end = gateway.stop();
    assert!(end.code == Some(0) && end.took < Duration::from_secs(20), "{end:?}");
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    let listed = agent.pending(2);
    assert_eq!(listed["queued"][0]["status"], "executed", "{listed}");
}

#[test]
fn sigterm_ends_a_gateway_whose_record_cannot_be_written() {
    let place = GatewayFixture::with("on_shutdown: deny", RULES);
    let mut gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    for (id, thing) in [(1, "door"), (2, "gate")] {
        agent.request(id, "turn", json!({ "thing": thing }));
    }
    place.waits(2);
    // It is made behind the first commit.
    let ballast = place.log().with_extension("ballast");
    eventually("space for the end of what was begun", || ballast.exists().then_some(()));
    // A file in its place is read, and never written.
    let copy = place.folder.join("copy.db");
    std::fs::copy(place.log(), &copy).unwrap();
    std::fs::rename(&copy, place.log()).unwrap();
    place.write("permissions.yaml", "defaults: [ { pattern: \"look*\", action: deny } ]\n");
    gateway.signal(Signal::SIGHUP);
    gateway.says("those of before stay in force");
    let end = gateway.stop();
    assert!(end.took < Duration::from_secs(20), "{end:?}");
}

/// Whoever starts it and changes their mind: handlers that come after the line would let the signal end it as it is.
#[test]
fn sigterm_right_behind_the_ready_line_ends_with_0() {
    let place = GatewayFixture::new();
    for round in 0..10 {
        assert_eq!(Gateway::start(&place).stop().code, Some(0), "{round}");
    }
}
