//! Two nodes and one database, which the test starts itself. Skipped, and said so, where PostgreSQL is not installed.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer, agent_gate::AgentClient,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::postgres_server::PostgresServer;

const FILE: &str = "storage: { type: sqlite, path: data/countersign.db }";
const PASSWORD: &str = "tulips-in-may";

/// Nodes in one folder, each with a configuration and a data directory of its name.
struct ClusterFixture {
    place: GatewayFixture,
    server: PostgresServer,
    database: String,
}

impl ClusterFixture {
    /// Makes it; none where PostgreSQL is not installed.
    fn create() -> Option<Self> {
        let server = PostgresServer::start(&[], |_| {})?;
        let database = server.make_database();
        let place = GatewayOptions::new().with_config(&format!("web: {{ password: {PASSWORD} }}\n")).create();
        let text = std::fs::read_to_string(place.folder.join("config.yaml")).unwrap();
        assert!(text.contains(FILE));
        let url = server.url("postgres", &database);
        for name in ["a", "b"] {
            let storage = format!(
                "storage: {{ type: postgres, url: '{url}', statement_timeout: 2s }}
agents_dir: shared-agents
cluster: {{ name: {name}, advertise: 'http://127.0.0.1:0', secret: a-secret-of-the-cluster, lease: 1s }}"
            );
            place.write_file(&format!("{name}.yaml"), &text.replace(FILE, &storage));
        }
        Some(Self { place, server, database })
    }

    /// Starts the node of this name.
    fn start(&self, name: &str) -> GatewayServer {
        let mut command = self.place.binary_command();
        command.args(["serve", "--config", &format!("{name}.yaml"), "--data", &format!("data-{name}")]);
        GatewayServer::spawn(command)
    }

    /// Starts the first node, which serves the realm, and then the second.
    fn start_both(&self) -> (GatewayServer, GatewayServer) {
        let first = self.start("a");
        first.wait_for_log("node a serves the realm");
        let second = self.start("b");
        second.wait_for_log("node a serves the realm");
        (first, second)
    }

    /// Runs a command of a person at the machine of this node.
    fn run_at(&self, name: &str, arguments: &[&str]) -> Value {
        let (config, data) = (format!("{name}.yaml"), format!("data-{name}"));
        let output = self.place.run(&[arguments, &["--config", &config, "--data", &data, "--json"]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        output.json()
    }

    /// Returns the only gate that waits, as the socket of this node lists it.
    fn wait_gate_at(&self, name: &str) -> String {
        loop {
            let gates = self.run_at(name, &["gates", "list"]);
            if let Some(gate) = gates.as_array().unwrap().first() {
                return gate["id"].as_str().unwrap().to_owned();
            }
        }
    }

    fn allow_at(&self, name: &str, gate: &str) {
        let (config, data) = (format!("{name}.yaml"), format!("data-{name}"));
        let output = self.place.run(&["gates", "allow", gate, "--config", &config, "--data", &data]);
        assert_eq!(output.code, Some(0), "{output:?}");
    }

    /// Checks that the chain of the record holds, whatever happened to its nodes.
    fn verify_record(&self) {
        let verified = self.run_at("a", &["audit", "verify"]);
        assert_eq!(verified["flaw"], Value::Null, "{verified}");
    }

    fn owner(&self) -> Value {
        self.run_at("a", &["cluster", "status"])["realms"][0]["owner"].clone()
    }
}

fn look(agent: &mut AgentClient, id: u64, thing: &str) {
    let answer = agent.call_tool(id, "look", json!({ "thing": thing }));
    assert_eq!(answer["status"], "executed", "{answer}");
}

/// Takes the reply to the first request, which came while the agent was away or comes now.
fn take_missed(agent: &mut AgentClient, id: u64) {
    let listed = agent.pending_results(id);
    let missed = &listed["queued"][0];
    if missed.is_null() {
        let reply = agent.wait_reply(&json!(1));
        assert_eq!(reply["result"]["status"], "executed", "{reply}");
    } else {
        assert_eq!((&missed["request_id"], &missed["status"]), (&json!("1"), &json!("executed")), "{listed}");
    }
}

#[test]
fn any_node_answers_and_the_other_takes_over_from_one_that_is_killed() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    // Agents, people at the command line and browsers come to either node.
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    look(&mut agent, 9, "a");
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    assert_eq!(cluster.wait_gate_at("a"), gate);
    let browser = second.http_client();
    let login = browser.post("/api/auth/login", &json!({ "password": PASSWORD }));
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let browser = browser.with_header("cookie", &cookie);
    assert_eq!(browser.get("/console/").status, 200);

    let refused = cluster.place.run(&["serve", "--config", "a.yaml", "--data", "data-c"]);
    assert!(refused.code == Some(1) && refused.err.contains("another process is node a"), "{refused:?}");

    first.kill();
    second.wait_for_log("node b serves the realm");
    assert_eq!(cluster.owner(), "b");
    assert_eq!(cluster.wait_gate_at("b"), gate);
    assert_eq!(browser.get("/console/").status, 200, "a login outlives the node");
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    take_missed(&mut agent, 3);

    // The one that was killed comes back and relays.
    let first = cluster.start("a");
    first.wait_for_log("node b serves the realm");
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    look(&mut agent, 4, "b");
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn an_owner_that_was_stopped_beyond_its_lease_does_nothing_when_it_goes_on() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");

    first.send_signal(Signal::SIGSTOP);
    second.wait_for_log("node b serves the realm");
    assert_eq!(cluster.wait_gate_at("b"), gate);
    first.send_signal(Signal::SIGCONT);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    first.wait_for_log("node b serves the realm");
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    take_missed(&mut agent, 2);
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn a_realm_moves_in_order_and_nothing_is_lost_on_the_way() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (mut first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");

    let moved = cluster.run_at("a", &["cluster", "move", "b"]);
    assert_eq!(moved["realms"][0]["owner"], "b", "{moved}");
    second.wait_for_log("node b serves the realm");
    assert_eq!(cluster.wait_gate_at("a"), gate);
    let moved = cluster.run_at("b", &["cluster", "drain", "b"]);
    assert_eq!(moved["realms"][0]["owner"], "a", "{moved}");
    let unknown = cluster.place.run(&["cluster", "move", "c", "--config", "a.yaml"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("there is no node c"), "{unknown:?}");
    let refused = cluster.place.run(&["cluster", "drain", "a", "--config", "a.yaml"]);
    assert!(refused.code == Some(1) && refused.err.contains("no other node is alive"), "{refused:?}");
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);

    // A node that is ended in order leaves the realm to the other at once; a drained one stays out of it.
    assert_eq!(first.stop().code, Some(0));
    second.wait_for_log("no node serves the realm");
    drop(second);
    let second = cluster.start("b");
    second.wait_for_log("node b serves the realm");
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    look(&mut agent, 2, "a");
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}

#[test]
fn nodes_go_on_after_the_database_was_killed() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("b");
    cluster.server.kill();
    first.wait_for_log("this node gives the realm up");
    cluster.server.restart();
    cluster.server.run_sql(&cluster.database, "SELECT 1");
    loop {
        if !cluster.owner().is_null() {
            break;
        }
    }
    assert_eq!(cluster.wait_gate_at("a"), gate);
    cluster.allow_at("b", &gate);
    cluster.place.service.wait_requests("/turn/door", 1);
    drop((first, second));
    assert_eq!(cluster.place.service.request_count("/turn/door"), 1);
    cluster.verify_record();
}
