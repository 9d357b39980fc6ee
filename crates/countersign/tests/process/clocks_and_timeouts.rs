//! A clock that jumps, a service that hangs: no request waits forever.

use std::time::Duration;

use countersign_core::{id::Lsn, time::Millis};
use countersign_store::{Batch, Log as _, LogOptions, LogRecord, Partition, SqliteLog};
use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES,
    agent_gate::{AgentClient, executed_result},
    eventually,
    service::ServiceBehavior,
};
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

fn door() -> Value {
    json!({ "thing": "door" })
}

fn done() -> Value {
    executed_result(json!({ "result": { "did": "/turn/door" } }))
}

/// Creates the data of a process whose clock was ahead of ours by so much, and that ended at once.
fn started_ahead(place: &GatewayFixture, ahead: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let log = SqliteLog::open(place.log_path(), LogOptions::default()).unwrap();
        let records = log.read_records(Partition::ZERO, Lsn(0), 1000).await.unwrap();
        let booted = records.iter().rfind(|record| record.kind == "booted").unwrap();
        let last = records.last().unwrap();
        let record = LogRecord {
            at: Millis(last.at.0 + u64::try_from(ahead.as_millis()).unwrap()),
            session: booted.session.clone(),
            key: booted.key.clone(),
            kind: booted.kind.clone(),
            version: booted.version,
            facts: booted.facts.clone(),
            content: None,
        };
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, last.lsn, Batch(vec![record])).await.unwrap();
        log.close().await;
    });
}

#[test]
fn a_clock_that_went_back_an_hour_stops_no_deadline() {
    let place = GatewayFixture::with_config_and_rules("approval_timeout: 1", RULES);
    let gateway = GatewayServer::start(&place);
    assert_eq!(
        AgentClient::connect_authenticated(&gateway, AGENT_TOKEN).call_tool(1, "look", json!({ "thing": "a" }))["status"],
        "executed"
    );
    gateway.kill();
    started_ahead(&place, HOUR);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let reply = agent.call_tool(2, "turn", door());
    assert_eq!((&reply["code"], &reply["message"]), (&json!(-32002), &json!("Approval timed out")));
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_clock_that_went_on_an_hour_leaves_time_to_answer() {
    let place = GatewayFixture::with_config_and_rules("approval_timeout: 60", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door());
    let gate = place.wait_gate();
    gateway.kill();
    started_ahead(&place, HOUR);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.send_frame(json!({ "method": "get_pending_results", "id": 2 }));
    place.allow_gate(&gate);
    assert_eq!(agent.wait_reply(&json!(1))["result"], done());
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_service_that_hangs_holds_up_nobody_else_and_is_given_up() {
    let place = GatewayFixture::new();
    place.write_file(
        "tools.yaml",
        "
tools:
  look: { signature: \"{thing}\", args: { thing: {} }, request: { path: \"/look/{thing}\" }, timeout: 1 }
  turn:
    signature: \"{thing}\"
    args: { thing: {} }
    request: { method: POST, path: \"/turn/{thing}\" }
    timeout: 1
",
    );
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for path in ["/turn/lamp", "/look/lamp"] {
        place.service.set_behavior(path, ServiceBehavior::Hang);
    }
    agent.request_tool("turn", "turn", json!({ "thing": "lamp" }));
    agent.request_tool("look", "look", json!({ "thing": "lamp" }));
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    for id in ["turn", "look"] {
        let reply = agent.wait_reply(&json!(id));
        assert_eq!(reply["error"]["code"], -32004, "{reply}");
        assert!(reply["error"]["message"].as_str().unwrap().starts_with("Outcome unknown: "), "{reply}");
    }
    eventually("the end of both", || (agent.pending_results("p")["queued"] == json!([])).then_some(()));
    assert_eq!((place.service.request_count("/turn/lamp"), place.service.request_count("/look/lamp")), (1, 1));
}
