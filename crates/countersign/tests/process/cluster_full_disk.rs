//! Nodes whose database has no space left.

use countersign_testkit::process::{AGENT_TOKEN, agent_gate::AgentClient};
use serde_json::json;

use crate::{
    cluster_fixture::{ClusterFixture, check_lamps, log_in, read_record, take_missed, turn_lamp, turn_next_lamp},
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

#[test]
fn nothing_happens_that_a_full_database_cannot_record_and_work_goes_on_once_there_is_space() {
    let Some(server) = PostgresServer::start_with_disk("24m") else { return };
    server.run_sql("postgres", &format!("CREATE TABLESPACE small LOCATION '{}/small'", server.folder.display()));
    server.run_sql("postgres", &format!("CREATE DATABASE {DATABASE} TABLESPACE small"));
    let url = server.url("postgres", DATABASE);
    let cluster = ClusterFixture::with_url(server, DATABASE.to_owned(), &url);
    let (_first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    cluster.server.run_sql(DATABASE, FILL);

    // The pages of the record that are not full yet hold a few entries more.
    let mut replies = (100..200).map(|number| (number, turn_lamp(&mut agent, number)));
    let (number, refused) = replies.find(|(_, reply)| reply["status"] != "executed").unwrap();
    let reason = refused["message"].as_str().unwrap();
    assert!(reason.contains("not recorded: the disk of the log is full"), "{refused}");
    assert_eq!(cluster.place.service.request_count(&format!("/turn/lamp{number}")), 0);

    cluster.server.run_sql(DATABASE, "DROP TABLE ballast");
    let last = turn_next_lamp(&second, number + 1);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 0);
    assert_eq!(cluster.wait_gate_at("a"), gate);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    drop(agent);
    take_missed(&mut AgentClient::connect_authenticated(&second, AGENT_TOKEN), last + 1);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    assert_eq!(cluster.place.service.request_count(&format!("/turn/lamp{number}")), 0, "it is not done later");
    check_lamps(&cluster, (100..number).chain([last]), last);
    read_record(&cluster, &second, &cookie);
    cluster.verify_record();
}
