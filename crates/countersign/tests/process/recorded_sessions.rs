//! Sessions, read from the record of a gateway and of a demo.

use countersign_testkit::process::{AGENT_TOKEN, GatewayFixture, GatewayServer, agent_gate::AgentClient};
use serde_json::{Value, json};

#[test]
fn the_sessions_of_agents_are_listed_shown_and_exported_while_the_gateway_runs_and_after() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.call_tool(1, "look", json!({ "thing": "cat" }));
    agent.request_tool(2, "turn", json!({ "thing": "door" }));
    place.wait_gate();
    let run = |arguments: &[&str]| place.run(&[&["sessions"], arguments, &["--config", "config.yaml"]].concat());
    let look = || {
        let listed = run(&["list", "--json"]).json();
        assert_eq!(listed[0]["id"], json!("agent:default"), "{listed}");
        assert_eq!(
            (&listed[0]["calls"], &listed[0]["waiting"], &listed[0]["messages"]),
            (&json!(2), &json!(1), &json!(0))
        );
        let text = run(&["list"]).out;
        let first = text.lines().next().unwrap();
        let end = "Z, 2 calls, 1 pending approval  default";
        assert!(first.starts_with("agent:default  2") && first.ends_with(end), "{text}");
        let shown = run(&["show", "default"]).out;
        assert!(shown.contains("  calls     2, 1 pending approval\n") && shown.contains("done: look(cat)"), "{shown}");
        let entries = run(&["show", "default", "--json"]).json()["entries"].as_array().unwrap().len();
        let exported = run(&["export", "agent:default"]).out;
        let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), entries);
        assert!(lines.iter().all(|line| line["session"] == json!("agent:default") && line["chain"].is_string()));
    };
    look();
    drop(agent);
    gateway.stop();
    look();
    for (arguments, expected) in [
        (&["show", "nobody"][..], "there is no session nobody"),
        (&["export", "default", "--format", "html"], "has no conversation: export it as jsonl"),
        (&["show", "e"], "there is no session e"),
    ] {
        let output = run(arguments);
        assert_eq!((output.code, output.err.contains(expected)), (Some(1), true), "{output:?}");
    }
}

#[test]
fn a_conversation_is_exported_as_a_page_that_runs_nothing() {
    let place = GatewayFixture::new();
    let demo = place.folder.join("demo");
    let demo = demo.to_str().unwrap();
    assert_eq!(place.run(&["demo", "--no", "--dir", demo]).code, Some(0));
    let log = format!("{demo}/record.db");
    let listed = place.run(&["sessions", "list", "--json", "--log", &log]).json();
    let id = listed[0]["id"].as_str().unwrap();
    assert!(listed[0]["messages"].as_u64() > Some(2), "{listed}");
    let page = place.run(&["sessions", "export", id, "--format", "html", "--log", &log]);
    assert_eq!(page.code, Some(0), "{page:?}");
    assert!(page.out.starts_with("<!doctype html>") && page.out.contains("<article class=\"assistant\">"), "{page:?}");
    assert!(!page.out.contains("<script"), "{page:?}");
}
