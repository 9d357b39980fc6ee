//! Questions of MCP servers to people, during a call.

use std::fs;

use countersign_testkit::process::{AGENT_TOKEN, ASKING_SERVER, GatewayFixture, agent_gate::AgentClient, eventually};
use serde_json::{Value, json};

const OPEN: &str = "mcp__asking__open_door";
const LOG_IN: &str = "mcp__asking__log_in";
const RULES: &str = r#"
rules:
  - { pattern: "mcp__asking__*", action: allow }
"#;

/// Creates a gateway with the approved server `asking`.
fn fixture(rules: &str, config: &str) -> GatewayFixture {
    let server =
        format!("mcp: {{ servers: {{ asking: {{ command: python3, args: [{ASKING_SERVER:?}], cwd: share }} }} }}\n");
    let place = GatewayFixture::with_config_and_rules(&format!("{server}{config}"), rules);
    fs::create_dir(place.folder.join("share")).unwrap();
    let approved = place.run(&["mcp-servers", "approve", "asking", "--yes", "--config", "config.yaml"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    place
}

fn calls(place: &GatewayFixture) -> usize {
    fs::read_to_string(place.folder.join("share/calls")).unwrap_or_default().lines().count()
}

/// Waits for the question, and returns its id and how it is shown.
fn question(place: &GatewayFixture) -> (String, String) {
    let gate = place.wait_gate();
    let shown = place.run_as_person(&["gates", "show", &gate]).out;
    (gate, shown)
}

fn answer(place: &GatewayFixture, gate: &str, words: &str) {
    let output = place.run_as_person(&["gates", "answer", gate, words]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// Returns what the server heard, from the result of its call.
fn heard(reply: &Value) -> Value {
    let data = reply.get("data").unwrap_or_else(|| &reply["result"]["data"]);
    let text = data["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {reply}"));
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_server_asks_a_person_and_gets_the_checked_answer() {
    let place = fixture(RULES, "");
    let gateway = place.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool("1", OPEN, json!({}));
    let (name, shown) = question(&place);
    for part in
        ["MCP server asking, which runs open_door for agent:default, asks.", "> Who opens the door?", "> Your name"]
    {
        assert!(shown.contains(part), "{shown}");
    }
    answer(&place, &name, "Ann");
    // Of the second field, an answer that does not fit is asked for again.
    let (hours, shown) = question(&place);
    assert!(shown.contains("Field 2 of 2") && shown.contains("a whole number of at least 1"), "{shown}");
    answer(&place, &hours, "soon");
    let (again, shown) = question(&place);
    assert!(again != hours && shown.contains("The last answer does not fit"), "{shown}");
    answer(&place, &again, "3");
    let reply = agent.wait_reply(&json!("1"));
    assert_eq!(heard(&reply), json!({ "action": "accept", "content": { "name": "Ann", "hours": 3 } }));
    let declared: Value = serde_json::from_slice(&fs::read(place.folder.join("share/capabilities")).unwrap()).unwrap();
    assert!(declared["elicitation"]["form"].is_object() && declared["elicitation"]["url"].is_object(), "{declared}");
    assert!(place.pending_gates().is_empty() && calls(&place) == 1);
    place.verify_log();
}

#[test]
fn an_address_is_shown_with_its_host_and_a_decline_is_the_persons() {
    let place = fixture(RULES, "");
    let gateway = place.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for (id, words, action) in
        [("1", Some("Accept"), "accept"), ("2", Some("Cancel"), "cancel"), ("3", None, "decline")]
    {
        agent.request_tool(id, LOG_IN, json!({}));
        let (gate, shown) = question(&place);
        assert!(shown.contains("Host: login.example") && shown.contains("https://login.example/start?x=1"), "{shown}");
        assert!(!shown.contains("free text"), "{shown}");
        let other = place.run_as_person(&["gates", "answer", &gate, "maybe"]);
        assert!(other.code != Some(0) && other.err.contains("only its choices answer it"), "{other:?}");
        match words {
            Some(words) => answer(&place, &gate, words),
            None => place.deny_gate(&gate),
        }
        assert_eq!(heard(&agent.wait_reply(&json!(id))), json!({ "action": action }));
    }
}

#[test]
fn a_question_that_nobody_may_answer_or_answers_is_cancelled_and_the_record_says_why() {
    let denied = format!("{RULES}  - {{ pattern: 'mcp_question(asking)', action: deny, description: No questions }}\n");
    for (rules, config, why) in
        [(denied.as_str(), "", "denied by rule \"mcp_question(asking)\""), (RULES, "clarify_timeout: 1\n", "expired")]
    {
        let place = fixture(rules, config);
        let gateway = place.start();
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        let reply = agent.call_tool("1", OPEN, json!({}));
        assert_eq!(heard(&reply), json!({ "action": "cancel" }), "{why}");
        let log = place.log_path();
        let record = place.run(&["audit", "tail", "--log", log.to_str().unwrap()]).out;
        assert!(record.contains("mcp_question") && record.contains(why), "{record}");
    }
}

#[test]
fn a_question_ends_with_the_gateway_that_was_killed_and_its_call_is_not_done() {
    let place = fixture(RULES, "");
    let gateway = place.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool("1", OPEN, json!({}));
    let (gate, _) = question(&place);
    gateway.kill();
    let gateway = place.start();
    assert!(place.pending_gates().is_empty());
    let late = place.run_as_person(&["gates", "answer", &gate, "Ann"]);
    assert!(late.code != Some(0) && late.err.contains("withdrawn"), "{late:?}");
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let pending = eventually("the outcome of the call", || {
        let pending = agent.pending_results("2").to_string();
        pending.contains("nknown").then_some(pending)
    });
    assert!(!pending.contains("executed") && calls(&place) == 1, "{pending}");
    place.verify_log();
}

#[test]
fn a_call_that_waits_for_an_answer_ends_with_the_approval_of_its_server() {
    let place = fixture(RULES, "");
    let gateway = place.start();
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool("1", OPEN, json!({}));
    let (gate, _) = question(&place);
    let revoked = place.run(&["mcp-servers", "revoke", "asking", "--config", "config.yaml"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let reply = agent.wait_reply(&json!("1"));
    assert!(reply.get("data").is_none(), "{reply}");
    eventually("the end of the question", || place.pending_gates().is_empty().then_some(()));
    let late = place.run_as_person(&["gates", "answer", &gate, "Ann"]);
    assert!(late.code != Some(0) && late.err.contains("withdrawn"), "{late:?}");
    assert_eq!(calls(&place), 1);
}
