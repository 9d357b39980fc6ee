//! State that outlives the process: the random numbers of the history, the actions that were done, and the answers to all actors.

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

/// Start time of histories.
const BEGIN: Millis = Millis(1_700_000_000_000);

/// Outcome of a message, as its sender got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOutcome {
    /// Taken.
    Taken,
    /// Refused, and nothing happened.
    Refused,
    /// No reliable answer came.
    Nothing,
}

/// Outcome of a request, as its agent got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolRequestOutcome {
    Executed,
    /// Denied, expired, or failed before anything was done.
    NotDone,
    Unknown,
}

/// Counts of a history.
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

    /// Reports whether something of each kind happened.
    pub(crate) fn is_telling(&self) -> bool {
        let mut each = *self;
        each.each().into_iter().all(|figure| *figure > 0)
    }
}

/// Actions that were done, and answers that were given.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) figures: HistoryCounts,
    /// Number of times that each action was done, anywhere.
    pub(crate) done: BTreeMap<String, u32>,
    /// Requests of agents, with the last outcome of each.
    pub(crate) requests: BTreeMap<String, Option<ToolRequestOutcome>>,
    /// Messages at each adapter, with the outcome that its sender got.
    pub(crate) messages: BTreeMap<String, MessageOutcome>,
    /// Resolutions of gates, as the approvers got them.
    pub(crate) answered: BTreeMap<String, String>,
    /// Facts that the follower saw, by position.
    pub(crate) seen: BTreeMap<u64, Value>,
    /// Cursor from which it continues.
    pub(crate) cursor: Option<String>,
    /// Sessions that browsers opened.
    pub(crate) chats: Vec<String>,
    /// True if no more faults are injected.
    pub(crate) is_calm: bool,
    /// Time of the last look: it never goes back.
    pub(crate) now: Millis,
    things: u64,
    wrongs: Vec<String>,
}

impl Ledger {
    /// Returns a name that was never used; `kind` is its prefix.
    pub(crate) fn next_name(&mut self, kind: &str) -> String {
        self.things += 1;
        format!("{kind}_{}", self.things)
    }

    /// Reports a broken invariant.
    pub(crate) fn report_violation(&mut self, what: impl fmt::Display) {
        self.wrongs.push(what.to_string());
    }

    pub(crate) fn record_done(&mut self, thing: &str) {
        *self.done.entry(thing.to_owned()).or_default() += 1;
    }

    /// Records an answer to a gate: all approvers get the same.
    pub(crate) fn record_answer(&mut self, gate: &str, resolution: &str) {
        self.figures.answers += 1;
        let before = self.answered.insert(gate.to_owned(), resolution.to_owned());
        if before.as_ref().is_some_and(|before| before != resolution) {
            self.report_violation(format!("{gate} was told as {before:?}, then as {resolution}"));
        }
    }
}

/// Shared state of all actors.
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

    /// Calls `look` with the ledger, which is never held over an await.
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

    /// Reports whether a fault is injected, in `percent` of the cases, as long as faults are allowed.
    pub(crate) fn fails(&self, percent: u64) -> bool {
        !self.with_ledger(|ledger| ledger.is_calm) && self.chance(percent)
    }

    /// Returns the time that an external action takes.
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

    /// Checks that no invariant was broken so far.
    pub(crate) fn check(&self) {
        let wrongs = self.with_ledger(|ledger| std::mem::take(&mut ledger.wrongs));
        assert!(wrongs.is_empty(), "{wrongs:#?}");
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.inner.1.path().join(name)
    }
}
