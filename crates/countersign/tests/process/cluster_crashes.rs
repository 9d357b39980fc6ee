//! Nodes that are killed at each step of a call.

use std::process::{Child, Stdio};

use countersign_testkit::process::{AGENT_TOKEN, Latch, agent_gate::AgentClient, eventually, service::ServiceBehavior};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::cluster_fixture::{ClusterFixture, event_ids, log_in, read_record, take_missed};

/// Last thing that an owner does about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastStep {
    /// It records the request, which is not committed.
    Request,
    /// It records the approval, which is not committed.
    Approval,
    /// It records the start of the call, which is not committed.
    Start,
    /// It records the outcome, which is not committed.
    Outcome,
    /// It sends the reply.
    Reply,
}

impl LastStep {
    /// Returns the first word of the facts that are not committed.
    fn held_word(self) -> Option<&'static str> {
        match self {
            Self::Request => Some("requested"),
            Self::Approval => Some("allowed"),
            Self::Start => Some("started"),
            Self::Outcome => Some("ended"),
            Self::Reply => None,
        }
    }
}

/// Lets the database hold back the commit of facts that begin with this word.
fn hold_commits(cluster: &ClusterFixture, word: &str) {
    let function = format!(
        "CREATE OR REPLACE FUNCTION hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.facts LIKE '{{\"{word}\"%' THEN PERFORM pg_sleep(600); END IF;
             RETURN NEW;
         END $$"
    );
    cluster.server.run_sql(&cluster.database, &function);
}

/// Starts to allow a gate at the machine of this node.
fn spawn_allow(cluster: &ClusterFixture, name: &str, gate: &str) -> Child {
    let mut command = cluster.place.binary_command();
    command.args(["gates", "allow", gate, "--config", &format!("{name}.yaml"), "--data", &format!("data-{name}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns the result of a request that an agent missed.
fn find_missed(agent: &mut AgentClient, id: u64, request: u64) -> Option<Value> {
    let listed = agent.pending_results(id);
    let queued = listed["queued"].as_array().unwrap();
    let id = json!(request.to_string());
    queued.iter().find(|missed| missed["request_id"] == id).cloned()
}

/// Returns the status of a request that ended while the agent was away, or ends now.
fn wait_status(agent: &mut AgentClient, id: u64, request: u64) -> String {
    let status = match find_missed(agent, id, request) {
        Some(missed) => missed["status"].clone(),
        None => agent.wait_reply(&json!(request))["result"]["status"].clone(),
    };
    status.as_str().unwrap_or("error").to_owned()
}

#[test]
fn a_call_ends_once_at_the_other_node_whatever_was_the_last_step_of_a_killed_owner() {
    use LastStep::{Approval, Outcome, Reply, Request, Start};
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    hold_commits(&cluster, "nothing");
    let trigger =
        "CREATE TRIGGER hold_commit BEFORE INSERT ON countersign.events FOR EACH ROW EXECUTE FUNCTION hold_commit()";
    cluster.server.run_sql(&cluster.database, trigger);
    let (mut owner, mut other) = (("a", first), ("b", second));
    for (turn, step) in (1..).zip([Request, Approval, Start, Outcome, Reply]) {
        let (request, thing) = (turn * 10, format!("door{turn}"));
        let path = format!("/turn/{thing}");
        let did = || cluster.place.service.request_count(&path);
        if let Some(word) = step.held_word() {
            hold_commits(&cluster, word);
        }
        let mut agent = AgentClient::connect_authenticated(&other.1, AGENT_TOKEN);
        agent.request_tool(request, "turn", json!({ "thing": thing }));
        let allowing = (step != Request).then(|| spawn_allow(&cluster, other.0, &cluster.wait_gate_at(other.0)));
        if step == Reply {
            assert_eq!(agent.wait_reply(&json!(request))["result"]["status"], "executed");
        } else {
            let held = "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid <> pg_backend_pid()";
            cluster.server.wait_for_row(held);
        }

        owner.1.kill();
        hold_commits(&cluster, "nothing");
        other.1.wait_for_log(&format!("node {} serves the realm", other.0));
        drop((agent, allowing.map(|mut child| child.wait().unwrap())));
        let mut agent = AgentClient::connect_authenticated(&other.1, AGENT_TOKEN);
        match step {
            Request => {
                assert_eq!(find_missed(&mut agent, request + 1, request), None);
                assert_eq!((cluster.run_at(other.0, &["gates", "list"]), did()), (json!([]), 0));
                // The agent has no reply, and asks again.
                agent.request_tool(request + 2, "turn", json!({ "thing": thing }));
                cluster.allow_at(other.0, &cluster.wait_gate_at(other.0));
                assert_eq!(agent.wait_reply(&json!(request + 2))["result"]["status"], "executed");
            }
            Approval => {
                assert_eq!(did(), 0);
                cluster.allow_at(other.0, &cluster.wait_gate_at(other.0));
                assert_eq!(wait_status(&mut agent, request + 1, request), "executed");
            }
            Start | Reply => {
                assert_eq!(wait_status(&mut agent, request + 1, request), "executed");
            }
            Outcome => {
                let missed = json!({ "request_id": request.to_string(), "status": "error", "data": "Outcome unknown" });
                assert_eq!(find_missed(&mut agent, request + 1, request), Some(missed));
            }
        }
        assert_eq!((cluster.run_at(other.0, &["gates", "list"]), did()), (json!([]), 1), "{step:?}");
        agent.confirm_received();
        assert_eq!(find_missed(&mut agent, request + 3, request), None, "{step:?}");
        let restarted = cluster.start(owner.0);
        restarted.wait_for_log(&format!("node {} serves the realm", other.0));
        (owner, other) = (other, (owner.0, restarted));
    }
    read_record(&cluster, &other.1, &log_in(&owner.1));
    cluster.verify_record();
}

#[test]
fn nodes_that_are_killed_at_once_go_on_with_a_gate_and_do_not_repeat_a_call() {
    let Some(cluster) = ClusterFixture::create() else { return };
    let (first, second) = cluster.start_both();
    let cookie = log_in(&second);
    let latch = Latch::default();
    cluster.place.service.set_behavior("/turn/lamp", ServiceBehavior::Late(latch.clone()));
    let mut agent = AgentClient::connect_authenticated(&second, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = cluster.wait_gate_at("a");
    agent.request_tool(2, "turn", json!({ "thing": "lamp" }));
    cluster.place.service.wait_requests("/turn/lamp", 1);
    let seen = read_record(&cluster, &second, &cookie);

    first.send_signal(Signal::SIGKILL);
    second.send_signal(Signal::SIGKILL);
    first.kill();
    second.kill();
    latch.open();
    drop(agent);
    let (first, second) = (cluster.start("a"), cluster.start("b"));
    eventually("an owner", || (!cluster.owner().is_null()).then_some(()));
    assert_eq!(cluster.wait_gate_at("b"), gate);
    let mut agent = AgentClient::connect_authenticated(&first, AGENT_TOKEN);
    let missed = json!({ "request_id": "2", "status": "error", "data": "Outcome unknown" });
    assert_eq!(find_missed(&mut agent, 3, 2), Some(missed));
    cluster.allow_at("b", &gate);
    take_missed(&mut agent, 4);
    for path in ["/turn/door", "/turn/lamp"] {
        assert_eq!(cluster.place.service.request_count(path), 1, "{path}");
    }
    let whole = read_record(&cluster, &second, &cookie);
    assert!(event_ids(&whole).starts_with(&event_ids(&seen)));
    cluster.verify_record();
}
