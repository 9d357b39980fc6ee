//! Who has to allow, rules that are allowed in place of one call, and agents that are denied again and again.

use countersign_testkit::process::{
    AGENT_TOKEN, Gateway, GatewayFixture, agent_gate::AgentClient, browser::Browser, eventually,
};
use serde_json::{Value, json};

/// The rules of the others, and one call that only these people allow.
fn rules(who: &str) -> String {
    format!("sets: {{ owners: [ana] }}\nrules:\n  - {{ pattern: 'turn(door*)', action: ask, {who} }}\n")
}

/// Whoever runs the tests is Ana. Ben is another user of this machine.
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
        let place = GatewayFixture::with(&people(), &rules(who));
        let gateway = Gateway::start(&place);
        let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
        agent.request(1, "turn", door("open"));
        let gate = place.gate();
        let output = place.people(&["gates", "allow", &gate]);
        match who {
            "from: owners" => assert_eq!(output.code, Some(0), "{output:?}"),
            "approvals: 2" => {
                assert_eq!((output.code, output.out.contains("1 of 2 allow it")), (Some(0), true), "{output:?}");
                let row = &place.gates()[0];
                assert_eq!(row["approvals"], json!({ "need": 2, "have": ["ana"], "step": 1, "steps": 1 }), "{row}");
                assert!(place.people(&["gates", "show", &gate]).out.contains("allowed   by 1 of 2 (ana)"));
            }
            _ => {
                assert_eq!(output.code, Some(1), "{output:?}");
                assert!(output.err.contains("is not among those who may allow"), "{output:?}");
            }
        }
        if !allowed {
            assert_eq!(place.service.count("/turn/door"), 0, "{who}");
            let output = place.people(&["gates", "deny", &gate]);
            assert_eq!(output.code, Some(0), "{who}: {output:?}");
        }
        let reply = agent.reply(&json!(1));
        assert_eq!(reply["result"]["status"] == "executed", allowed, "{who}: {reply}");
        assert_eq!(place.service.count("/turn/door"), usize::from(allowed), "{who}");
    }
}

#[test]
fn whom_nobody_knows_is_no_approver() {
    let place = GatewayFixture::with(&people(), &rules("from: [zoe]"));
    let output = place.people(&["serve", "--config", "config.yaml"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("permissions.yaml:3: there is no person \"zoe\""), "{output:?}");
}

#[test]
fn nobody_in_time_escalates_to_others() {
    let who = "from: [ben], escalate: [ { after: 1, to: owners } ]";
    let place = GatewayFixture::with(&people(), &rules(who));
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", door("open"));
    let gate = place.gate();
    eventually("the second step", || (place.gates()[0]["approvals"]["step"] == 2).then_some(()));
    assert_eq!(place.people(&["gates", "allow", &gate]).code, Some(0));
    assert_eq!(agent.reply(&json!(1))["result"]["status"], "executed");
    drop(gateway);
    place.verify();
}

#[test]
fn a_proposed_rule_covers_what_it_says_for_as_long_as_it_says() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", door("open"));
    let gate = place.gate();
    assert_eq!(place.gates()[0]["proposals"], json!(["turn(door, *)"]));
    let stranger = place.people(&["gates", "allow", &gate, "--scope", "always", "--rule", "turn(*)"]);
    assert_eq!((stranger.code, stranger.err.contains("this rule was not proposed")), (Some(1), true), "{stranger:?}");
    let rule = ["gates", "allow", &gate, "--scope", "always", "--rule", "turn(door, *)", "--for", "8h"];
    assert_eq!(place.people(&rule).code, Some(0));
    assert_eq!(agent.reply(&json!(1))["result"]["status"], "executed");
    assert_eq!(agent.call(2, "turn", door("shut"))["status"], "executed");
    let grants = place.people(&["grants", "list", "--json"]).json();
    let grant = &grants[0];
    assert_eq!(grant["covers"], "anything like turn(door, *)");
    assert!(grant["until"].is_string(), "{grant}");
    agent.request(3, "turn", json!({ "thing": "gate", "way": "open" }));
    place.gate();
}

