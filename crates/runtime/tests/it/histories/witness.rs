//! Replies and frames that clients got, and whether the log and the tool match them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::{
    call,
    engine::{CommandError, Event, RecordedFact},
    gate,
    id::{CallId, GateId, Lsn},
    session,
};
use countersign_runtime::{
    OwnerError, OwnerReply, ReleasedItem, Subscriber,
    store::{Log as _, MemoryLog, Partition, StoredContent, StoredRecord},
};
use futures_util::FutureExt as _;
use serde_json::Value;

use super::life::{STRIKE, SimulatedWorld};

/// Reply to a client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageAcceptance {
    /// Taken.
    Taken,
    /// Refused, and nothing happened.
    Refused,
    /// Nothing that can be relied on.
    Nothing,
}

impl MessageAcceptance {
    pub(crate) fn from_reply(reply: &Result<OwnerReply, OwnerError>) -> Self {
        match reply {
            Ok(_) => Self::Taken,
            Err(OwnerError::Unsure(_) | OwnerError::Closed) => Self::Nothing,
            Err(_) => Self::Refused,
        }
    }
}

/// Counts of everything seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HistoryStats {
    pub(crate) deaths: u64,
    pub(crate) refused: u64,
    pub(crate) answers: u64,
    pub(crate) done: u64,
    pub(crate) facts: u64,
    pub(crate) fenced: u64,
}

impl HistoryStats {
    pub(crate) fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.refused += other.refused;
        self.answers += other.answers;
        self.done += other.done;
        self.facts += other.facts;
        self.fenced += other.fenced;
    }
}

/// Knows nothing of the engine but its events.
#[derive(Default)]
pub(crate) struct HistoryChecker {
    pub(crate) figures: HistoryStats,
    messages: BTreeMap<String, MessageAcceptance>,
    answered: BTreeMap<GateId, gate::GateResolution>,
    followers: Vec<HistoryFollower>,
    /// Facts that followers saw, by position.
    seen: BTreeMap<Lsn, Arc<RecordedFact>>,
}

/// A follower of one owner.
struct HistoryFollower {
    subscriber: Subscriber,
    /// The last that was seen.
    last: Option<Lsn>,
    /// End of the log when another took it over from that owner.
    end: Option<Lsn>,
}

impl HistoryChecker {
    pub(crate) fn note(&mut self, reply: &Result<OwnerReply, OwnerError>) {
        let is_fault = matches!(reply, Err(OwnerError::NotRecorded(_) | OwnerError::Unsure(_)));
        self.figures.refused += u64::from(is_fault);
        let is_wrong = matches!(reply, Err(OwnerError::Panicked | OwnerError::Unreadable(_) | OwnerError::TooLarge));
        assert!(!is_wrong, "{reply:?}");
        let lost = matches!(reply, Err(OwnerError::Refusal(CommandError::NoSession(_))));
        assert!(!lost, "{reply:?}");
    }

    pub(crate) fn record_message(&mut self, text: String, acceptance: MessageAcceptance) {
        self.messages.insert(text, acceptance);
    }

    /// Notes how a gate was resolved: every client gets the same resolution.
    pub(crate) fn answered(&mut self, gate: GateId, resolution: gate::GateResolution) {
        self.figures.answers += 1;
        let before = self.answered.insert(gate, resolution.clone());
        assert!(before.as_ref().is_none_or(|before| *before == resolution), "{gate}: {before:?}, then {resolution:?}");
    }

    pub(crate) fn follows(&mut self, subscriber: Subscriber) {
        self.stops_following();
        self.follows_too(subscriber);
    }

    /// Follows one more owner.
    pub(crate) fn follows_too(&mut self, subscriber: Subscriber) {
        self.followers.push(HistoryFollower { subscriber, last: None, end: None });
    }

    pub(crate) fn stops_following(&mut self) {
        self.followers.clear();
    }

    /// Notes that another owner takes the log over, which ends at `head`: those from before release nothing after it.
    pub(crate) fn sees_takeover(&mut self, head: Lsn) {
        for follower in &mut self.followers {
            follower.end.get_or_insert(head);
        }
    }

    /// Takes the released facts so far.
    pub(crate) fn listen(&mut self) {
        for HistoryFollower { subscriber, last, end } in &mut self.followers {
            while let Some(Some(released)) = subscriber.next().now_or_never() {
                let ReleasedItem::Fact(recorded) = released else { continue };
                let lsn = recorded.meta.lsn;
                assert!(last.is_none_or(|last| lsn == last.next()), "{lsn} follows {last:?}");
                assert!(end.is_none_or(|end| lsn <= end), "{lsn} left an owner that was taken over at {end:?}");
                *last = Some(lsn);
                self.seen.insert(lsn, recorded);
            }
        }
    }

