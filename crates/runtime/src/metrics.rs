//! Counters of one owner since its log was opened, for monitoring.
//!
//! Labels are numbered, so no user text can become one. Nothing here is decided by, recorded or read back, and an
//! owner that is not monitored pays for a few additions. Two owners in one process share none of it.

mod facts;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use countersign_core::id::CallId;
pub use facts::{ENDS, EXECUTORS, GATE_KINDS, RESOLUTIONS, RUN_ENDS, STOPS, gate_kind};
use parking_lot::Mutex;

/// Something that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Something that comes and goes.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Returns a counter at zero.
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Adds one, until the returned guard is dropped.
    pub fn increment_guard(self: &Arc<Self>) -> GaugeGuard {
        self.0.fetch_add(1, Relaxed);
        GaugeGuard(Arc::clone(self))
    }

    pub(crate) fn set(&self, value: usize) {
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// One count of a [`Gauge`].
#[derive(Debug)]
pub struct GaugeGuard(Arc<Gauge>);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Histogram of durations.
#[derive(Debug)]
pub struct DurationHistogram<const N: usize> {
    /// In seconds: up to where each bucket reaches, the last without an end.
    pub bounds: [f64; N],
    buckets: [Counter; N],
    beyond: Counter,
    millionths: Counter,
}

impl<const N: usize> DurationHistogram<N> {
    const fn new(bounds: [f64; N]) -> Self {
        Self { bounds, buckets: [const { Counter::new() }; N], beyond: Counter::new(), millionths: Counter::new() }
    }

    pub(crate) fn record_duration(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.iter().zip(&self.buckets).find(|(bound, _)| seconds <= **bound);
        bucket.map_or(&self.beyond, |(_, bucket)| bucket).add(1);
        self.millionths.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the number of durations up to each bound, in order, and the number of all.
    pub fn bucket_counts(&self) -> ([u64; N], u64) {
        let mut sum = 0;
        let upto = std::array::from_fn(|index| {
            sum += self.buckets[index].get();
            sum
        });
        (upto, sum + self.beyond.get())
    }

    /// Returns the sum of all durations, in seconds.
    #[allow(clippy::cast_precision_loss, reason = "a sum of seconds is read as about that")]
    pub fn total_seconds(&self) -> f64 {
        self.millionths.get() as f64 / 1e6
    }
}

/// The kinds of [`RuntimeMetrics::tokens`].
pub const TOKEN_KINDS: [&str; 4] = ["input", "output", "cache_read", "cache_write"];
const CALL_SERIES: usize = EXECUTORS.len() * ENDS.len();

/// The figures of one owner, from the opening of its log.
#[derive(Debug)]
pub struct RuntimeMetrics {
    /// Facts that were recorded.
    pub events: Counter,
    /// Durations until batches were durable.
    pub commits: DurationHistogram<9>,
    /// Batches that could not be recorded.
    pub failed_commits: Counter,
    /// One from a batch that could not be recorded until the log can be written again, else zero.
    pub refusing: Gauge,
    /// Tasks that panicked, each of which was ended by a command.
    pub panics: Counter,
    /// Decisions that panicked; their commands were refused.
    pub undecided: Counter,
    /// Pieces of work in flight: requests to models, calls, summaries, firings.
    pub in_flight: Gauge,
    /// Runs that began.
    pub runs_started: Counter,
    /// Runs that ended, by [`RUN_ENDS`].
    pub runs_ended: [Counter; RUN_ENDS.len()],
    /// Requests to models that began.
    pub model_requests: Counter,
    /// Requests to models that ended, by [`STOPS`].
    pub model_answers: [Counter; STOPS.len()],
    /// Tokens that models read and wrote, by [`TOKEN_KINDS`].
    pub tokens: [Counter; TOKEN_KINDS.len()],
    /// Gates that were opened, by [`GATE_KINDS`].
    pub gates_opened: [Counter; GATE_KINDS.len()],
    /// Gates that were resolved, by [`RESOLUTIONS`].
    pub gates_resolved: [Counter; RESOLUTIONS.len()],
    /// Durations until people answered a gate.
    pub answers: DurationHistogram<8>,
    /// Calls that ended: by [`EXECUTORS`], and for each by [`ENDS`].
    pub calls_ended: [Counter; CALL_SERIES],
    /// Executors of the open calls; an ended call may be gone from the state when its end is counted.
    open_calls: Mutex<BTreeMap<CallId, usize>>,
}

impl Default for RuntimeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl RuntimeMetrics {
    /// Returns the metrics of an owner that has done nothing.
    pub const fn new() -> Self {
        Self {
            events: Counter::new(),
            commits: DurationHistogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0]),
            failed_commits: Counter::new(),
            refusing: Gauge::new(),
            panics: Counter::new(),
            undecided: Counter::new(),
            in_flight: Gauge::new(),
            runs_started: Counter::new(),
            runs_ended: [const { Counter::new() }; RUN_ENDS.len()],
            model_requests: Counter::new(),
            model_answers: [const { Counter::new() }; STOPS.len()],
            tokens: [const { Counter::new() }; TOKEN_KINDS.len()],
            gates_opened: [const { Counter::new() }; GATE_KINDS.len()],
            gates_resolved: [const { Counter::new() }; RESOLUTIONS.len()],
            answers: DurationHistogram::new([1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 86_400.0]),
            calls_ended: [const { Counter::new() }; CALL_SERIES],
            open_calls: Mutex::new(BTreeMap::new()),
        }
    }

    /// Adds the tokens of an answer of a model, in the order of [`TOKEN_KINDS`].
    pub(crate) fn add_tokens(&self, taken: [u64; TOKEN_KINDS.len()]) {
        for (counter, tokens) in self.tokens.iter().zip(taken) {
            counter.add(tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{DurationHistogram, Gauge};

    #[test]
    fn a_time_counts_in_each_bucket_that_it_fits_into() {
        let timer = DurationHistogram::new([0.1, 1.0]);
        for millis in [50, 100, 700, 4000] {
            timer.record_duration(Duration::from_millis(millis));
        }
        assert_eq!(timer.bucket_counts(), ([2, 3], 4));
        assert!((timer.total_seconds() - 4.85).abs() < 1e-9);
    }

    #[test]
    fn what_is_held_counts_until_it_is_let_go() {
        let gauge = Arc::new(Gauge::new());
        let (one, other) = (gauge.increment_guard(), gauge.increment_guard());
        assert_eq!(gauge.get(), 2);
        drop(one);
        assert_eq!(gauge.get(), 1);
        drop(other);
        assert_eq!(gauge.get(), 0);
    }
}
