//! Approvers, rules that are allowed in place of one call, and agents that are denied again and again.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, agent_gate::AgentClient, browser::BrowserClient, eventually,
};
use serde_json::{Value, json};

/// Returns the rules of the others, and one call that only these people allow.
fn rules(who: &str) -> String {
    format!("sets: {{ owners: [ana] }}\nrules:\n  - {{ pattern: 'turn(door*)', action: ask, {who} }}\n")
}

/// Returns the people: the user who runs the tests is Ana. Ben is another user of this machine.
fn people() -> String {
    let own = nix::unistd::getuid();
    let other = own.as_raw() + 1;
    format!("people: [ {{ id: ana, local: [{own}] }}, {{ id: ben, local: [{other}] }} ]")
}

fn door(way: &str) -> Value {
    json!({ "thing": "door", "way": way })
}

#[test]
fn only_those_whom_the_rule_names_allow_and_anybody_denies() {
    for (who, allowed) in [("from: owners", true), ("from: [ben]", false), ("approvals: 2", false)] {
        let place = GatewayFixture::with_config_and_rules(&people(), &rules(who));
        let gateway = GatewayServer::start(&place);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        agent.request_tool(1, "turn", door("open"));
        let gate = place.wait_gate();
        let output = place.run_as_person(&["gates", "allow", &gate]);
        match who {
            "from: owners" => assert_eq!(output.code, Some(0), "{output:?}"),
            "approvals: 2" => {
                assert_eq!((output.code, output.out.contains("1 of 2 approvals")), (Some(0), true), "{output:?}");
                let row = &place.pending_gates()[0];
                assert_eq!(row["approvals"], json!({ "need": 2, "have": ["ana"], "step": 1, "steps": 1 }), "{row}");
                assert!(place.run_as_person(&["gates", "show", &gate]).out.contains("approvals 1 of 2 (ana)"));
            }
            _ => {
                assert_eq!(output.code, Some(1), "{output:?}");
                assert!(output.err.contains("is not among those who may allow"), "{output:?}");
            }
        }
        if !allowed {
            assert_eq!(place.service.request_count("/turn/door"), 0, "{who}");
            let output = place.run_as_person(&["gates", "deny", &gate]);
            assert_eq!(output.code, Some(0), "{who}: {output:?}");
        }
        let reply = agent.wait_reply(&json!(1));
        assert_eq!(reply["result"]["status"] == "executed", allowed, "{who}: {reply}");
        assert_eq!(place.service.request_count("/turn/door"), usize::from(allowed), "{who}");
    }
}

#[test]
fn whom_nobody_knows_is_no_approver() {
    let place = GatewayFixture::with_config_and_rules(&people(), &rules("from: [zoe]"));
    let output = place.run_as_person(&["serve", "--config", "config.yaml"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("permissions.yaml:3: unknown approver \"zoe\""), "{output:?}");
}

#[test]
fn nobody_in_time_escalates_to_others() {
    let who = "from: [ben], escalate: [ { after: 1, to: owners } ]";
    let place = GatewayFixture::with_config_and_rules(&people(), &rules(who));
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door("open"));
    let gate = place.wait_gate();
    eventually("the second step", || (place.pending_gates()[0]["approvals"]["step"] == 2).then_some(()));
    assert_eq!(place.run_as_person(&["gates", "allow", &gate]).code, Some(0));
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_proposed_rule_covers_what_it_says_for_as_long_as_it_says() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door("open"));
    let gate = place.wait_gate();
    assert_eq!(place.pending_gates()[0]["proposals"], json!(["turn(door, *)"]));
    let stranger = place.run_as_person(&["gates", "allow", &gate, "--scope", "always", "--rule", "turn(*)"]);
    assert_eq!((stranger.code, stranger.err.contains("this rule was not proposed")), (Some(1), true), "{stranger:?}");
    let rule = ["gates", "allow", &gate, "--scope", "always", "--rule", "turn(door, *)", "--for", "8h"];
    assert_eq!(place.run_as_person(&rule).code, Some(0));
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    assert_eq!(agent.call_tool(2, "turn", door("shut"))["status"], "executed");
    let grants = place.run_as_person(&["grants", "list", "--json"]).json();
    let grant = &grants[0];
    assert_eq!(grant["covers"], "anything like turn(door, *)");
    assert!(grant["until"].is_string(), "{grant}");
    agent.request_tool(3, "turn", json!({ "thing": "gate", "way": "open" }));
    place.wait_gate();
}

