//! Metrics, readiness and log of a gateway, for operators.

use std::{collections::BTreeSet, fs, path::Path};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, KITCHEN_TOKEN, RULES, SERVICE_TOKEN,
    agent_gate::{AgentClient, executed_result},
    eventually,
    http::{HttpClient, HttpClientReply},
};
use serde_json::{Value, json};

const GUARDED: &str = "web: { password: correct-horse-5 }";

fn token(place: &GatewayFixture, name: &str, scope: &str) -> String {
    let made = place.run_as_person(&["tokens", "add", name, "--scope", scope, "--json"]).json();
    made["token"].as_str().unwrap().to_owned()
}

fn scrape(gateway: &GatewayServer, token: &str) -> HttpClientReply {
    HttpClient::new(&gateway.address).with_header("authorization", &format!("Bearer {token}")).get("/metrics")
}

/// Returns the number of a line of figures.
fn figure(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

#[test]
fn figures_are_for_people_and_tokens_of_their_own_and_count_what_happened() {
    let place = GatewayFixture::with_config_and_rules(GUARDED, RULES);
    let gateway = GatewayServer::start(&place);
    let http = HttpClient::new(&gateway.address);
    assert_eq!(http.get("/metrics").status, 401);
    assert_eq!(scrape(&gateway, "cst_wrong").status, 401);
    assert_eq!(scrape(&gateway, &token(&place, "reader", "read")).status, 403);
    let watcher = token(&place, "watcher", "metrics");
    assert_eq!(
        HttpClient::new(&gateway.address)
            .with_header("authorization", &format!("Bearer {watcher}"))
            .get("/api/v1/gates")
            .status,
        403
    );

    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(
        agent.call_tool(json!(1), "look", json!({ "thing": "a" })),
        executed_result(json!({ "did": "/look/a" }))
    );
    agent.request_tool(2, "turn", json!({ "thing": "stove", "way": "on" }));
    let gate = place.wait_gate();
    let reply = scrape(&gateway, &watcher);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/plain; version=0.0.4; charset=utf-8")));
    let metrics = reply.body;
    assert_eq!(figure(&metrics, "countersign_gates_waiting{kind=\"approval\"}"), 1.0);
    assert_eq!(figure(&metrics, "countersign_connections{door=\"agent_gate\"}"), 1.0);
    place.allow_gate(&gate);
    agent.wait_reply(&json!(2));
    let metrics = scrape(&gateway, &watcher).body;
    for (name, want) in [
        ("countersign_gates_waiting{kind=\"approval\"}", 0.0),
        ("countersign_gates_opened_total{kind=\"approval\"}", 1.0),
        ("countersign_gates_resolved_total{verdict=\"allowed\"}", 1.0),
        ("countersign_gate_answer_seconds_count", 1.0),
        ("countersign_calls_ended_total{executor=\"service\",outcome=\"done\"}", 2.0),
        ("countersign_commits_failed_total", 0.0),
        ("countersign_tasks_broken_total", 0.0),
    ] {
        assert_eq!(figure(&metrics, name), want, "{name}");
    }
    for name in ["countersign_events_appended_total", "process_resident_memory_bytes", "countersign_commit_seconds_sum"]
    {
        assert!(figure(&metrics, name) > 0.0, "{name}");
    }
    assert!(figure(&metrics, "countersign_record_head") >= figure(&metrics, "countersign_events_appended_total"));

    let listed = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter(|(_, rest)| ["counter", "gauge", "histogram"].iter().any(|kind| rest.starts_with(kind)))
        .map(|(name, _)| name)
        .collect();
    let reported_names: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(listed, reported_names);
    for secret in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN, &gate, "\"agent:", "\"gate_", "\"call_"] {
        assert!(!metrics.contains(secret), "{secret}");
    }
}

#[test]
fn it_is_ready_only_while_its_record_can_be_written() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let http = HttpClient::new(&gateway.address);
    assert_eq!(http.get("/livez").status, 200);
    assert_eq!(gateway.get_json("/readyz"), (200, json!({ "status": "ready", "problems": [] })));
    assert!(!place.log_path().exists(), "being asked makes no record");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(
        agent.call_tool(json!(1), "look", json!({ "thing": "a" })),
        executed_result(json!({ "did": "/look/a" }))
    );

    let away = place.folder.join("away.db");
    fs::rename(place.log_path(), &away).unwrap();
    let readiness = eventually("not ready", || Some(gateway.get_json("/readyz")).filter(|(status, _)| *status == 503));
    assert_eq!(readiness.1, json!({ "status": "not ready", "problems": ["the record cannot be written"] }));
    assert_eq!(http.get("/livez").status, 200);
    gateway.wait_for_log("not ready: the record cannot be written");
    fs::rename(&away, place.log_path()).unwrap();
    eventually("ready again", || Some(gateway.get_json("/readyz")).filter(|(status, _)| *status == 200));
}

