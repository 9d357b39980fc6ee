//! Two nodes and one database, and what tests do with them.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer,
    agent_gate::{AgentClient, AgentSocketEvent},
    api::{ApiEvent, ApiEvents},
};
use serde_json::{Value, json};

use crate::postgres_server::PostgresServer;

const FILE: &str = "storage: { type: sqlite, path: data/countersign.db }";
const PASSWORD: &str = "tulips-in-may";

/// Nodes in one folder, each with a configuration and a data directory of its name.
pub(crate) struct ClusterFixture {
    pub(crate) place: GatewayFixture,
    pub(crate) server: PostgresServer,
    pub(crate) database: String,
}

impl ClusterFixture {
    /// Makes it; none where PostgreSQL is not installed.
    pub(crate) fn create() -> Option<Self> {
        let server = PostgresServer::start(&[], |_| {})?;
        let database = server.make_database();
        let url = server.url("postgres", &database);
        Some(Self::with_urls(server, database, [&url, &url]))
    }

    /// Makes it with one address of the database for both nodes.
    pub(crate) fn with_url(server: PostgresServer, database: String, url: &str) -> Self {
        Self::with_urls(server, database, [url, url])
    }

    /// Makes it with an address of the database for each node.
    pub(crate) fn with_urls(server: PostgresServer, database: String, urls: [&str; 2]) -> Self {
        let place = GatewayOptions::new().with_config(&format!("web: {{ password: {PASSWORD} }}\n")).create();
        let text = std::fs::read_to_string(place.folder.join("config.yaml")).unwrap();
        assert!(text.contains(FILE));
        for (name, url) in ["a", "b"].into_iter().zip(urls) {
            let storage = format!(
                "storage: {{ type: postgres, url: '{url}', statement_timeout: 2s }}
agents_dir: shared-agents
log: {{ level: info }}
cluster: {{ name: {name}, advertise: 'http://127.0.0.1:0', secret: a-secret-of-the-cluster, lease: 1s }}"
            );
            place.write_file(&format!("{name}.yaml"), &text.replace(FILE, &storage));
        }
        Self { place, server, database }
    }

    /// Adds lines to the configuration of both nodes.
    pub(crate) fn add_config(&self, lines: &str) {
        for name in ["a.yaml", "b.yaml"] {
            let text = std::fs::read_to_string(self.place.folder.join(name)).unwrap();
            self.place.write_file(name, &format!("{text}{lines}\n"));
        }
    }

    /// Returns the command line of the node of this name.
    pub(crate) fn node_command(&self, name: &str) -> Command {
        let mut command = self.place.binary_command();
        command.args(["serve", "--config", &format!("{name}.yaml"), "--data", &format!("data-{name}")]);
        command
    }

    /// Starts the node of this name.
    pub(crate) fn start(&self, name: &str) -> GatewayServer {
        GatewayServer::spawn(self.node_command(name))
    }

    /// Starts the first node, which serves the realm, and then the second.
    pub(crate) fn start_both(&self) -> (GatewayServer, GatewayServer) {
        let first = self.start("a");
        first.wait_for_log("node a serves the realm");
        let second = self.start("b");
        second.wait_for_log("node a serves the realm");
        (first, second)
    }

