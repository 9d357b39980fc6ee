//! Configurations with which a gateway does not start.

use std::fs;

use countersign_testkit::process::{AGENT_TOKEN, GatewayFixture, GatewayServer, agent_gate::AgentClient};
use rusqlite::Connection;
use serde_json::json;

/// Returns the error of a `serve` that does not start.
fn serve_error(place: &GatewayFixture, flags: &[&str]) -> String {
    let output = place.run(&[&["serve", "--config", "config.yaml"], flags].concat());
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
    output.err
}

#[test]
fn a_configuration_that_is_wrong_is_named_with_file_line_and_key() {
    let place = GatewayFixture::new();
    let good = place.config_text("");
    let lines = good.lines().count();
    let next = lines + 1;
    for (more, file, line, key, what) in [
        ("gatway: {}", "config.yaml", next, "gatway", "unknown key"),
        ("rate_limit: { max_pending: 1 }", "config.yaml", next, "rate_limit.max_pending", "unknown key"),
        ("approval_timeout: soon", "config.yaml", next, "approval_timeout", "expected a whole number from 1"),
        ("web: { password: \"${NOWHERE}\" }", "config.yaml", next, "web.password", "NOWHERE is not set"),
        ("clients: 5", "config.yaml", next, "clients", "expected a mapping"),
        ("web: [", "config.yaml", next, "", ""),
    ] {
        place.write_file("config.yaml", &format!("{}\n{more}\n", good.trim_end()));
        let err = serve_error(&place, &[]);
        let at = format!("{file}:");
        assert!(err.contains("Configuration error") && err.contains(&at), "{more}: {err}");
        if !key.is_empty() {
            assert!(err.contains(&format!("{file}:{}: {key}: ", line - 1)), "{more}: {err}");
        }
        assert!(err.contains(what), "{more}: {err}");
        assert!(!err.contains(AGENT_TOKEN), "{err}");
    }
    place.write_file("config.yaml", &good);
    for (tools, line, key, what) in [
        ("tools:\n  t:\n    args: { a: { validate: \"(\" } }\n", 3, "tools.t.args.a.validate", "Invalid regex pattern"),
        ("tools:\n  t:\n    requst: {}\n", 3, "tools.t.requst", "unknown key"),
    ] {
        place.write_file("tools.yaml", tools);
        let err = serve_error(&place, &[]);
        assert!(err.contains(&format!("tools.yaml:{line}: {key}: ")) && err.contains(what), "{err}");
    }
    fs::remove_file(place.folder.join("tools.yaml")).unwrap();
    assert!(serve_error(&place, &[]).contains("Tools file not found: "));
    let output = place.run(&["serve", "--config", "nowhere.yaml"]);
    assert_eq!((output.code, output.err.contains("nowhere.yaml")), (Some(1), true), "{output:?}");
}

#[test]
fn the_same_tool_in_two_services_is_refused() {
    let place = GatewayFixture::new();
    let good = place.config_text("");
    let second =
        format!("  other: {{ url: {}, auth: {{ type: none }}, tools: tools.yaml }}\nstorage:", place.service.url);
    place.write_file("config.yaml", &good.replace("storage:", &second));
    assert!(serve_error(&place, &[]).contains("Duplicate tool name 'look' in services 'desk' and 'other'"));
}

#[test]
fn rules_that_are_wrong_are_named() {
    for rules in ["defaults: [ { pattern: \"*\", action: DENY } ]\n", "rules: 5\n", "nonsense: []\n", "defaults: [ {\n"]
    {
        let place = GatewayFixture::with_config_and_rules("", rules);
        let err = serve_error(&place, &[]);
        assert!(err.contains("permissions.yaml"), "{rules}: {err}");
    }
}

#[test]
fn an_address_that_others_reach_needs_a_credential_and_tls_or_the_flag() {
    let place = GatewayFixture::new();
    assert!(serve_error(&place, &["--host", "0.0.0.0"]).contains("Use --insecure to allow plaintext WS"));
    let gateway = GatewayServer::start_with(&place, &["--host", "0.0.0.0", "--insecure"]);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    drop(gateway);
    place.write_file("config.yaml", "gateway: { port: 0 }\n");
    let err = serve_error(&place, &["--host", "0.0.0.0", "--insecure"]);
    assert!(err.contains("needs a credential"), "{err}");
}

#[test]
fn a_wrong_record_or_folder_is_reported_once_with_a_fix() {
    let place = GatewayFixture::new();
    std::fs::create_dir(place.data_dir()).unwrap();
    std::fs::write(place.log_path(), "no record ".repeat(1000)).unwrap();
    let err = serve_error(&place, &[]);
    assert_eq!(err.matches("countersign.db").count(), 1, "{err}");
    assert!(err.contains("run `countersign doctor`"), "{err}");
    std::fs::remove_dir_all(place.data_dir()).unwrap();
    std::fs::write(place.data_dir(), "").unwrap();
    assert!(
        serve_error(&place, &[]).contains("it is not a folder; choose another directory with --data or storage.path")
    );
    assert!(serve_error(&place, &["--data", "data/"]).contains("it is not a folder"));
    let err = serve_error(&place, &["--data", "data/deep"]);
    assert!(err.contains("one of its parents is not a folder"), "{err}");
    std::os::unix::fs::symlink("nowhere", place.folder.join("astray")).unwrap();
    let err = serve_error(&place, &["--data", "astray"]);
    assert!(err.contains("it is a dangling symlink"), "{err}");
    let err = serve_error(&place, &["--data", "astray/deep"]);
    assert!(err.contains("astray is a dangling symlink"), "{err}");
    std::os::unix::fs::symlink("circle", place.folder.join("circle")).unwrap();
    let err = serve_error(&place, &["--data", "circle"]);
    assert!(!err.contains("a dangling symlink"), "{err}");
}

#[test]
fn a_second_gateway_on_the_same_record_is_refused() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let err = serve_error(&place, &[]);
    assert!(err.contains("another gateway uses this data directory"), "{err}");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    // People still reach the one that runs.
    agent.request_tool(2, "turn", json!({ "thing": "door" }));
    place.wait_gate();
}

#[test]
fn tables_of_the_old_program_are_left_as_they_are() {
    let place = GatewayFixture::new();
    fs::create_dir(place.data_dir()).unwrap();
    let old = place.data_dir().join("agentpass.db");
    let connection = Connection::open(&old).unwrap();
    connection.execute("CREATE TABLE audit_log (id integer primary key, tool_name text)", []).unwrap();
    connection.execute("CREATE TABLE pending_requests (request_id text primary key)", []).unwrap();
    connection.execute("INSERT INTO audit_log (tool_name) VALUES ('x')", []).unwrap();
    drop(connection);
    let before = fs::read(&old).unwrap();
    place.write_file("config.yaml", &place.config_text("").replace("data/countersign.db", "data/agentpass.db"));
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    assert_eq!(agent.call_tool(1, "look", json!({ "thing": "a" }))["status"], "executed");
    gateway.wait_for_log("agentpass.db");
    drop(gateway);
    assert_eq!(fs::read(&old).unwrap(), before);
    place.verify_log();
}
