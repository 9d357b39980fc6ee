//! Every durable step of ask, approve, execute and reply as the last one before a power cut.

use std::{
    fs,
    path::{Path, PathBuf},
};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, Latch, agent_gate::AgentClient, service::ServiceBehavior,
};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Facts of a record.
#[derive(Clone, Debug)]
struct FactsRow {
    facts: String,
}

fn records(log: &Path) -> Vec<FactsRow> {
    let connection = Connection::open(log).unwrap();
    let mut query = connection.prepare("SELECT facts FROM events ORDER BY lsn").unwrap();
    let rows = query.query_map([], |row| Ok(FactsRow { facts: row.get(0)? })).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Returns the file in which commits lie until they are moved to the log itself.
fn journal(log: &Path) -> PathBuf {
    log.with_extension("db-wal")
}

/// Returns the ends of the commits in a journal. Source: <https://www.sqlite.org/fileformat.html#the_write_ahead_log>.
fn commits(journal: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_be_bytes(journal[at..at + 4].try_into().unwrap());
    let frame = 24 + usize::try_from(number(8)).unwrap();
    let frames = (32..journal.len()).step_by(frame).filter(|at| at + frame <= journal.len());
    // A frame that ends a commit has the size of the database after it. Frames of an older round have another salt.
    frames.filter(|at| number(at + 4) > 0 && journal[at + 8..at + 16] == journal[16..24]).map(|at| at + frame).collect()
}

/// Returns the data as a power cut would have left it: up to `end` in the journal, and a torn piece of what came next.
fn cut(whole: &GatewayFixture, journal: &[u8], end: usize) -> GatewayFixture {
    const TORN: usize = 1000;
    let place = GatewayFixture::new();
    fs::create_dir(place.data_dir()).unwrap();
    fs::copy(whole.log_path(), place.log_path()).unwrap();
    fs::write(self::journal(&place.log_path()), &journal[..journal.len().min(end + TORN)]).unwrap();
    place
}

/// State of the one call in the record.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum CallProgressStep {
    /// None: the agent has received nothing either.
    Unknown,
    Pending,
    /// A person allowed it.
    Allowed,
    Started,
    Over,
    Received,
}

fn is(record: &FactsRow, word: &str) -> bool {
    record.facts.starts_with(&format!("{{\"{word}\""))
}

fn step(records: &[FactsRow]) -> CallProgressStep {
    let holds = |word: &str| records.iter().any(|record| is(record, word));
    match () {
        () if holds("received") => CallProgressStep::Received,
        () if holds("ended") => CallProgressStep::Over,
        () if holds("started") => CallProgressStep::Started,
        () if holds("allowed") => CallProgressStep::Allowed,
        () if holds("requested") => CallProgressStep::Pending,
        () => CallProgressStep::Unknown,
    }
}

#[test]
fn whatever_was_the_last_commit_the_action_happens_at_most_once() {
    let whole = GatewayFixture::new();
    let latch = Latch::default();
    whole.service.set_behavior("/turn/door", ServiceBehavior::Late(latch.clone()));
    let gateway = GatewayServer::start(&whole);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    whole.allow_gate(&whole.wait_gate());
    // The service's request is recorded before it, and the agent's reply as well.
    whole.service.wait_requests("/turn/door", 1);
    assert_eq!(step(&records(&whole.log_path())), CallProgressStep::Started);
    latch.open();
    assert_eq!(agent.wait_reply(&json!(1))["result"]["status"], "executed");
    assert!(step(&records(&whole.log_path())) >= CallProgressStep::Over);
    agent.confirm_received();
    assert_eq!(agent.pending_results(2)["queued"], json!([]));
    gateway.kill();
    let journal = fs::read(journal(&whole.log_path())).unwrap();
    let commits = commits(&journal);
    let all = records(&cut(&whole, &journal, journal.len()).log_path());
    let (mut steps, mut seen) = (Vec::new(), 0);
    for end in commits {
        let known = records(&cut(&whole, &journal, end).log_path());
        assert!(known.len() >= seen, "{} records behind {seen}", known.len());
        seen = known.len();
        goes_on(&cut(&whole, &journal, end), step(&known), seen);
        steps.push(step(&known));
    }
    assert_eq!(seen, all.len(), "the journal holds every commit");
    steps.dedup();
    use CallProgressStep::{Allowed, Over, Pending, Received, Started, Unknown};
    assert_eq!(steps, [Unknown, Pending, Allowed, Started, Over, Received]);
}

/// Starts a gateway on a record with so many entries and sees what becomes of the request.
fn goes_on(place: &GatewayFixture, known: CallProgressStep, last: usize) {
    let gateway = GatewayServer::start(place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let missed = agent.pending_results(2)["queued"].take();
    let did = || place.service.request_count("/turn/door");
    let done = json!({ "status": "executed", "data": { "result": { "did": "/turn/door" } } });
    match known {
        CallProgressStep::Unknown | CallProgressStep::Received => {
            assert_eq!((missed, place.pending_gates(), did()), (json!([]), Vec::new(), 0), "{last}");
        }
        CallProgressStep::Pending => {
            assert_eq!(did(), 0, "{last}");
            place.allow_gate(&place.wait_gate());
            assert_eq!(agent.wait_reply(&json!(1))["result"], done, "{last}");
            assert_eq!(did(), 1, "{last}");
        }
        CallProgressStep::Allowed => {
            // An approver who had allowed it need not do so again.
            assert_eq!(place.pending_gates(), Vec::<Value>::new(), "{last}");
            assert_eq!(agent.wait_reply(&json!(1))["result"], done, "{last}");
            assert_eq!(did(), 1, "{last}");
        }
        // The service may have done it before the cut.
        CallProgressStep::Started => {
            assert_eq!(missed, json!([{ "request_id": "1", "status": "error", "data": "Outcome unknown" }]), "{last}");
            assert_eq!(agent.wait_reply(&json!(1))["error"]["code"], -32004, "{last}");
            assert_eq!(did(), 0, "{last}");
        }
        CallProgressStep::Over => {
            assert_eq!((&missed[0]["request_id"], &missed[0]["status"]), (&json!("1"), &json!("executed")), "{last}");
            assert_eq!(agent.wait_reply(&json!(1))["result"], done, "{last}");
            assert_eq!(did(), 0, "{last}");
        }
    }
    drop(gateway);
    place.verify_log();
}