/// Puts the files of a record elsewhere, by `how`.
fn take(place: &GatewayFixture, to: &Path, how: impl Fn(&Path, &Path) -> std::io::Result<()>) {
    fs::create_dir_all(to).unwrap();
    for name in ["countersign.db", "countersign.db-wal", "countersign.db-shm"] {
        how(&place.data_dir().join(name), &to.join(name)).unwrap();
    }
}

#[test]
fn an_older_record_in_the_place_of_the_record_is_not_believed() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "turn", json!({ "thing": "lamp" }))["status"], "executed");
    let [older, away] = ["older", "away"].map(|name| place.folder.join(name));
    take(&place, &older, |from, to| fs::copy(from, to).map(drop));
    agent.request_tool(2, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    take(&place, &away, |from, to| fs::rename(from, to));
    let refused = agent.call_tool(3, "turn", json!({ "thing": "lamp" }));
    assert!(refused["message"].as_str().unwrap_or_default().contains("not recorded"), "{refused}");
    take(&place, &older, |from, to| fs::copy(to, from).map(drop));
    // It is looked at twice.
    let looked = || gateway.log_text().matches("cannot rebuild the state from the log; retrying").count();
    let before = looked();
    eventually("the older record is looked at", || (looked() >= before + 2).then_some(()));
    take(&place, &away, |from, to| fs::rename(to, from));
    eventually("ready again", || (gateway.get_json("/readyz").0 == 200).then_some(()));
    assert_eq!(place.wait_gate(), gate, "what the record says is so again");
    eventually("it is written again", || {
        (place.run_as_person(&["gates", "allow", &gate]).code == Some(0)).then_some(())
    });
    let reply = agent.wait_reply(&json!(2));
    assert_eq!(reply["result"]["status"], "executed", "{reply}");
    assert_eq!((place.service.request_count("/turn/lamp"), place.service.request_count("/turn/door")), (1, 1));
}

#[test]
fn what_is_logged_is_changed_while_it_runs_and_lines_can_be_json_with_the_ids_of_the_record() {
    let place = GatewayFixture::with_config_and_rules("log: { level: info, format: json }", RULES);
    let no_gateway = place.run_as_person(&["log-level"]);
    assert!(no_gateway.code == Some(1) && no_gateway.err.contains("no gateway runs"), "{no_gateway:?}");
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(2, "turn", json!({ "thing": "stove", "way": "spoken-word" }));
    let gate = place.wait_gate();
    gateway.wait_for_log("gate opened");
    assert_eq!(place.run_as_person(&["log-level"]).out, "info\n");
    let refused = place.run_as_person(&["log-level", "loud"]);
    assert!(refused.code == Some(1) && refused.err.contains("off, error, warn"), "{refused:?}");
    assert_eq!(
        place.run_as_person(&["log-level", "info,countersign_server=debug", "--json"]).json(),
        json!({ "level": "countersign_server=debug,info" })
    );
    assert_eq!(HttpClient::new(&gateway.address).get("/livez?token=not-for-logs").status, 200);
    gateway.wait_for_log("answered");
    assert_eq!(place.run_as_person(&["log-level", "off"]).code, Some(0));
    place.allow_gate(&gate);
    agent.wait_reply(&json!(2));
    gateway.stop();

    let log = gateway.log_text();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect();
    let waits = lines.iter().find(|line| line["message"] == "gate opened").unwrap();
    assert_eq!((&waits["gate"], &waits["level"]), (&json!(gate), &json!("INFO")));
    assert!(waits["call"].as_str().unwrap().starts_with("call_") && waits["lsn"].is_u64(), "{waits}");
    let answered = lines.iter().find(|line| line["message"] == "answered").unwrap();
    assert_eq!((&answered["span"]["path"], &answered["status"]), (&json!("/livez"), &json!(200)));
    assert!(answered["span"]["number"].is_u64(), "{answered}");
    assert!(!lines.iter().any(|line| line["message"] == "gate resolved"), "it was switched off");
    for secret in ["not-for-logs", "spoken-word", AGENT_TOKEN] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn what_is_too_old_is_removed_while_it_runs_and_the_chain_still_fits() {
    let place = GatewayFixture::with_config_and_rules("retention: { calls: 1s, gates: 1s, every: 1s }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "waiting-stove", "way": "on" }));
    let gate = place.wait_gate();
    assert_eq!(
        agent.call_tool(2, "look", json!({ "thing": "told_lamp" })),
        executed_result(json!({ "did": "/look/told_lamp" }))
    );
    // An agent proves what it received with the pong after the reply.
    agent.confirm_received();
    let log = place.log_path();
    let verify = || place.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap()]).json();
    eventually("the end of what is too old", || {
        agent.confirm_received();
        (verify()["redacted"].as_u64() >= Some(2)).then_some(())
    });
    assert_eq!(verify()["flaw"], Value::Null);
    let export = place.run(&["audit", "export", "--log", log.to_str().unwrap()]).out;
    assert!(!export.contains("told_lamp"), "{export}");
    assert!(export.contains("waiting-stove"), "what waits stays: {export}");
    place.allow_gate(&gate);
    assert!(agent.wait_reply(&json!(1)).to_string().contains("/turn/waiting-stove"));
}