    /// Compares everything seen.
    pub(crate) fn examine(&mut self, log: &MemoryLog, world: &SimulatedWorld) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (records, contents, report) = runtime.block_on(async {
            let records = log.read_records(Partition::ZERO, Lsn(0), usize::MAX).await.unwrap();
            let lsns: Vec<Lsn> = records.iter().map(|record| record.lsn).collect();
            let contents = log.read_contents(Partition::ZERO, &lsns).await.unwrap();
            (records, contents, log.verify_chain(Partition::ZERO, None).await.unwrap())
        });
        assert_eq!(report.flaw, None, "the chain does not verify");
        self.figures.facts = report.records;
        let contents: Vec<Option<Arc<str>>> = contents.into_iter().map(|content| content.and_then(text)).collect();
        self.examine_what_was_seen(&records);
        self.examine_gates(&records);
        self.examine_messages(&records, &contents);
        self.examine_calls(&records, &contents, &world.done());
    }

    /// Checks that every fact seen is in the log, and is the same as the record at its position.
    fn examine_what_was_seen(&self, records: &[StoredRecord]) {
        for (lsn, seen) in &self.seen {
            let stored = records.iter().find(|record| record.lsn == *lsn);
            let stored = stored.unwrap_or_else(|| panic!("{lsn} was told, and the log does not have it"));
            assert_eq!(event(stored), seen.fact.event, "{lsn}");
        }
    }

    fn examine_gates(&self, records: &[StoredRecord]) {
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
        for (gate, resolution) in &self.answered {
            assert_eq!(resolved.get(gate), Some(resolution), "{gate} was told to be so");
        }
    }

    fn examine_messages(&self, records: &[StoredRecord], contents: &[Option<Arc<str>>]) {
        for (text, acceptance) in &self.messages {
            let has_it = |content: &&Option<Arc<str>>| content.as_ref().is_some_and(|content| content.contains(text));
            // Steering and queued messages are written down when they come, and again as an entry.
            let entries = records.iter().zip(contents).filter(|(record, content)| {
                let entry = matches!(event(record), Event::Session(session::Event::Entry { .. }));
                entry && has_it(content)
            });
            let (times, anywhere) = (entries.count(), contents.iter().filter(has_it).count());
            match acceptance {
                MessageAcceptance::Taken => assert!(anywhere >= 1, "{text:?} was taken and is nowhere"),
                MessageAcceptance::Refused => assert_eq!(anywhere, 0, "{text:?} was refused and is there"),
                MessageAcceptance::Nothing => {}
            }
            assert!(times <= 1, "{text:?} is there {times} times");
        }
    }

    fn examine_calls(&mut self, records: &[StoredRecord], contents: &[Option<Arc<str>>], done: &BTreeMap<u64, u32>) {
        let mut things: BTreeMap<CallId, u64> = BTreeMap::new();
        let (mut allowed, mut started, mut ended) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (record, content) in records.iter().zip(contents) {
            let Event::Call(event) = event(record) else { continue };
            match event {
                call::Event::Proposed { call, .. } => {
                    let call_content: Value = serde_json::from_str(content.as_deref().unwrap_or("null")).unwrap();
                    assert_eq!(call_content["tool"], STRIKE, "{call_content}");
                    things.insert(call, call_content["arguments"]["thing"].as_u64().unwrap());
                }
                call::Event::Allowed { call, .. } => assert!(allowed.insert(call), "{call} is allowed twice"),
                call::Event::Started { call, .. } => {
                    assert!(allowed.contains(&call), "{call} starts without leave");
                    assert!(started.insert(call), "{call} starts twice");
                }
                call::Event::Ended { call, .. } => assert!(ended.insert(call), "{call} ends twice"),
                _ => {}
            }
        }
        assert_eq!(things.keys().copied().collect::<BTreeSet<_>>(), ended, "at rest every call has ended");
        for (thing, times) in done {
            assert_eq!(*times, 1, "{thing} was done {times} times");
            let is_recorded = things.iter().any(|(call, of)| of == thing && started.contains(call));
            assert!(is_recorded, "{thing} was done, and no record has its start");
        }
        self.figures.done = u64::try_from(done.len()).unwrap();
    }
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
