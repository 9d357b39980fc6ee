//! Pauses of a node before it tries to reach its gateway again.
//!
//! It must not wait itself.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(500);
/// The longest. A gateway holds what waits for a node for a minute.
const LONGEST: Duration = Duration::from_secs(20);
/// The pause of a node whose place another one has taken: the two would go on taking it from each other.
const REPLACED: Duration = Duration::from_secs(60);
/// A connection that lived so long was a good one.
const GOOD: Duration = Duration::from_secs(10);

/// The pauses, each twice as long as the one before.
#[derive(Debug)]
pub(crate) struct ReconnectBackoff {
    next: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl ReconnectBackoff {
    /// Returns the pause after a failed connection. `chance` between 0 and 1 keeps many nodes from coming at once.
    pub(crate) fn next_pause(&mut self, chance: f64) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// Returns the pause after a connection that lived so long.
    pub(crate) fn pause_after(&mut self, lived: Duration, chance: f64) -> Duration {
        if lived >= GOOD {
            *self = Self::default();
        }
        self.next_pause(chance)
    }

    /// Returns the pause after another node took our place.
    pub(crate) const fn replaced_pause() -> Duration {
        REPLACED
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ReconnectBackoff;

    #[test]
    fn pauses_grow_to_twenty_seconds_and_start_over_after_a_good_connection() {
        let mut backoff = ReconnectBackoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.next_pause(0.5).as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
        assert_eq!(backoff.pause_after(Duration::from_secs(1), 0.0), Duration::from_secs(15));
        assert_eq!(backoff.pause_after(Duration::from_secs(10), 1.0), Duration::from_millis(625));
    }
}
