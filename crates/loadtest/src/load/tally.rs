//! Results during the load: counts, times, and failures.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Activities of users at the other end, as rows of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ActivityKind {
    /// A call that rules allow, from an agent's request to its result.
    Allowed,
    /// An answer to a gate, from the request to the reply.
    Answered,
    /// A call that required approval, from the agent's request to its result.
    Countersigned,
    /// A run of a chat, from its message to the end of its stream.
    Run,
    /// A call of a node's tool through the gateway.
    Node,
    /// A prompt of a host whose session lives in the gateway, to its end.
    Host,
}

impl ActivityKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Allowed, Self::Answered, Self::Countersigned, Self::Run, Self::Node, Self::Host];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "a call that rules allow",
            Self::Answered => "an approver's answer",
            Self::Countersigned => "a call that needs an approval",
            Self::Run => "a run of a chat (the model speaks for 5 s)",
            Self::Node => "a call of a node's tool",
            Self::Host => "a prompt of an attached host",
        }
    }
}

/// Count and times of an activity.
#[derive(Debug, Default)]
struct ActivityTimes {
    /// Milliseconds, in the order of their ends.
    took: Vec<f32>,
}

/// One for all who take part.
#[derive(Debug)]
pub(crate) struct LoadTally {
    begun: Instant,
    is_over: AtomicBool,
    /// Frames that watchers read.
    pub(crate) frames: AtomicU64,
    /// Streams that are open.
    pub(crate) streams: AtomicU64,
    rows: Mutex<BTreeMap<ActivityKind, ActivityTimes>>,
    wrongs: Mutex<BTreeMap<String, u64>>,
    /// Number of calls without a request for approval because their agent was denied several times in a row, which is a stated limit.
    pub(crate) limited: AtomicU64,
}

impl LoadTally {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            frames: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            rows: Mutex::default(),
            wrongs: Mutex::default(),
            limited: AtomicU64::new(0),
        }
    }

    /// Returns the time since the load began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Reports whether the clients must begin nothing new.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn end_load(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Records a success.
    pub(crate) fn record_success(&self, row: ActivityKind, took: Duration) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.entry(row).or_default().took.push(took.as_secs_f32() * 1000.0);
    }

    /// Records a failure. `what` has no names or numbers in it, so that equal failures are counted as equal; the first of a kind is printed
    /// at once, as half an hour is long to wait for it.
    pub(crate) fn record_failure(&self, what: impl Into<String>) {
        let what = what.into();
        let mut wrongs = self.wrongs.lock().unwrap_or_else(PoisonError::into_inner);
        let times = wrongs.entry(what.clone()).or_default();
        *times += 1;
        if *times == 1 {
            eprintln!("{:>5.0} s: failure: {what}", self.elapsed().as_secs_f64());
        }
    }

    pub(crate) fn failure_counts(&self) -> BTreeMap<String, u64> {
        self.wrongs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the count of `row` so far.
    pub(crate) fn activity_count(&self, row: ActivityKind) -> usize {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).get(&row).map_or(0, |row| row.took.len())
    }

    /// Returns the milliseconds of everything that was done in `row`, shortest first.
    pub(crate) fn sorted_times(&self, row: ActivityKind) -> Vec<f32> {
        let mut took = {
            let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            rows.get(&row).map(|row| row.took.clone()).unwrap_or_default()
        };
        took.sort_by(f32::total_cmp);
        took
    }
}

/// Returns the value that `of_thousand` thousandths of the `sorted` values do not exceed.
pub(crate) fn per_mille(sorted: &[f32], of_thousand: usize) -> Option<f32> {
    sorted.get((sorted.len() * of_thousand).div_ceil(1000).saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_thousand_is_the_least_value_that_enough_do_not_exceed() {
        let values: Vec<f32> = (1_u8..=200).map(f32::from).collect();
        for (of, want) in [(500, 100.0), (990, 198.0), (999, 200.0), (1000, 200.0)] {
            assert_eq!(per_mille(&values, of), Some(want), "{of}");
        }
        assert_eq!(per_mille(&[], 990), None);
        assert_eq!(per_mille(&[7.0], 10), Some(7.0));
    }

    #[test]
    fn the_same_wrong_is_counted_and_every_row_keeps_its_own() {
        let tally = LoadTally::new();
        tally.record_failure("cut");
        tally.record_failure("cut");
        tally.record_success(ActivityKind::Run, Duration::from_millis(20));
        tally.record_success(ActivityKind::Run, Duration::from_millis(10));
        assert_eq!(tally.failure_counts(), BTreeMap::from([("cut".to_owned(), 2)]));
        assert_eq!(tally.sorted_times(ActivityKind::Run), [10.0, 20.0]);
        assert_eq!((tally.activity_count(ActivityKind::Run), tally.activity_count(ActivityKind::Node)), (2, 0));
    }
}
