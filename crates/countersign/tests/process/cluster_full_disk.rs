//! Nodes whose database has no space left.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayServer, KITCHEN_TOKEN, Latch,
    agent_gate::{AgentClient, AgentSocketEvent},
    eventually,
    service::ServiceBehavior,
};
use serde_json::{Value, json};

use crate::{
    cluster_fixture::{ClusterFixture, check_lamps, log_in, read_record, turn_lamp},
    postgres_server::PostgresServer,
};

const DATABASE: &str = "on_small_disk";

/// Fills the disk with rows of one page each.
const FILL: &str = "CREATE TABLE ballast (text text);
ALTER TABLE ballast ALTER text SET STORAGE plain;
DO $$ BEGIN LOOP
    BEGIN
        INSERT INTO ballast VALUES (repeat('x', 7000));
    EXCEPTION WHEN disk_full THEN RETURN;
    END;
END LOOP; END $$";

fn is_refused(frame: &Value) -> bool {
    let message = frame["error"]["message"].as_str();
    message.is_some_and(|message| message.contains("not recorded: the disk of the log is full"))
}

/// Waits until a node is ready or not, and returns its problems.
fn wait_status(node: &GatewayServer, status: u16) -> Value {
    let (_, readiness) =
        eventually("readiness", || Some(node.get_json("/readyz")).filter(|(found, _)| *found == status));
    readiness["problems"].clone()
}

#[test]
fn nothing_happens_that_a_full_database_cannot_record_and_each_call_is_answered_once_there_is_space() {
    let Some(server) = PostgresServer::start_with_disk("24m") else { return };
    server.run_sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}/small'", server.folder.display()));
    server.run_sql("postgres", &format!("CREATE DATABASE {DATABASE} TABLESPACE small"));
    let url = server.url("postgres", DATABASE);
    let cluster = ClusterFixture::with_url(server, DATABASE.to_owned(), &url);
    let service = &cluster.place.service;
    let (first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let browser = second.http_client().with_header("cookie", &cookie);
    let is_writable = || {
        let metrics = browser.get("/metrics").body;
        let value = metrics.lines().find(|line| line.starts_with("countersign_record_writable"));
        value.unwrap().ends_with(" 1")
    };
    let (mut agent, mut other) = (
        AgentClient::connect_authenticated(&second, AGENT_TOKEN),
        AgentClient::connect_authenticated(&second, KITCHEN_TOKEN),
    );
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    let latch = Latch::default();
    service.set_behavior("/turn/lamp2", ServiceBehavior::Late(latch.clone()));
    agent.request_tool(2, "turn", json!({ "thing": "lamp2" }));
    service.wait_requests("/turn/lamp2", 1);
    assert!(is_writable());
    cluster.server.run_sql(DATABASE, FILL);

    // The pages of the record that are not full yet hold a few entries more. A call whose end does not fit gets its answer later.
    for number in 100..140 {
        other.request_tool(number, "turn", json!({ "thing": format!("lamp{number}") }));
    }
    other.wait_frames(1, is_refused);
    for node in [&first, &second] {
        let problems = wait_status(node, 503);
        assert!(problems.as_array().unwrap().contains(&json!("the disk of the record is full")), "{problems}");
    }
    assert!(!is_writable());
    let doctor = cluster.place.run(&["doctor", "--config", "a.yaml", "--data", "data-a"]);
    assert!(doctor.code == Some(1) && doctor.out.contains("No space left on device"), "{doctor:?}");
    latch.open();
    let refused = turn_lamp(&mut other, 200);
    assert!(is_refused(&json!({ "error": refused })), "{refused}");

    cluster.server.run_sql(DATABASE, "DROP TABLE ballast");
    for node in [&first, &second] {
        assert_eq!(wait_status(node, 200), json!([]));
    }
    assert!(is_writable());
    let mut turned = vec![2, 201];
    assert_eq!(turn_lamp(&mut other, 201)["status"], "executed");
    assert_eq!(agent.wait_reply(&json!(2))["result"]["status"], "executed");
    for number in 100..140 {
        let reply = other.wait_reply(&json!(number));
        if is_refused(&reply) {
            assert_eq!(service.request_count(&format!("/turn/lamp{number}")), 0, "it is not done later");
        } else {
            assert_eq!(reply["result"]["status"], "executed", "{reply}");
            turned.push(number);
        }
    }
    other.send_frame(json!({ "method": "list_tools", "id": "last" }));
    loop {
        match other.next() {
            AgentSocketEvent::Frame(frame) if frame["id"] == "last" => break,
            AgentSocketEvent::Frame(frame) => assert!(!frame["id"].is_u64(), "a second answer: {frame}"),
            end => panic!("{end:?}"),
        }
    }
    assert_eq!(service.request_count("/turn/door"), 0);
    assert_eq!(cluster.wait_gate_at("a"), gate);
    cluster.allow_at("b", &gate);
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    assert_eq!(service.request_count("/turn/door"), 1);
    assert_eq!(service.request_count("/turn/lamp200"), 0, "it is not done later");
    check_lamps(&cluster, turned, 201);
    read_record(&cluster, &second, &cookie);
    cluster.verify_record();
}