#[test]
fn an_agent_that_is_denied_again_and_again_is_asked_about_once() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    for id in 1..=3 {
        agent.request(id, "turn", json!({ "thing": format!("door{id}") }));
        assert_eq!(place.people(&["gates", "deny", &place.gate()]).code, Some(0));
        assert_eq!(agent.reply(&json!(id))["error"]["code"], -32001);
    }
    let gates = place.waits(1);
    assert_eq!(gates[0]["kind"], "budget");
    assert!(gates[0]["subject"].as_str().unwrap().contains("May it go on asking?"), "{gates:?}");
    agent.request(4, "turn", json!({ "thing": "door4" }));
    let refused = agent.reply(&json!(4));
    assert!(refused["error"]["data"]["reason"].as_str().unwrap().contains("until a person lets it go on"), "{refused}");
    assert_eq!(place.people(&["gates", "allow", gates[0]["id"].as_str().unwrap()]).code, Some(0));
    agent.request(5, "turn", json!({ "thing": "door5" }));
    let gates = place.waits(1);
    assert_eq!(gates[0]["subject"], "turn(door5, )");
}

#[test]
fn a_denial_is_listed_and_taken_back() {
    let place = GatewayFixture::new();
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", door("open"));
    assert_eq!(place.people(&["gates", "deny", &place.gate(), "--reason", "not now"]).code, Some(0));
    agent.reply(&json!(1));
    agent.request(2, "turn", door("open"));
    assert_eq!(agent.reply(&json!(2))["error"]["code"], -32003, "the same is denied without asking");
    let denials = place.people(&["grants", "denials", "--json"]).json();
    assert_eq!((&denials[0]["tool"], &denials[0]["reason"]), (&json!("turn"), &json!("not now")));
    let id = denials[0]["id"].as_str().unwrap();
    assert!(place.people(&["grants", "denials"]).out.contains("not now"));
    assert_eq!(place.people(&["grants", "revoke", id]).code, Some(0));
    assert_eq!(place.people(&["grants", "denials", "--json"]).json(), json!([]));
    assert_eq!(place.people(&["grants", "revoke", id]).code, Some(1));
    agent.request(3, "turn", door("open"));
    place.gate();
}

#[test]
fn logins_of_the_console_count_where_two_people_have_to_allow() {
    let people = "web: { users: { ana: pass-of-ana, ben: pass-of-ben } }\npeople: [ { id: Ana, console: [ana] }, { id: Ben, console: [ben] } ]";
    let place =
        GatewayFixture::with(people, &rules("approvals: 2, from: [Ana, Ben]").replace("sets: { owners: [ana] }\n", ""));
    let gateway = Gateway::start(&place);
    let mut agent = AgentClient::join(&gateway, AGENT_TOKEN);
    agent.request(1, "turn", door("open"));
    let gate = place.gate();
    let path = format!("/console/gates/{gate}");
    for password in ["pass-of-ana", "pass-of-ben"] {
        let entered = Browser::default().post(&gateway, "/login", &[("password", password)]);
        let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let visitor = Browser { cookie: Some(cookie), ..Browser::default() };
        let page = visitor.get(&gateway, &path);
        let (csrf, digest) = (page.field("csrf"), page.field("digest"));
        let fields = [("csrf", csrf.as_str()), ("digest", &digest), ("answer", "once"), ("key", password)];
        let response = visitor.post(&gateway, &path, &fields);
        assert!(matches!(response.status, 200 | 303), "{}", response.text);
    }
    assert_eq!(agent.reply(&json!(1))["result"]["status"], "executed");
    place.write("config.yaml", &place.config("people: [ { id: Ana, console: [ana] }, { id: Ben, console: [ben] } ]"));
    let output = place.run(&["policy", "check", "--config", "config.yaml"]);
    assert_eq!(
        (output.code, output.out.contains("a login under `console` that is in `web.users`")),
        (Some(1), true),
        "{output:?}"
    );
}
