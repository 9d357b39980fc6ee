//! The Python client of the original: the ends of its calls after its connection broke.

use std::collections::BTreeMap;

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES,
    agent_gate::{AgentClient, AgentSocketEvent},
    eventually,
    service::ServiceBehavior,
};
use serde_json::{Value, json};

/// End of a call of the client: its data, or one of its classes of errors with the text.
#[derive(Clone, Debug, PartialEq)]
enum SdkOutcome {
    Data(Value),
    Denied(String),
    Timeout(String),
    Failed(i64, String),
}

/// Python client. It counts its ids from 1, and matches ids whether they are numbers or digits.
struct PythonClient {
    agent: AgentClient,
    counter: u64,
    open: Vec<u64>,
    outcomes: BTreeMap<u64, SdkOutcome>,
}

impl PythonClient {
    fn connect(gateway: &GatewayServer) -> Self {
        Self {
            agent: AgentClient::connect_authenticated(gateway, AGENT_TOKEN),
            counter: 0,
            open: Vec::new(),
            outcomes: BTreeMap::new(),
        }
    }

    fn next_id(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn tool_request(&mut self, tool: &str, args: Value) -> u64 {
        let id = self.next_id();
        self.open.push(id);
        self.agent.request_tool(id, tool, args);
        id
    }

    /// Reads one frame as its loop does: a frame without a waiter is skipped.
    fn read_frame(&mut self) {
        let AgentSocketEvent::Frame(frame) = self.agent.next() else { panic!("the line ended") };
        let Some(id) = number(&frame["id"]).filter(|id| self.open.contains(id)) else { return };
        let text = || frame["error"]["message"].as_str().unwrap().to_owned();
        let outcome = match frame["error"]["code"].as_i64() {
            None => SdkOutcome::Data(frame["result"]["data"].clone()),
            Some(-32001 | -32003) => SdkOutcome::Denied(text()),
            Some(-32002) => SdkOutcome::Timeout(text()),
            Some(code) => SdkOutcome::Failed(code, text()),
        };
        self.resolve(id, outcome);
    }

    fn wait_for_outcome(&mut self, id: u64) -> SdkOutcome {
        while self.open.contains(&id) {
            self.read_frame();
        }
        self.outcomes[&id].clone()
    }

    /// Opens another connection. The first frame after its question is the answer to it, and each row with an id of its own is
    /// the end of that call.
    fn reconnect(&mut self, gateway: &GatewayServer) -> Value {
        // The old connection is closed first: an agent has one.
        self.agent = AgentClient::connect(gateway);
        self.agent = AgentClient::connect_authenticated(gateway, AGENT_TOKEN);
        let id = self.next_id();
        self.agent.send_frame(json!({ "jsonrpc": "2.0", "method": "get_pending_results", "params": {}, "id": id }));
        let AgentSocketEvent::Frame(mut frame) = self.agent.next() else { panic!("the line ended") };
        assert_eq!(frame["id"], id, "{frame}");
        for row in frame["result"]["results"].as_array().unwrap() {
            let Some(id) = number(&row["request_id"]).filter(|id| self.open.contains(id)) else { continue };
            let result: Value = serde_json::from_str(row["result"].as_str().unwrap()).unwrap();
            let text = || result["data"].as_str().unwrap_or_default().to_owned();
            let outcome = match result["status"].as_str().unwrap() {
                // The row's data is taken for the whole result, whose data is missing.
                "executed" => SdkOutcome::Data(result["data"].get("data").cloned().unwrap_or_default()),
                "denied" => SdkOutcome::Denied(text()),
                _ => SdkOutcome::Failed(-32004, text()),
            };
            self.resolve(id, outcome);
        }
        frame["result"].take()
    }

    fn resolve(&mut self, id: u64, outcome: SdkOutcome) {
        self.open.retain(|open| *open != id);
        self.outcomes.insert(id, outcome);
    }
}

fn number(id: &Value) -> Option<u64> {
    id.as_u64().or_else(|| id.as_str()?.parse().ok())
}

/// Waits until so many ends of calls are in the record.
fn wait_for_ends(place: &GatewayFixture, count: usize) {
    let log = place.log_path();
    eventually("the ends in the record", || {
        let tail = place.run(&["audit", "tail", "--log", log.to_str().unwrap(), "-n", "50", "--json"]);
        let ends =
            tail.out.lines().filter(|line| line.contains(r#""kind":"call""#) && line.contains(r#""event":"ended""#));
        (ends.count() >= count).then_some(())
    });
}

#[test]
fn a_call_that_is_decided_while_its_client_is_away_ends_as_it_would_have_on_the_line() {
    let door = || json!({ "thing": "door" });
    let done = SdkOutcome::Data(json!({ "result": { "did": "/turn/door" } }));
    for (more, decide, want) in [
        ("", "allow", done),
        ("", "deny", SdkOutcome::Denied("Denied by user".to_owned())),
        ("approval_timeout: 1", "nobody", SdkOutcome::Timeout("Approval timed out".to_owned())),
    ] {
        let place = GatewayFixture::with_config_and_rules(more, RULES);
        let gateway = GatewayServer::start(&place);
        let mut sdk = PythonClient::connect(&gateway);
        let call = sdk.tool_request("turn", door());
        let gate = place.wait_gate();
        sdk.agent = AgentClient::connect(&gateway);
        match decide {
            "allow" => place.allow_gate(&gate),
            "deny" => place.deny_gate(&gate),
            _ => drop(place.wait_gates(0)),
        }
        wait_for_ends(&place, 1);
        let listed = sdk.reconnect(&gateway);
        let ids = |form: &str| listed[form].as_array().unwrap().iter().map(|row| row["request_id"].clone()).collect();
        let (results, queued): (Vec<Value>, Vec<Value>) = (ids("results"), ids("queued"));
        assert_eq!((results, queued), (vec![json!(gate)], vec![json!("1")]), "{decide}");
        assert_eq!(sdk.wait_for_outcome(call), want, "{decide}");
    }
}

#[test]
fn a_call_that_is_decided_once_its_client_is_back_ends_there() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut sdk = PythonClient::connect(&gateway);
    let call = sdk.tool_request("turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    sdk.reconnect(&gateway);
    let next = sdk.tool_request("look", json!({ "thing": "a" }));
    assert_eq!(sdk.wait_for_outcome(next), SdkOutcome::Data(json!({ "did": "/look/a" })));
    place.allow_gate(&gate);
    assert_eq!(sdk.wait_for_outcome(call), SdkOutcome::Data(json!({ "result": { "did": "/turn/door" } })));
}

#[test]
fn results_that_the_list_has_no_room_for_come_as_well() {
    let place = GatewayFixture::new();
    let text = "x".repeat(400 << 10);
    for thing in ["door", "tap", "gas"] {
        let large = json!({ "text": text }).to_string();
        place.service.set_behavior(&format!("/turn/{thing}"), ServiceBehavior::Answer(200, "application/json", large));
    }
    let gateway = GatewayServer::start(&place);
    let mut sdk = PythonClient::connect(&gateway);
    let calls = ["door", "tap", "gas"].map(|thing| sdk.tool_request("turn", json!({ "thing": thing })));
    let gates = place.wait_gates(3);
    sdk.agent = AgentClient::connect(&gateway);
    for gate in gates {
        place.allow_gate(gate["id"].as_str().unwrap());
    }
    wait_for_ends(&place, 3);
    let listed = sdk.reconnect(&gateway);
    assert_eq!(listed["queued"].as_array().unwrap().len(), 1, "the frame has room for one");
    for call in calls {
        assert_eq!(sdk.wait_for_outcome(call), SdkOutcome::Data(json!({ "result": { "text": text } })));
    }
    sdk.agent.confirm_received();
    let nothing = json!({ "results": [], "queued": [] });
    assert_eq!(sdk.agent.pending_results(99), nothing);
}
