//! The end of a wait that a provider asks for, in words: people are told when it goes on.
//!
//! It must not know whether anybody waits.

use std::time::Duration;

use countersign_core::{schedule::Zone, time::Millis};
use countersign_models::Failure;
use tokio::time::Instant;

/// A wait from which on its end is told.
const TOLD: Duration = Duration::from_secs(60);

/// The time at a piece of work, from when it was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    at: Millis,
    since: Instant,
}

impl Stopwatch {
    /// Starts at `at`, which is now.
    pub(super) fn start(at: Millis) -> Self {
        Self { at, since: Instant::now() }
    }

    pub(super) fn now(self) -> Millis {
        self.at + self.since.elapsed()
    }
}

/// The message of a failure, with the end of the wait that its provider asks for where that is more than a minute.
/// `longest` is the longest wait that is set.
pub(super) fn message(failure: &Failure, now: Millis, longest: Duration) -> String {
    let Failure { message, retry_after, .. } = failure;
    let Some(wait) = retry_after.filter(|wait| *wait >= TOLD) else { return message.clone() };
    let end = Zone::UTC.date_and_time(now + wait);
    if wait > longest {
        return format!("{message} (try again after {end}; the longest wait that is set is {} s)", longest.as_secs());
    }
    format!("{message} (try again after {end})")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::time::Millis;
    use countersign_models::{Failure, FailureKind};

    use super::message;

    #[test]
    fn the_end_of_a_long_wait_is_told_with_its_zone() {
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
            let failure = Failure::new(FailureKind::RateLimit, "429 rate limit");
            let failure = Failure { retry_after: after.map(Duration::from_secs), ..failure };
            assert_eq!(message(&failure, Millis(1_800_000_000_000), hour), want);
        }
    }
}
