//! What whoever keeps a gateway running sees: figures, whether it is ready, and what it logs.

use std::{collections::BTreeSet, fs, path::Path};

use countersign_testkit::process::{
    AGENT_TOKEN, Gateway, GatewayFixture, KITCHEN_TOKEN, RULES, SERVICE_TOKEN,
    agent_gate::{AgentClient, executed},
    eventually,
    http::{Http, Reply},
};
use serde_json::{Value, json};

const GUARDED: &str = "web: { password: correct-horse-5 }";

fn token(place: &GatewayFixture, name: &str, scope: &str) -> String {
    let made = place.people(&["tokens", "add", name, "--scope", scope, "--json"]).json();
    made["token"].as_str().unwrap().to_owned()
}

fn scrape(gateway: &Gateway, token: &str) -> Reply {
    Http::new(&gateway.address).with("authorization", &format!("Bearer {token}")).get("/metrics")
}

/// The number of a line of figures.
fn figure(told: &str, name: &str) -> f64 {
    let line = told.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {told}")).parse().unwrap()
}

#[test]
fn figures_are_for_people_and_tokens_of_their_own_and_count_what_happened() {
    let place = GatewayFixture::with(GUARDED, RULES);
    let gateway = Gateway::start(&place);
    let http = Http::new(&gateway.address);
    assert_eq!(http.get("/metrics").status, 401);
    assert_eq!(scrape(&gateway, "cst_wrong").status, 401);
    assert_eq!(scrape(&gateway, &token(&place, "reader", "read")).status, 403);
    let watcher = token(&place, "watcher", "metrics");
    assert_eq!(
        Http::new(&gateway.address).with("authorization", &format!("Bearer {watcher}")).get("/api/v1/gates").status,
        403
    );

    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call(json!(1), "look", json!({ "thing": "a" })), executed(json!({ "did": "/look/a" })));
    agent.request(2, "turn", json!({ "thing": "stove", "way": "on" }));
    let gate = place.gate();
    let told = scrape(&gateway, &watcher);
    assert_eq!((told.status, told.header("content-type")), (200, Some("text/plain; version=0.0.4; charset=utf-8")));
    let told = told.body;
    assert_eq!(figure(&told, "countersign_gates_waiting{kind=\"approval\"}"), 1.0);
    assert_eq!(figure(&told, "countersign_connections{door=\"agent_gate\"}"), 1.0);
    place.allow(&gate);
    agent.reply(&json!(2));
    let told = scrape(&gateway, &watcher).body;
    for (name, want) in [
        ("countersign_gates_waiting{kind=\"approval\"}", 0.0),
        ("countersign_gates_opened_total{kind=\"approval\"}", 1.0),
        ("countersign_gates_resolved_total{verdict=\"allowed\"}", 1.0),
        ("countersign_gate_answer_seconds_count", 1.0),
        ("countersign_calls_ended_total{executor=\"service\",outcome=\"done\"}", 2.0),
        ("countersign_commits_failed_total", 0.0),
        ("countersign_tasks_broken_total", 0.0),
    ] {
        assert_eq!(figure(&told, name), want, "{name}");
    }
    for name in ["countersign_events_appended_total", "process_resident_memory_bytes", "countersign_commit_seconds_sum"]
    {
        assert!(figure(&told, name) > 0.0, "{name}");
    }
    assert!(figure(&told, "countersign_record_head") >= figure(&told, "countersign_events_appended_total"));

    let listed = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let listed: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter(|(_, rest)| ["counter", "gauge", "histogram"].iter().any(|kind| rest.starts_with(kind)))
        .map(|(name, _)| name)
        .collect();
    let told_names: BTreeSet<&str> =
        told.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(listed, told_names);
    for secret in [AGENT_TOKEN, KITCHEN_TOKEN, SERVICE_TOKEN, &gate, "\"agent:", "\"gate_", "\"call_"] {
        assert!(!told.contains(secret), "{secret}");
    }
}

#[test]
fn it_is_ready_only_while_its_record_can_be_written() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let http = Http::new(&gateway.address);
    assert_eq!(http.get("/livez").status, 200);
    assert_eq!(gateway.get("/readyz"), (200, json!({ "status": "ready", "problems": [] })));
    assert!(!place.log().exists(), "being asked makes no record");
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call(json!(1), "look", json!({ "thing": "a" })), executed(json!({ "did": "/look/a" })));

    let away = place.folder.join("away.db");
    fs::rename(place.log(), &away).unwrap();
    let told = eventually("not ready", || Some(gateway.get("/readyz")).filter(|(status, _)| *status == 503));
    assert_eq!(told.1, json!({ "status": "not ready", "problems": ["the record cannot be written"] }));
    assert_eq!(http.get("/livez").status, 200);
    gateway.says("not ready: the record cannot be written");
    fs::rename(&away, place.log()).unwrap();
    eventually("ready again", || Some(gateway.get("/readyz")).filter(|(status, _)| *status == 200));
}

