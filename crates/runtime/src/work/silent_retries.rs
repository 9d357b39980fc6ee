//! Attempts at a request before its failure is reported, as the client libraries of providers make them.
//!
//! It must not know whose request it is, nor the texts of reports.

use std::time::Duration;

use countersign_models::{FailureKind, ModelFailure};

/// Limits of the attempts that follow a failure before anything of an answer was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentRetries {
    /// The number of attempts after the first.
    pub max: u32,
    /// The first wait; each further one is twice the last, unless the provider asks for a longer one.
    pub base: Duration,
    /// The longest that all waits of a request take together.
    pub total: Duration,
}

impl SilentRetries {
    /// No silent attempts: the first failure is reported or retried visibly.
    pub const NONE: Self = Self { max: 0, base: Duration::ZERO, total: Duration::ZERO };
}

impl Default for SilentRetries {
    fn default() -> Self {
        Self { max: 5, base: Duration::from_millis(400), total: Duration::from_secs(20) }
    }
}

/// Mode of counting the cost of a session's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetMode {
    /// Each request has its own part of a budget: one that may have taken it is not sent again under the same.
    Counted,
    Unlimited,
}

/// The silent attempts of one request.
#[derive(Debug)]
pub(super) struct RetryAttempts {
    limits: SilentRetries,
    made: u32,
    waited: Duration,
}

impl RetryAttempts {
    pub(super) const fn new(limits: SilentRetries) -> Self {
        Self { limits, made: 0, waited: Duration::ZERO }
    }

    /// Counts another attempt after `failure` and returns the wait before it; none if the failure has to be reported.
    pub(super) fn next(&mut self, failure: &ModelFailure) -> Option<Duration> {
        // Silence has lasted long enough already.
        let may_pass = failure.kind.is_retryable() && failure.kind != FailureKind::Silence;
        if !may_pass || self.made >= self.limits.max {
            return None;
        }
        let backoff = self.limits.base.saturating_mul(2_u32.saturating_pow(self.made));
        let wait = backoff.max(failure.retry_delay().unwrap_or_default());
        let waited = self.waited.checked_add(wait).filter(|waited| *waited <= self.limits.total)?;
        self.made += 1;
        self.waited = waited;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_models::{FailureKind, ModelFailure};

    use super::{RetryAttempts, SilentRetries};

    fn waits(failures: impl IntoIterator<Item = ModelFailure>) -> Vec<u64> {
        let mut attempts = RetryAttempts::new(SilentRetries::default());
        let waits = failures.into_iter().map_while(|failure| attempts.next(&failure));
        waits.map(|wait| u64::try_from(wait.as_millis()).unwrap()).collect()
    }

    fn failure(kind: FailureKind, after: Option<u64>) -> ModelFailure {
        ModelFailure { retry_after: after.map(Duration::from_millis), ..ModelFailure::new(kind, "it failed") }
    }

    #[test]
    fn five_attempts_are_made_within_thirteen_seconds() {
        use FailureKind::{
            Auth, Broken, Network, Overflow, Overloaded, RateLimit, Refused, Server, Silence, Unpaid, Usage,
        };
        for kind in [RateLimit, Overloaded, Server, Network, Broken] {
            let failures = std::iter::repeat_with(|| failure(kind, None)).take(9);
            assert_eq!(waits(failures), [400, 800, 1_600, 3_200, 6_400], "{kind:?}");
        }
        for kind in [Auth, Overflow, Refused, Silence, Unpaid, Usage] {
            assert_eq!(waits([failure(kind, None)]), [0; 0], "{kind:?}");
        }
    }

    #[test]
    fn a_short_wait_of_the_provider_is_silent_and_a_long_one_is_reported() {
        let of = |after: &[u64]| waits(after.iter().map(|after| failure(FailureKind::RateLimit, Some(*after))));
        assert_eq!(of(&[1_000]), [1_000]);
        assert_eq!(of(&[100, 100]), [400, 800], "no attempt comes sooner");
        assert_eq!(of(&[15_000, 5_000, 1]), [15_000, 5_000], "all waits together are short");
        assert_eq!(of(&[20_001]), [0; 0]);
        let quota = failure(FailureKind::Usage, Some(3_500));
        assert_eq!(waits([quota]), [3_500], "a quota by the minute");
    }
}
