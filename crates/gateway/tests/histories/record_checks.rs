//! Compares the record with the answers to requests, with the actions that were done, and with the follower. Of the engine it knows only
//! the events.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::{
    call,
    engine::Event,
    gate::{self, GateResolution},
    id::{CallId, Lsn},
    session,
    tool::RepeatMode,
};
use countersign_runtime::store::{Log as _, MemoryLog, Partition, StoredContent, StoredRecord};
use serde_json::Value;

use crate::fixture::{HistoryFixture, MessageOutcome, ToolRequestOutcome};

/// Compares all of it.
pub(crate) fn check_record(log: &MemoryLog, world: &HistoryFixture) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let log = log.restart();
    let (records, contents, report) = runtime.block_on(async {
        let records = log.read_records(Partition::ZERO, Lsn(0), usize::MAX).await.unwrap();
        let lsns: Vec<Lsn> = records.iter().map(|record| record.lsn).collect();
        let contents = log.read_contents(Partition::ZERO, &lsns).await.unwrap();
        (records, contents, log.verify_chain(Partition::ZERO, None).await.unwrap())
    });
    assert_eq!(report.flaw, None, "the chain does not verify");
    let contents: Vec<Option<Arc<str>>> = contents.into_iter().map(|content| content.and_then(text)).collect();
    check_follower(&records, world);
    check_gates(&records, world);
    check_messages(&records, &contents, world);
    check_calls(&records, &contents, world);
    world.with_ledger(|ledger| ledger.figures.facts += report.records);
    world.check();
}

/// Checks that the follower saw the record, each fact once and in its place.
fn check_follower(records: &[StoredRecord], world: &HistoryFixture) {
    let seen = world.with_ledger(|ledger| ledger.seen.clone());
    for record in records {
        let facts: Value = serde_json::from_str(&record.facts).unwrap();
        // The last life wrote its end after everything that a reader could still see.
        let Some(seen) = seen.get(&record.lsn.0) else { continue };
        assert_eq!(*seen, facts, "{}", record.lsn);
    }
    let last = seen.keys().next_back().copied().unwrap_or(0);
    assert_eq!(u64::try_from(seen.len()).unwrap(), last, "the follower saw all of it");
    assert!(
        last <= records.last().map_or(0, |record| record.lsn.0),
        "{last} was told, and the record does not have it"
    );
}

/// Checks that a gate opens once and is resolved once, as the reply to every approver says.
fn check_gates(records: &[StoredRecord], world: &HistoryFixture) {
    let mut opened = BTreeSet::new();
    let mut resolved = BTreeMap::new();
    for record in records {
        match event(record) {
            Event::Gate(gate::Event::Opened { gate, .. }) => assert!(opened.insert(gate), "{gate} opens twice"),
            Event::Gate(gate::Event::Resolved { gate, resolution, .. }) => {
                assert!(resolved.insert(gate, resolution).is_none(), "{gate} is resolved twice");
            }
            _ => {}
        }
    }
    assert_eq!(opened, resolved.keys().copied().collect(), "at rest every gate is resolved");
    world.with_ledger(|ledger| ledger.figures.gates += resolved.len() as u64);
    let resolved: BTreeMap<String, &str> =
        resolved.iter().map(|(gate, became)| (gate.to_string(), word(became))).collect();
    for (gate, reported) in world.with_ledger(|ledger| ledger.answered.clone()) {
        assert_eq!(resolved.get(&gate).copied(), Some(reported.as_str()), "{gate} was told to be so");
    }
}

const fn word(resolution: &GateResolution) -> &'static str {
    match resolution {
        GateResolution::Allowed { .. } => "allowed",
        GateResolution::Denied => "denied",
        GateResolution::Answered => "answered",
        GateResolution::Declined => "declined",
        GateResolution::Granted => "granted",
        GateResolution::Expired => "expired",
        GateResolution::Withdrawn => "withdrawn",
    }
}

/// Checks that a message that was taken exists once, and a refused one never.
fn check_messages(records: &[StoredRecord], contents: &[Option<Arc<str>>], world: &HistoryFixture) {
    for (text, outcome) in world.with_ledger(|ledger| ledger.messages.clone()) {
        let sent_text = format!("{text}.");
        let has_it = |content: &Option<Arc<str>>| content.as_ref().is_some_and(|content| content.contains(&sent_text));
        let entries = records.iter().zip(contents).filter(|(record, content)| {
            matches!(event(record), Event::Session(session::Event::Entry { .. })) && has_it(content)
        });
        let (times, is_anywhere) = (entries.count(), contents.iter().any(has_it));
        match outcome {
            MessageOutcome::Taken => assert!(is_anywhere, "{text} was taken and is nowhere"),
            MessageOutcome::Refused => assert_eq!(times, 0, "{text} was refused and is there"),
            MessageOutcome::Nothing => {}
        }
        assert!(times <= 1, "{text} is there {times} times");
        if outcome == MessageOutcome::Taken {
            world.with_ledger(|ledger| {
                let figures = &mut ledger.figures;
                *match text.split('_').next().unwrap() {
                    "browser" => &mut figures.browsers,
                    "client" => &mut figures.clients,
                    "omp" => &mut figures.omp,
                    _ => &mut figures.gjc,
                } += 1;
            });
        }
    }
}