#[test]
fn repeated_denials_of_an_agent_open_one_gate() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for id in 1..=3 {
        agent.request_tool(id, "turn", json!({ "thing": format!("door{id}") }));
        assert_eq!(place.run_as_person(&["gates", "deny", &place.wait_gate()]).code, Some(0));
        assert_eq!(agent.wait_reply(&json!(id))["error"]["code"], -32001);
    }
    let gates = place.wait_gates(1);
    assert_eq!(gates[0]["kind"], "budget");
    assert!(gates[0]["subject"].as_str().unwrap().contains("May it go on asking?"), "{gates:?}");
    agent.request_tool(4, "turn", json!({ "thing": "door4" }));
    let refused = agent.wait_reply(&json!(4));
    assert!(refused["error"]["data"]["reason"].as_str().unwrap().contains("until a person lets it go on"), "{refused}");
    assert_eq!(place.run_as_person(&["gates", "allow", gates[0]["id"].as_str().unwrap()]).code, Some(0));
    agent.request_tool(5, "turn", json!({ "thing": "door5" }));
    let gates = place.wait_gates(1);
    assert_eq!(gates[0]["subject"], "turn(door5, )");
}

#[test]
fn a_denial_is_listed_and_taken_back() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door("open"));
    assert_eq!(place.run_as_person(&["gates", "deny", &place.wait_gate(), "--reason", "not now"]).code, Some(0));
    agent.wait_reply(&json!(1));
    agent.request_tool(2, "turn", door("open"));
    assert_eq!(agent.wait_reply(&json!(2))["error"]["code"], -32003, "the same is denied without asking");
    let denials = place.run_as_person(&["grants", "denials", "--json"]).json();
    assert_eq!((&denials[0]["tool"], &denials[0]["reason"]), (&json!("turn"), &json!("not now")));
    let id = denials[0]["id"].as_str().unwrap();
    assert!(place.run_as_person(&["grants", "denials"]).out.contains("not now"));
    assert_eq!(place.run_as_person(&["grants", "revoke", id]).code, Some(0));
    assert_eq!(place.run_as_person(&["grants", "denials", "--json"]).json(), json!([]));
    assert_eq!(place.run_as_person(&["grants", "revoke", id]).code, Some(1));
    agent.request_tool(3, "turn", door("open"));
    place.wait_gate();
}

#[test]
fn logins_of_the_console_count_where_two_people_have_to_allow() {
    let people = "web: { users: { ana: pass-of-ana, ben: pass-of-ben } }\npeople: [ { id: Ana, console: [ana] }, { id: Ben, console: [ben] } ]";
    let place = GatewayFixture::with_config_and_rules(
        people,
        &rules("approvals: 2, from: [Ana, Ben]").replace("sets: { owners: [ana] }\n", ""),
    );
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", door("open"));
    let gate = place.wait_gate();
    let path = format!("/console/gates/{gate}");
    for password in ["pass-of-ana", "pass-of-ben"] {
        let entered = BrowserClient::default().post_form(&gateway, "/login", &[("password", password)]);
        let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let visitor = BrowserClient { cookie: Some(cookie), ..BrowserClient::default() };
        let page = visitor.get_page(&gateway, &path);
        let (csrf, digest) = (page.field_value("csrf"), page.field_value("digest"));
        let fields = [("csrf", csrf.as_str()), ("digest", &digest), ("answer", "once"), ("key", password)];
        let response = visitor.post_form(&gateway, &path, &fields);
        assert!(matches!(response.status, 200 | 303), "{}", response.text);
    }
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    place.write_file(
        "config.yaml",
        &place.config_text("people: [ { id: Ana, console: [ana] }, { id: Ben, console: [ben] } ]"),
    );
    let output = place.run(&["policy", "check", "--config", "config.yaml"]);
    assert_eq!(
        (output.code, output.out.contains("a login under `console` that is in `web.users`")),
        (Some(1), true),
        "{output:?}"
    );
}
