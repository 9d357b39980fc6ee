//! Pauses between the starts of a server that fails. No timer runs while the server is not needed.

use std::time::Duration;

use tokio::time::Instant;

/// Pause after the first failure.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(300);
/// Time after which a connection counts as a success: its end begins a new series of failures.
const STABLE: Duration = Duration::from_secs(60);

/// Failures of a server in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartBackoff {
    failures: u32,
    retry_at: Option<Instant>,
    reason: String,
}

impl StartBackoff {
    /// Notes a failed start, or the end of a connection that began at `opened`.
    pub(crate) fn note_failure(&mut self, now: Instant, opened: Option<Instant>, reason: String) {
        if opened.is_some_and(|opened| now.duration_since(opened) >= STABLE) {
            self.failures = 0;
        }
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + pause);
        self.reason = reason;
    }

    /// Returns the time until a start is possible, which may be zero, and the reason of the last failure, if there was one.
    pub(crate) fn last_failure(&self, now: Instant) -> Option<(Duration, &str)> {
        Some((self.retry_at?.saturating_duration_since(now), &self.reason))
    }

    /// Returns the time until a start is possible and the reason of the last failure; none if it is possible now.
    pub(crate) fn pause_at(&self, now: Instant) -> Option<(Duration, &str)> {
        let wait = self.retry_at?.checked_duration_since(now).filter(|wait| !wait.is_zero())?;
        Some((wait, &self.reason))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::StartBackoff;

    #[test]
    fn pauses_double_up_to_five_minutes_and_begin_again_after_a_stable_connection() {
        let start = Instant::now();
        let mut backoff = StartBackoff::default();
        assert_eq!(backoff.pause_at(start), None);
        let mut pauses = Vec::new();
        for _ in 0..11 {
            backoff.note_failure(start, None, "died".to_owned());
            pauses.push(backoff.pause_at(start).unwrap().0.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let later = start + Duration::from_secs(300);
        assert_eq!(backoff.pause_at(later), None);
        assert_eq!(backoff.last_failure(later), Some((Duration::ZERO, "died")));
        backoff.note_failure(later, Some(start), "died".to_owned());
        assert_eq!(backoff.pause_at(later), Some((Duration::from_secs(1), "died")));
    }
}
