//! Checks that a client is still at the other end of a line: probed at intervals, and taken for gone if nothing was received
//! between two probes.
//!
//! It must not know the content of probes, nor the signs of life.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// A check that is this much later than due was held up itself, by a slow disk or a full machine, and has not read the input that came
/// meanwhile.
pub const LATE: Duration = Duration::from_secs(1);

/// Time of the next probe, and whether anything was received since the last.
#[derive(Debug)]
pub struct KeepAlive {
    due: Interval,
    was_active: bool,
}

impl KeepAlive {
    /// Makes one that probes every `period` from now on.
    pub fn with_period(period: Duration) -> Self {
        let mut due = interval_at(Instant::now() + period, period);
        // Missed probes are not made up for: two probes at once leave no time for an answer.
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { due, was_active: true }
    }

    /// Notes that something was received.
    pub const fn note_activity(&mut self) {
        self.was_active = true;
    }

    /// Waits until the next probe is due. False if nothing was received since the last, though there was time to receive.
    ///
    /// *Cancellation*: nothing is lost.
    pub async fn next_probe(&mut self) -> bool {
        let was_due = self.due.tick().await;
        std::mem::replace(&mut self.was_active, false) || was_due.elapsed() > LATE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance};

    use super::KeepAlive;

    const PERIOD: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_dead_if_nothing_arrives_between_two_probes() {
        let (begun, mut pulse) = (Instant::now(), KeepAlive::with_period(PERIOD));
        assert!(pulse.next_probe().await);
        pulse.note_activity();
        assert!(pulse.next_probe().await);
        assert!(!pulse.next_probe().await);
        assert_eq!(begun.elapsed(), PERIOD * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_probe_reads_before_it_takes_a_connection_for_dead() {
        let mut pulse = KeepAlive::with_period(PERIOD);
        assert!(pulse.next_probe().await);
        for _ in 0..3 {
            advance(PERIOD * 4).await;
            let late = Instant::now();
            assert!(pulse.next_probe().await, "it has not listened since");
            assert_eq!(late.elapsed(), Duration::ZERO);
        }
        let probed_at = Instant::now();
        assert!(!pulse.next_probe().await);
        assert_eq!(probed_at.elapsed(), PERIOD);
    }
}
