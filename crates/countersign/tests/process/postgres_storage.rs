//! The record in a PostgreSQL database, which the test starts itself. Skipped, and said so, where PostgreSQL is not installed.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer,
    agent_gate::{AgentClient, executed_result},
};
use serde_json::json;

use crate::postgres_server::PostgresServer;

const FILE: &str = "storage: { type: sqlite, path: data/countersign.db }";

/// Writes a second configuration, with the record in the database `name`.
fn use_database(place: &GatewayFixture, server: &PostgresServer, name: &str) {
    let text = std::fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    let url = server.url("postgres", name);
    let storage = format!("storage: {{ type: postgres, url: '{url}' }}");
    assert!(text.contains(FILE));
    place.write_file("file.yaml", &text);
    place.write_file("config.yaml", &text.replace(FILE, &storage));
}

#[test]
fn a_gateway_keeps_its_record_in_a_database_that_dies_and_every_command_reads_it_there() {
    let Some(server) = PostgresServer::start(&[], |_| {}) else { return };
    let name = server.make_database();
    let place = GatewayOptions::new().create();
    use_database(&place, &server, &name);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    agent.request_tool(2, "turn", json!({ "thing": "stove", "way": "on" }));
    let gate = place.wait_gate();
    assert!(!place.log_path().exists());

    let second = place.run(&["serve", "--config", "config.yaml", "--data", "other"]);
    assert!(second.code == Some(1) && second.err.contains("another gateway uses this database"), "{second:?}");
    let doctor = place.run(&["doctor", "--config", "config.yaml"]);
    assert!(doctor.out.contains("chain verified"), "{doctor:?}");
    let made = place.run(&["backup", "kept", "--config", "config.yaml", "--json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(place.folder.join("kept/data/countersign.db").is_file());
    let refused = place.run(&["storage", "migrate", "--to", "sqlite", "--config", "config.yaml"]);
    assert!(refused.code == Some(1) && refused.err.contains("stop it first"), "{refused:?}");

    drop(gateway);
    server.kill();
    let doctor = place.run(&["doctor", "--config", "config.yaml"]);
    assert!(doctor.code == Some(1) && doctor.out.contains("is not reachable"), "{doctor:?}");
    server.restart();
    server.run_sql("postgres", "SELECT 1");
    let waiting = place.run(&["gates", "list", "--json", "--config", "config.yaml"]).json();
    assert_eq!(waiting[0]["id"], json!(gate));
    let gateway = GatewayServer::start(&place);
    assert_eq!(place.run(&["gates", "allow", &gate, "--config", "config.yaml"]).code, Some(0));
    place.service.wait_requests("/turn/stove", 1);
    drop(gateway);
    let verified = place.run(&["audit", "verify", "--json", "--config", "config.yaml"]);
    assert_eq!((verified.code, &verified.json()["flaw"]), (Some(0), &json!(null)), "{verified:?}");
    let tail = place.run(&["audit", "tail", "--config", "config.yaml"]);
    assert!(tail.out.contains("turn"), "{tail:?}");
    assert_eq!(place.run(&["sessions", "list", "--config", "config.yaml"]).code, Some(0));

    // A backup of a database becomes a database again, or a file.
    let other = server.make_database();
    let text = std::fs::read_to_string(place.folder.join("config.yaml")).unwrap();
    place.write_file("other.yaml", &text.replace(&format!("dbname={name}"), &format!("dbname={other}")));
    for (config, data) in [("other.yaml", "restored"), ("file.yaml", "restored-file")] {
        let restored = place.run(&["restore", "kept", "--config", config, "--data", data, "--json"]);
        assert_eq!((restored.code, &restored.json()["head"]), (Some(0), &made.json()["head"]), "{restored:?}");
    }
    assert!(!place.folder.join("restored/countersign.db").exists());
    assert!(place.folder.join("restored-file/countersign.db").exists());
    let verified = place.run(&["audit", "verify", "--config", "other.yaml", "--data", "restored"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

#[test]
fn a_record_moves_to_a_database_and_back_and_the_gateway_goes_on() {
    let Some(server) = PostgresServer::shared() else { return };
    let name = server.make_database();
    let place = GatewayOptions::new().create();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" })), executed_result(json!({ "did": "/look/a" })));
    use_database(&place, server, &name);
    let migrate = |to: &str| {
        place.run(&["storage", "migrate", "--to", to, "--config", "config.yaml", "--data", "data", "--json"])
    };
    let refused = migrate("postgres");
    assert!(refused.code == Some(1) && refused.err.contains("stop it first"), "{refused:?}");
    drop(gateway);
    let moved = migrate("postgres");
    assert_eq!(moved.code, Some(0), "{moved:?}");
    assert_eq!(migrate("postgres").json()["copied"], json!(0));

    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "b" })), executed_result(json!({ "did": "/look/b" })));
    drop(gateway);
    let back = migrate("sqlite");
    assert_eq!((back.code, back.json()["resumed"].as_u64()), (Some(0), moved.json()["records"].as_u64()), "{back:?}");
    place.verify_log();
    let head = back.json()["head"].as_str().unwrap().to_owned();
    for config in ["config.yaml", "file.yaml"] {
        let verified = place.run(&["audit", "verify", "--head", &head, "--config", config]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}
