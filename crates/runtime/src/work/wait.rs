//! The end of a wait that a provider asks for, as text: people see when work resumes.
//!
//! It must not know whether a request waits.

use std::{collections::BTreeMap, time::Duration};

use countersign_core::{
    schedule::Zone,
    session::{ModelRef, RetryPolicy},
    time::Millis,
};
use countersign_models::ModelFailure;
use tokio::time::Instant;

/// Shortest wait whose end is reported.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// The most models that a question about a wait offers.
const MOST_OTHERS: usize = 8;

/// Returns the models that people may choose in the place of `model` after a failure: a few if its provider asks for a wait
/// that opens a gate, else none. Those of other providers come first, and of each provider one after the
/// other: a quota that an account has used up often holds for all its models.
pub(super) fn other_models(
    failure: &ModelFailure,
    retry: RetryPolicy,
    model: &ModelRef,
    usable: impl FnOnce() -> Vec<ModelRef>,
) -> Vec<ModelRef> {
    let is_asked_about =
        failure.kind.is_retryable() && failure.retry_delay().is_some_and(|wait| retry.asks_about(wait));
    if !is_asked_about {
        return Vec::new();
    }
    let mut of_provider: BTreeMap<String, usize> = BTreeMap::new();
    let mut others: Vec<((bool, usize), ModelRef)> = Vec::new();
    for other in usable() {
        if !other.is_same(model) && others.iter().all(|(_, listed)| !listed.is_same(&other)) {
            let nth = of_provider.entry(other.provider.clone()).or_default();
            *nth += 1;
            others.push(((other.provider == model.provider, *nth), other));
        }
    }
    others.sort_by_key(|(rank, _)| *rank);
    others.into_iter().take(MOST_OTHERS).map(|(_, other)| other).collect()
}

/// The time at a piece of work, from when it was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    at: Millis,
    since: Instant,
}

impl Stopwatch {
    /// Starts at `at`, which is now.
    pub(super) fn start_at(at: Millis) -> Self {
        Self { at, since: Instant::now() }
    }

    pub(super) fn now(self) -> Millis {
        self.at + self.since.elapsed()
    }
}

/// Returns the message of a failure, with the end of the wait that its provider asks for if that is more than a minute.
/// `longest` is the longest wait that is set.
pub(super) fn failure_message(failure: &ModelFailure, now: Millis, longest: Duration) -> String {
    let ModelFailure { message, retry_after, .. } = failure;
    let Some(wait) = retry_after.filter(|wait| *wait >= LONG_WAIT) else { return message.clone() };
    let end = Zone::UTC.date_and_time(now + wait);
    if wait > longest {
        return format!("{message} (try again after {end}; the longest wait that is set is {} s)", longest.as_secs());
    }
    format!("{message} (try again after {end})")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::{
        session::{ModelRef, RetryPolicy},
        time::Millis,
    };
    use countersign_models::{FailureKind, ModelFailure};

    use super::{failure_message, other_models};

    fn model(name: &str) -> ModelRef {
        let (provider, id) = name.split_once('/').unwrap();
        ModelRef { provider: provider.into(), id: id.into(), context_window: 1, max_tokens: 1, price: None }
    }

    #[test]
    fn other_models_are_a_few_of_each_provider() {
        let names = |kind, after: Option<u64>, usable: &[&str]| {
            let failure = ModelFailure { retry_after: after.map(Duration::from_secs), ..ModelFailure::new(kind, "no") };
            let usable = || usable.iter().map(|name| model(name)).collect();
            let others = other_models(&failure, RetryPolicy::default(), &model("a/1"), usable).into_iter();
            others.map(|other| format!("{}/{}", other.provider, other.id)).collect::<Vec<_>>().join(" ")
        };
        let of = |after, usable: &[&str]| names(FailureKind::RateLimit, after, usable);
        let usable = ["a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "c/1", "b/1"];
        assert_eq!(of(Some(180), &usable), "b/1 c/1 b/2 b/3 a/2 a/3");
        assert_eq!((of(Some(179), &usable), of(None, &usable)), (String::new(), String::new()));
        assert_eq!(names(FailureKind::Usage, None, &usable[..2]), "a/2", "half an hour is usual");
        assert_eq!(names(FailureKind::Refused, Some(180), &usable), "", "it is not asked again");
        let many: Vec<String> = (0..20).map(|id| format!("b/{id}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of(Some(180), &many).split(' ').count(), 8);
    }

    #[test]
    fn the_end_of_a_long_wait_is_shown_with_its_zone() {
        let hour = Duration::from_secs(3600);
        for (after, want) in [
            (None, "429 rate limit"),
            (Some(59), "429 rate limit"),
            (Some(5400 / 2), "429 rate limit (try again after 2027-01-15 08:45:00 UTC)"),
            (
                Some(86_400),
                "429 rate limit (try again after 2027-01-16 08:00:00 UTC; the longest wait that is set is 3600 s)",
            ),
        ] {
            let failure = ModelFailure::new(FailureKind::RateLimit, "429 rate limit");
            let failure = ModelFailure { retry_after: after.map(Duration::from_secs), ..failure };
            assert_eq!(failure_message(&failure, Millis(1_800_000_000_000), hour), want);
        }
    }
}
