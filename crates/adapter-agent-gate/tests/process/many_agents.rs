//! Many agents at once: no reply is missing, and every limit is exact.

use std::{sync::Barrier, thread};

use countersign_testkit::process::{AGENT_TOKEN, GatewayFixture, GatewayServer, agent_gate::AgentClient};
use serde_json::{Value, json};

const AGENTS: usize = 25;
const REQUESTS: usize = 100;
const ASKS: usize = 10;
const PENDING: usize = 4;

const MORE: &str = "rate_limit: { max_pending_approvals: 4, max_requests_per_minute: 100 }";
const RULES: &str = r#"
defaults:
  - { pattern: "look*", action: allow }
  - { pattern: "*", action: ask }
"#;

/// Replies to an agent, by kind.
#[derive(Debug, Default, PartialEq)]
struct ReplyTally {
    executed: usize,
    too_many: usize,
    too_fast: usize,
}

#[test]
fn twenty_five_agents_with_a_hundred_requests_each_get_every_reply() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let agents: Vec<String> =
        (0..AGENTS).map(|agent| format!("{{ id: a{agent}, token: token-{agent}-of-many }}")).collect();
    let config = place.config_text(MORE);
    let config: Vec<&str> = config.lines().filter(|line| !line.starts_with("agents:")).collect();
    place.write_file("config.yaml", &format!("{}\nagents: [ {} ]\n", config.join("\n"), agents.join(", ")));
    let gateway = GatewayServer::start(&place);
    // Nothing is allowed before every refusal is out: that would make room.
    let full = Barrier::new(AGENTS + 1);
    let tallies: Vec<ReplyTally> = thread::scope(|scope| {
        let agents: Vec<_> = (0..AGENTS)
            .map(|number| {
                let (gateway, full) = (&gateway, &full);
                scope.spawn(move || converse(gateway, full, number))
            })
            .collect();
        full.wait();
        for gate in place.wait_gates(AGENTS * PENDING) {
            place.allow_gate(gate["id"].as_str().unwrap());
        }
        agents.into_iter().map(|agent| agent.join().unwrap()).collect()
    });
    let want = || ReplyTally { executed: REQUESTS - ASKS + PENDING, too_many: ASKS - PENDING, too_fast: 3 };
    assert_eq!(tallies, (0..AGENTS).map(|_| want()).collect::<Vec<_>>());
    // One request for each that was executed, and no other.
    let mut paths: Vec<String> = place.service.received_requests().into_iter().map(|request| request.path).collect();
    paths.sort();
    assert_eq!(paths.len(), AGENTS * want().executed);
    paths.dedup();
    assert_eq!(paths.len(), AGENTS * want().executed);
    drop(gateway);
    place.verify_log();
}

/// Returns the number of records of the agent's session.
fn session_records(place: &GatewayFixture) -> usize {
    let log = place.log_path();
    let exported = place.run(&["audit", "export", "--log", log.to_str().unwrap()]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    exported.out.lines().filter(|line| line.contains("agent:default")).count()
}

#[test]
fn a_start_records_nothing_for_an_agent_whose_limits_are_the_same() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let mut gateway = GatewayServer::start(&place);
    AgentClient::connect_authenticated(&gateway, AGENT_TOKEN).call_tool(1, "look", json!({ "thing": "lamp" }));
    gateway.stop();
    let before = session_records(&place);
    let after_start = |more: &str| {
        place.write_file("config.yaml", &place.config_text(more));
        GatewayServer::start(&place).stop();
        session_records(&place)
    };
    assert_eq!((before > 0, after_start(""), after_start(MORE)), (true, before, before + 1));
}

/// Sends all requests at once and reads every reply.
fn converse(gateway: &GatewayServer, full: &Barrier, number: usize) -> ReplyTally {
    let mut agent = AgentClient::connect_authenticated(gateway, &format!("token-{number}-of-many"));
    for id in 0..REQUESTS {
        let thing = format!("a{number}.{id}");
        let tool = if id % (REQUESTS / ASKS) == 0 { "turn" } else { "look" };
        agent.request_tool(id, tool, json!({ "thing": thing }));
    }
    agent.wait_frames(ASKS - PENDING, |reply| reply["error"]["message"] == "Too many pending approvals");
    full.wait();
    let mut tally = ReplyTally::default();
    for id in REQUESTS..REQUESTS + 3 {
        let reply = agent.call_tool(id, "look", json!({ "thing": "more" }));
        tally.too_fast += usize::from(reply["message"] == "Rate limit exceeded");
    }
    for id in 0..REQUESTS {
        let reply = agent.wait_reply(&json!(id));
        match reply["error"]["message"].as_str() {
            None => {
                let data = &reply["result"]["data"];
                let did = data.get("result").unwrap_or(data)["did"].as_str().unwrap();
                assert!(did.ends_with(&format!("/a{number}.{id}")), "{reply}");
                tally.executed += 1;
            }
            Some("Too many pending approvals") => tally.too_many += 1,
            Some(_) => panic!("{reply}"),
        }
    }
    assert_eq!(agent.pending_results(REQUESTS + 3)["queued"], Value::Array(Vec::new()));
    tally
}
