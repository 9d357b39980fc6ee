//! What outlives the process: the chance of the history, what was really done, and what everybody was told.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use countersign_core::time::Millis;
use serde_json::Value;
use tempfile::TempDir;

use crate::rng::SplitMixRng;

/// When histories begin.
const BEGIN: Millis = Millis(1_700_000_000_000);

/// What somebody was told of what they said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// It was taken.
    Taken,
    /// It was not, and nothing happened.
    Refused,
    /// Nothing that can be relied on.
    Nothing,
}

/// What an agent was told of what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolRequestOutcome {
    Executed,
    /// Denied, expired, or failed before anything was done.
    NotDone,
    Unknown,
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HistoryCounts {
    pub(crate) lives: u64,
    pub(crate) deaths: u64,
    pub(crate) faults: u64,
    pub(crate) facts: u64,
    pub(crate) gates: u64,
    pub(crate) answers: u64,
    /// Requests of agents that were executed; calls of the node; those of a host; files that were written.
    pub(crate) executed: u64,
    pub(crate) by_nodes: u64,
    pub(crate) by_hosts: u64,
    pub(crate) written: u64,
    /// Messages that were taken: of browsers, of clients, of hosts of omp and of gjc.
    pub(crate) browsers: u64,
    pub(crate) clients: u64,
    pub(crate) omp: u64,
    pub(crate) gjc: u64,
}

impl HistoryCounts {
    fn each(&mut self) -> [&mut u64; 14] {
        let Self { lives, deaths, faults, facts, gates, answers, executed, by_nodes, .. } = self;
        let Self { by_hosts, written, browsers, clients, omp, gjc, .. } = self;
        [
            lives, deaths, faults, facts, gates, answers, executed, by_nodes, by_hosts, written, browsers, clients,
            omp, gjc,
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (mine, theirs) in self.each().into_iter().zip(other.each()) {
            *mine += *theirs;
        }
    }

    /// Whether something of each kind happened.
    pub(crate) fn is_telling(&self) -> bool {
        let mut each = *self;
        each.each().into_iter().all(|figure| *figure > 0)
    }
}

/// What was really done, and what was told.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) figures: HistoryCounts,
    /// How often each thing was done, wherever.
    pub(crate) done: BTreeMap<String, u32>,
    /// What agents asked for, and the last word about it.
    pub(crate) requests: BTreeMap<String, Option<ToolRequestOutcome>>,
    /// What was said at each door, and what its sender was told.
    pub(crate) messages: BTreeMap<String, MessageOutcome>,
    /// How gates were told to be resolved, to those who answered.
    pub(crate) answered: BTreeMap<String, String>,
    /// What the follower saw: facts by their place.
    pub(crate) seen: BTreeMap<u64, Value>,
    /// From where it follows on.
    pub(crate) cursor: Option<String>,
    /// The sessions that browsers opened.
    pub(crate) chats: Vec<String>,
    /// Whether nothing goes wrong any more.
    pub(crate) is_calm: bool,
    /// What time it was when somebody looked last: it never goes back.
    pub(crate) now: Millis,
    things: u64,
    wrongs: Vec<String>,
}

impl Ledger {
    /// A thing that nobody wanted before; `kind` says what it is.
    pub(crate) fn next_name(&mut self, kind: &str) -> String {
        self.things += 1;
        format!("{kind}_{}", self.things)
    }

    /// A promise was broken.
    pub(crate) fn report_violation(&mut self, what: impl fmt::Display) {
        self.wrongs.push(what.to_string());
    }

    pub(crate) fn record_done(&mut self, thing: &str) {
        *self.done.entry(thing.to_owned()).or_default() += 1;
    }

    /// Everybody is told the same of a gate.
    pub(crate) fn record_answer(&mut self, gate: &str, resolution: &str) {
        self.figures.answers += 1;
        let before = self.answered.insert(gate.to_owned(), resolution.to_owned());
        if before.as_ref().is_some_and(|before| before != resolution) {
            self.report_violation(format!("{gate} was told as {before:?}, then as {resolution}"));
        }
    }
}

/// All of it, shared by everybody who plays.
#[derive(Clone)]
pub(crate) struct HistoryFixture {
    inner: Arc<(Mutex<(Ledger, SplitMixRng)>, TempDir)>,
}

impl HistoryFixture {
    pub(crate) fn new(seed: u64) -> Self {
        let folder = tempfile::Builder::new().prefix("history").tempdir().unwrap();
        for name in ["agent", "gjc", "work", "home"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let ledger = Ledger { now: BEGIN, ..Ledger::default() };
        Self { inner: Arc::new((Mutex::new((ledger, SplitMixRng::new(seed))), folder)) }
    }

    fn lock(&self) -> MutexGuard<'_, (Ledger, SplitMixRng)> {
        self.inner.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never held over an await.
    pub(crate) fn with_ledger<T>(&self, look: impl FnOnce(&mut Ledger) -> T) -> T {
        look(&mut self.lock().0)
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.lock().1.below(end)
    }

    pub(crate) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn bytes(&self) -> [u8; 16] {
        self.lock().1.bytes()
    }

    /// Whether something goes wrong in `percent` of the cases, as long as anything may.
    pub(crate) fn fails(&self, percent: u64) -> bool {
        !self.with_ledger(|ledger| ledger.is_calm) && self.chance(percent)
    }

    /// How long something outside takes.
    pub(crate) fn pause(&self) -> Duration {
        if self.with_ledger(|ledger| ledger.is_calm) {
            return Duration::ZERO;
        }
        Duration::from_millis([0, 0, 1, 40, 700, 5_000][usize::try_from(self.below(6)).unwrap()])
    }

    pub(crate) fn report_violation(&self, what: impl fmt::Display) {
        self.with_ledger(|ledger| ledger.report_violation(what));
    }

    pub(crate) fn figures(&self) -> HistoryCounts {
        self.with_ledger(|ledger| ledger.figures)
    }

    /// The promises that were broken so far.
    pub(crate) fn check(&self) {
        let wrongs = self.with_ledger(|ledger| std::mem::take(&mut ledger.wrongs));
        assert!(wrongs.is_empty(), "{wrongs:#?}");
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.inner.1.path().join(name)
    }
}
