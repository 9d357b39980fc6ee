//! Nodes whose database fails over to a standby.

use countersign_testkit::process::{
    AGENT_TOKEN,
    agent_gate::AgentClient,
    api::{ApiEvent, ApiEvents},
};
use serde_json::json;

use crate::{
    cluster_fixture::{
        ClusterFixture, check_lamps, event_ids, is_gate, log_in, read_record, take_missed, turn_lamp, turn_next_lamp,
    },
    postgres_server::PostgresServer,
};

/// Calls that rules allow, before the failover.
const CALLS: u64 = 5;

#[test]
fn nothing_acknowledged_is_lost_when_a_synchronous_standby_takes_over() {
    let Some(primary) = PostgresServer::start(&[], |_| {}) else { return };
    let database = primary.make_database();
    let standby = primary.start_standby();
    primary.run_sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.run_sql("postgres", "SELECT pg_reload_conf()");
    primary.wait_for_row("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'");
    let url = primary.url_with(&standby, &database);
    let cluster = ClusterFixture::with_url(primary, database, &url);
    let (_first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    let turned: Vec<u64> = (100..100 + CALLS).collect();
    for number in &turned {
        assert_eq!(turn_lamp(&mut agent, *number)["status"], "executed");
    }
    let seen = read_record(&cluster, &second, &cookie);

    cluster.server.kill();
    standby.promote();
    let last = turn_next_lamp(&second, 200);
    assert_eq!(cluster.wait_gate_at("b"), gate);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    drop(agent);
    take_missed(&mut AgentClient::connect_authenticated(&second, AGENT_TOKEN), last + 1);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    check_lamps(&cluster, turned.into_iter().chain([last]), last);
    let whole = read_record(&cluster, &second, &cookie);
    assert!(event_ids(&whole).starts_with(&event_ids(&seen)));
    cluster.verify_record();
}

#[test]
fn entries_that_an_asynchronous_standby_lacks_are_reported_and_the_nodes_go_on_from_its_record() {
    let Some(primary) = PostgresServer::start(&[], |_| {}) else { return };
    let database = primary.make_database();
    let standby = primary.start_standby();
    let url = primary.url_with(&standby, &database);
    let cluster = ClusterFixture::with_url(primary, database, &url);
    let (first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    cluster.server.wait_for_row("SELECT FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_flush_lsn()");
    standby.kill();
    let turned: Vec<u64> = (100..100 + CALLS).collect();
    for number in &turned {
        assert_eq!(turn_lamp(&mut agent, *number)["status"], "executed");
    }
    let lost = read_record(&cluster, &second, &cookie);

    cluster.server.kill();
    standby.restart();
    standby.promote();
    let last = turn_next_lamp(&second, 200);
    first.wait_for_log("the database lost entries that it had committed");
    let cursor = lost.last().unwrap().id.clone().unwrap();
    let resume = [("cookie", cookie.as_str()), ("last-event-id", cursor.as_str())];
    let mut stream = ApiEvents::open(&second.address, "", &resume).unwrap();
    let reset = stream.read_until(|event: &ApiEvent| event.name == "reset").pop().unwrap();
    assert_eq!(reset.data["reason"], "ahead", "{reset:?}");
    assert!(stream.read_until(is_gate).iter().all(|event| event.name != "reset"));

    // The record goes on behind the last entry that is left, and what had happened does not happen again.
    assert_eq!(cluster.wait_gate_at("b"), gate);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    drop(agent);
    take_missed(&mut AgentClient::connect_authenticated(&second, AGENT_TOKEN), last + 1);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    check_lamps(&cluster, turned.into_iter().chain([last]), last);
    read_record(&cluster, &second, &cookie);
    cluster.verify_record();
}
