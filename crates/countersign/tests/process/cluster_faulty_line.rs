//! Owners whose line to the database is faulty, while the other node reaches it.

use countersign_testkit::process::{AGENT_TOKEN, agent_gate::AgentClient};
use serde_json::json;

use crate::{
    cluster_fixture::{ClusterFixture, log_in, read_record, take_missed},
    postgres_faulty_line::{FaultyLine, LineState},
    postgres_server::PostgresServer,
};

/// Checks that the realm moves away from an owner behind such a line, and that the owner relays once the line is sound.
fn check_takeover(fault: LineState) {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let database = server.make_database();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let line = runtime.block_on(FaultyLine::start(server.folder.join(".s.PGSQL.5432")));
    let urls = [line.url(&database), server.url("postgres", &database)];
    let cluster = ClusterFixture::with_urls(server, database, [&urls[0], &urls[1]]);
    let (first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    line.set_state(fault);
    second.wait_for_log("node b serves the realm");
    assert!(first.log_text().contains("this node gives the realm up"), "{}", first.log_text());
    assert_eq!(cluster.wait_gate_at("b"), gate);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    line.set_state(LineState::Sound);
    first.wait_for_log("node b serves the realm");
    drop(agent);
    take_missed(&mut AgentClient::connect_authenticated(&first, AGENT_TOKEN), 2);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    read_record(&cluster, &first, &cookie);
    cluster.verify_record();
}

#[test]
fn an_owner_whose_connections_to_the_database_are_cut_gives_the_realm_to_the_other_node() {
    check_takeover(LineState::Cut);
}

#[test]
fn an_owner_whose_database_answers_ten_seconds_late_gives_the_realm_to_the_other_node() {
    check_takeover(LineState::Slow);
}