/// Checks that each call starts with permission and once, no action happens without a start, and its outcome is the reported one.
fn check_calls(records: &[StoredRecord], contents: &[Option<Arc<str>>], world: &HistoryFixture) {
    let mut things: BTreeMap<CallId, String> = BTreeMap::new();
    let (mut allowed, mut started, mut ended) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut once, mut at_peers, mut resumed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (record, content) in records.iter().zip(contents) {
        let Event::Call(event) = event(record) else { continue };
        match event {
            call::Event::Proposed { call, repeat, .. } => {
                if repeat == RepeatMode::Once {
                    once.insert(call);
                }
                let proposal: Value = serde_json::from_str(content.as_deref().unwrap_or("null")).unwrap();
                let arguments = &proposal["arguments"];
                let thing = arguments["thing"].as_str().or_else(|| arguments["path"].as_str());
                assert!(things.insert(call, thing.unwrap_or_default().to_owned()).is_none(), "{call} is wanted twice");
            }
            call::Event::Allowed { call, .. } => assert!(allowed.insert(call), "{call} is allowed twice"),
            call::Event::Started { call, line, .. } => {
                assert!(allowed.contains(&call), "{call} starts without leave");
                // An idempotent call may be started again after a crash.
                let is_again = resumed.remove(&call) || !once.contains(&call);
                assert!(started.insert(call) || is_again, "{call} starts twice");
                if line.is_some() {
                    at_peers.insert(call);
                }
            }
            // A call that never left for its peer may be sent over another connection. That it is done once is checked below.
            call::Event::Again { call } if once.contains(&call) => {
                assert!(at_peers.contains(&call), "{call} begins again here");
                resumed.insert(call);
            }
            call::Event::Ended { call, .. } => assert!(ended.insert(call), "{call} ends twice"),
            _ => {}
        }
    }
    assert_eq!(things.keys().copied().collect::<BTreeSet<_>>(), ended, "at rest every call has ended");
    let begun: BTreeSet<&String> = started.iter().filter_map(|call| things.get(call)).collect();
    let done = world.with_ledger(|ledger| ledger.done.clone());
    for (thing, times) in &done {
        assert_eq!(*times, 1, "{thing} was done {times} times");
        assert!(begun.contains(thing), "{thing} was done, and no record has its start");
    }
    for (thing, outcome) in world.with_ledger(|ledger| ledger.requests.clone()) {
        let times = done.get(&thing).copied().unwrap_or(0);
        let holds = match outcome.expect("everything is told in the end") {
            ToolRequestOutcome::Executed => times == 1,
            ToolRequestOutcome::NotDone => times == 0,
            ToolRequestOutcome::Unknown => true,
        };
        assert!(holds, "{thing} was told as {outcome:?} and was done {times} times");
    }
    let written = ["work", "agents"].map(|folder| files(&world.folder(folder))).concat();
    for file in &written {
        assert!(begun.contains(file), "{file} was written, and no record has its start");
    }
    world.with_ledger(|ledger| {
        let count = |kind: &str| done.keys().filter(|thing| thing.starts_with(kind)).count() as u64;
        let executed =
            ledger.requests.values().filter(|outcome| **outcome == Some(ToolRequestOutcome::Executed)).count() as u64;
        let (by_nodes, by_hosts) = (count("node"), count("host"));
        let figures = &mut ledger.figures;
        figures.executed += executed;
        figures.by_nodes += by_nodes;
        figures.by_hosts += by_hosts;
        figures.written += written.len() as u64;
    });
}

/// Returns the names of the files of a folder that calls wrote, its folders included.
fn files(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path().is_dir() {
            true => files(&entry.path()),
            false => vec![entry.file_name().to_string_lossy().into_owned()],
        })
        .filter(|name| name.starts_with("file_"))
        .collect()
}

fn text(content: StoredContent) -> Option<Arc<str>> {
    match content {
        StoredContent::Text(text) => Some(text),
        StoredContent::Redacted => None,
    }
}

fn event(record: &StoredRecord) -> Event {
    Event::decode(&record.kind, record.version, &record.facts).unwrap()
}