/// Puts the files of a record elsewhere, by `how`.
fn take(place: &GatewayFixture, to: &Path, how: impl Fn(&Path, &Path) -> std::io::Result<()>) {
    fs::create_dir_all(to).unwrap();
    for name in ["countersign.db", "countersign.db-wal", "countersign.db-shm"] {
        how(&place.data().join(name), &to.join(name)).unwrap();
    }
}

#[test]
fn an_older_record_in_the_place_of_the_record_is_not_believed() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call(1, "turn", json!({ "thing": "lamp" }))["status"], "executed");
    let [older, away] = ["older", "away"].map(|name| place.folder.join(name));
    take(&place, &older, |from, to| fs::copy(from, to).map(drop));
    agent.request(2, "turn", json!({ "thing": "door" }));
    let gate = place.gate();
    take(&place, &away, |from, to| fs::rename(from, to));
    let refused = agent.call(3, "turn", json!({ "thing": "lamp" }));
    assert!(refused["message"].as_str().unwrap_or_default().contains("not recorded"), "{refused}");
    take(&place, &older, |from, to| fs::copy(to, from).map(drop));
    // It is looked at twice.
    let looked = || gateway.said().matches("it is tried again").count();
    let before = looked();
    eventually("the older record is looked at", || (looked() >= before + 2).then_some(()));
    take(&place, &away, |from, to| fs::rename(to, from));
    eventually("ready again", || (gateway.get("/readyz").0 == 200).then_some(()));
    assert_eq!(place.gate(), gate, "what the record says is so again");
    eventually("it is written again", || (place.people(&["gates", "allow", &gate]).code == Some(0)).then_some(()));
    let told = agent.reply(&json!(2));
    assert_eq!(told["result"]["status"], "executed", "{told}");
    assert_eq!((place.service.count("/turn/lamp"), place.service.count("/turn/door")), (1, 1));
}

#[test]
fn what_is_logged_is_changed_while_it_runs_and_lines_can_be_json_with_the_ids_of_the_record() {
    let place = GatewayFixture::with("log: { level: info, format: json }", RULES);
    let no_gateway = place.people(&["log-level"]);
    assert!(no_gateway.code == Some(1) && no_gateway.err.contains("no gateway runs"), "{no_gateway:?}");
    let mut gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(2, "turn", json!({ "thing": "stove", "way": "spoken-word" }));
    let gate = place.gate();
    gateway.says("a gate waits");
    assert_eq!(place.people(&["log-level"]).out, "info\n");
    let refused = place.people(&["log-level", "loud"]);
    assert!(refused.code == Some(1) && refused.err.contains("off, error, warn"), "{refused:?}");
    assert_eq!(
        place.people(&["log-level", "info,countersign_server=debug", "--json"]).json(),
        json!({ "level": "countersign_server=debug,info" })
    );
    assert_eq!(Http::new(&gateway.address).get("/livez?token=not-for-logs").status, 200);
    gateway.says("answered");
    assert_eq!(place.people(&["log-level", "off"]).code, Some(0));
    place.allow(&gate);
    agent.reply(&json!(2));
    gateway.stop();

    let said = gateway.said();
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect();
    let waits = lines.iter().find(|line| line["message"] == "a gate waits").unwrap();
    assert_eq!((&waits["gate"], &waits["level"]), (&json!(gate), &json!("INFO")));
    assert!(waits["call"].as_str().unwrap().starts_with("call_") && waits["lsn"].is_u64(), "{waits}");
    let answered = lines.iter().find(|line| line["message"] == "answered").unwrap();
    assert_eq!((&answered["span"]["path"], &answered["status"]), (&json!("/livez"), &json!(200)));
    assert!(answered["span"]["number"].is_u64(), "{answered}");
    assert!(!lines.iter().any(|line| line["message"] == "a gate is resolved"), "it was switched off");
    for secret in ["not-for-logs", "spoken-word", AGENT_TOKEN] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
}

#[test]
fn what_is_too_old_is_removed_while_it_runs_and_the_chain_still_fits() {
    let place = GatewayFixture::with("retention: { calls: 1s, gates: 1s, every: 1s }", RULES);
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", json!({ "thing": "waiting-stove", "way": "on" }));
    let gate = place.gate();
    assert_eq!(agent.call(2, "look", json!({ "thing": "told_lamp" })), executed(json!({ "did": "/look/told_lamp" })));
    // What an agent received, it has proved with the pong to what followed the reply.
    agent.settle();
    let log = place.log();
    let verify = || place.run(&["audit", "verify", "--json", "--log", log.to_str().unwrap()]).json();
    eventually("the end of what is too old", || {
        agent.settle();
        (verify()["redacted"].as_u64() >= Some(2)).then_some(())
    });
    assert_eq!(verify()["flaw"], Value::Null);
    let told = place.run(&["audit", "export", "--log", log.to_str().unwrap()]).out;
    assert!(!told.contains("told_lamp"), "{told}");
    assert!(told.contains("waiting-stove"), "what waits stays: {told}");
    place.allow(&gate);
    assert!(agent.reply(&json!(1)).to_string().contains("/turn/waiting-stove"));
}
