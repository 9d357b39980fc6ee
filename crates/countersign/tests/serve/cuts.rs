//! Every durable step of ask, approve, execute and reply as the last one before a power cut.

use std::{fs, path::Path};

use rusqlite::Connection;
use serde_json::json;

use crate::{
    agent::Agent,
    gateway::Gateway,
    place::{Place, TOKEN},
};

/// A record: its position and what it says.
#[derive(Clone, Debug)]
struct Record {
    lsn: i64,
    facts: String,
}

fn records(log: &Path) -> Vec<Record> {
    let connection = Connection::open(log).unwrap();
    let mut query = connection.prepare("SELECT lsn, facts FROM events ORDER BY lsn").unwrap();
    let rows = query.query_map([], |row| Ok(Record { lsn: row.get(0)?, facts: row.get(1)? })).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Leaves nothing behind `last`, as if it had been the last record that was written.
fn cut(log: &Path, last: i64) {
    let connection = Connection::open(log).unwrap();
    for statement in [
        format!("DELETE FROM contents WHERE lsn > {last}"),
        format!("DELETE FROM events WHERE lsn > {last}"),
        "DELETE FROM snapshots".to_owned(),
        "DELETE FROM views".to_owned(),
        "DELETE FROM view_positions".to_owned(),
    ] {
        connection.execute(&statement, []).unwrap();
    }
}

/// What the record says of the one call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// Nothing: the agent has heard nothing either.
    Unknown,
    Asked,
    Started,
    Over,
    Received,
}

fn is(record: &Record, word: &str) -> bool {
    record.facts.starts_with(&format!("{{\"{word}\""))
}

fn step(records: &[Record]) -> Step {
    let holds = |word: &str| records.iter().any(|record| is(record, word));
    match () {
        () if holds("received") => Step::Received,
        () if holds("ended") => Step::Over,
        () if holds("started") => Step::Started,
        () if holds("requested") => Step::Asked,
        () => Step::Unknown,
    }
}

#[test]
fn whatever_was_the_last_record_the_action_happens_at_most_once() {
    let whole = Place::new();
    let gateway = Gateway::start(&whole);
    let mut agent = Agent::join(&gateway, TOKEN);
    agent.request(1, "turn", json!({ "thing": "door" }));
    whole.allow(&whole.gate());
    assert_eq!(agent.reply(&json!(1))["result"]["status"], "executed");
    agent.settle();
    assert_eq!(agent.pending(2)["queued"], json!([]));
    gateway.kill();
    let all = records(&whole.log());
    let asked = all.iter().position(|record| is(record, "requested")).unwrap();
    let mut steps = Vec::new();
    for at in asked..=all.len() {
        // A batch is never partly there: what is decided together ends with one of these.
        let ends = ["opened", "allowed", "started", "ended", "received"];
        if at > asked && !ends.iter().any(|end| is(&all[at - 1], end)) {
            continue;
        }
        let known = step(&all[..at]);
        let last = all[at - 1].lsn;
        let place = Place::new();
        fs::create_dir(place.data()).unwrap();
        fs::copy(whole.log(), place.log()).unwrap();
        cut(&place.log(), last);
        goes_on(&place, known, last);
        steps.push(known);
    }
    steps.dedup();
    assert_eq!(steps, [Step::Unknown, Step::Asked, Step::Started, Step::Over, Step::Received]);
}

/// Starts a gateway on a record that ends at `last` and sees what becomes of the request.
fn goes_on(place: &Place, known: Step, last: i64) {
    let gateway = Gateway::start(place);
    let mut agent = Agent::join(&gateway, TOKEN);
    let missed = agent.pending(2)["queued"].take();
    let did = || place.service.count("/turn/door");
    let done = json!({ "status": "executed", "data": { "result": { "did": "/turn/door" } } });
    match known {
        Step::Unknown | Step::Received => {
            assert_eq!((missed, place.gates(), did()), (json!([]), Vec::new(), 0), "{last}");
        }
        Step::Asked => {
            // Whoever had allowed it need not do so again.
            for gate in place.gates() {
                place.allow(gate["id"].as_str().unwrap());
            }
            assert_eq!(agent.reply(&json!(1))["result"], done, "{last}");
            assert_eq!(did(), 1, "{last}");
        }
        // The service may have done it before the cut.
        Step::Started => {
            assert_eq!(missed, json!([{ "request_id": "1", "status": "error", "data": "Outcome unknown" }]), "{last}");
            assert_eq!(agent.reply(&json!(1))["error"]["code"], -32004, "{last}");
            assert_eq!(did(), 0, "{last}");
        }
        Step::Over => {
            assert_eq!((&missed[0]["request_id"], &missed[0]["status"]), (&json!("1"), &json!("executed")), "{last}");
            assert_eq!(agent.reply(&json!(1))["result"], done, "{last}");
            assert_eq!(did(), 0, "{last}");
        }
    }
    drop(gateway);
    place.verify();
}