    /// Runs a command of a person at the machine of this node.
    pub(crate) fn run_at(&self, name: &str, arguments: &[&str]) -> Value {
        let (config, data) = (format!("{name}.yaml"), format!("data-{name}"));
        let output = self.place.run(&[arguments, &["--config", &config, "--data", &data, "--json"]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        output.json()
    }

    /// Returns the only gate that waits, as the socket of this node lists it.
    pub(crate) fn wait_gate_at(&self, name: &str) -> String {
        loop {
            let gates = self.run_at(name, &["gates", "list"]);
            if let Some(gate) = gates.as_array().unwrap().first() {
                return gate["id"].as_str().unwrap().to_owned();
            }
        }
    }

    pub(crate) fn allow_at(&self, name: &str, gate: &str) {
        let (config, data) = (format!("{name}.yaml"), format!("data-{name}"));
        let output = self.place.run(&["gates", "allow", gate, "--config", &config, "--data", &data]);
        assert_eq!(output.code, Some(0), "{output:?}");
    }

    /// Checks that the chain of the record holds, whatever happened to its nodes.
    pub(crate) fn verify_record(&self) {
        let verified = self.run_at("a", &["audit", "verify"]);
        assert_eq!(verified["flaw"], Value::Null, "{verified}");
    }

    /// Asks about a call of an agent, as its hook at the machine of this node.
    pub(crate) fn run_hook_at(&self, name: &str) -> std::process::Output {
        let input = json!({
            "session_id": "s", "transcript_path": "", "cwd": "/tmp", "hook_event_name": "PreToolUse",
            "tool_name": "Bash", "tool_input": { "command": "ls" }, "tool_use_id": "t",
        });
        let mut command = self.place.binary_command();
        command.args(["hook", "claude", "--data", &format!("data-{name}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    pub(crate) fn owner(&self) -> Value {
        self.run_at("a", &["cluster", "status"])["realms"][0]["owner"].clone()
    }
}

/// Returns the cookie of a login.
pub(crate) fn log_in(gateway: &GatewayServer) -> String {
    let login = gateway.http_client().post("/api/auth/login", &json!({ "password": PASSWORD }));
    login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

pub(crate) fn look(agent: &mut AgentClient, id: u64, thing: &str) {
    let answer = agent.call_tool(id, "look", json!({ "thing": thing }));
    assert_eq!(answer["status"], "executed", "{answer}");
}

/// Reports whether a gate was opened.
pub(crate) fn is_gate(event: &ApiEvent) -> bool {
    event.name == "gate" && event.data["event"] == "opened"
}

/// Reads all events of the record from its start. Checks that none is missing, and that none is older than the one before it.
pub(crate) fn read_record(cluster: &ClusterFixture, node: &GatewayServer, cookie: &str) -> Vec<ApiEvent> {
    let end = cluster.run_at("a", &["audit", "verify"])["records"].as_u64().unwrap();
    let mut stream = ApiEvents::open(&node.address, "?after=start", &[("cookie", cookie)]).unwrap();
    let is_end = |event: &ApiEvent| event.data["lsn"].as_u64() >= Some(end);
    let mut events = stream.read_until(is_end);
    events.retain(|event| event.data["lsn"].is_u64());
    let positions: Vec<u64> = events.iter().filter_map(|event| event.data["lsn"].as_u64()).collect();
    assert_eq!(positions, (1..=end).collect::<Vec<_>>());
    let times: Vec<&str> = events.iter().map(|event| event.data["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    events
}

/// Turns a lamp. Returns the reply.
pub(crate) fn turn_lamp(agent: &mut AgentClient, number: u64) -> Value {
    agent.call_tool(number, "turn", json!({ "thing": format!("lamp{number}") }))
}

/// Turns one lamp after the other until that works. Returns the number of the last one.
pub(crate) fn turn_next_lamp(gateway: &GatewayServer, first: u64) -> u64 {
    (first..).find(|number| try_turn_lamp(gateway, *number)).unwrap()
}

/// Turns a lamp on a connection of its own. Returns false if the call was refused, or the connection was cut.
fn try_turn_lamp(gateway: &GatewayServer, number: u64) -> bool {
    let Some(mut agent) = AgentClient::try_connect_at(&gateway.address) else { return false };
    let auth = json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": AGENT_TOKEN }, "id": "auth-1" });
    let params = json!({ "tool": "turn", "args": { "thing": format!("lamp{number}") } });
    let call = json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": number });
    agent.try_send_frame(auth.to_string());
    agent.try_send_frame(call.to_string());
    while let AgentSocketEvent::Frame(frame) = agent.next() {
        if frame["id"] == number {
            return frame["result"]["status"] == "executed";
        }
    }
    false
}

/// Checks that each of these lamps was turned once, and no lamp up to `last` more often.
pub(crate) fn check_lamps(cluster: &ClusterFixture, turned: impl IntoIterator<Item = u64>, last: u64) {
    let count = |number: u64| cluster.place.service.request_count(&format!("/turn/lamp{number}"));
    for number in turned {
        assert_eq!(count(number), 1, "{number}");
    }
    for number in 0..=last {
        assert!(count(number) <= 1, "{number}");
    }
}

/// Returns the ids of events.
pub(crate) fn event_ids(events: &[ApiEvent]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_deref().unwrap()).collect()
}

/// Takes the reply to the first request, which came while the agent was away or comes now.
pub(crate) fn take_missed(agent: &mut AgentClient, id: u64) {
    let listed = agent.pending_results(id);
    match listed["queued"].as_array().unwrap().iter().find(|missed| missed["request_id"] == "1") {
        Some(missed) => assert_eq!(missed["status"], "executed", "{listed}"),
        None => {
            let reply = agent.wait_reply(&json!(1));
            assert_eq!(reply["result"]["status"], "executed", "{reply}");
        }
    }
}
