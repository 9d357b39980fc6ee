//! Whether somebody is still at the other end of a line: asked every so often, and taken for gone where nothing was heard
//! between two questions.
//!
//! It must not know what is sent, nor what counts as a sign of life.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Whoever looks that much later than was due was held up itself, by a slow disk or a full machine, and has not read what came
/// meanwhile.
pub const LATE: Duration = Duration::from_secs(1);

/// When to ask, and whether anything was heard since it was asked last.
#[derive(Debug)]
pub struct KeepAlive {
    due: Interval,
    was_active: bool,
}

impl KeepAlive {
    /// Asked every `period` from now on.
    pub fn with_period(period: Duration) -> Self {
        let mut due = interval_at(Instant::now() + period, period);
        // What was missed is not made up for: two questions at once leave no time for an answer.
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { due, was_active: true }
    }

    /// Something was heard.
    pub const fn note_activity(&mut self) {
        self.was_active = true;
    }

    /// Waits until it is time to ask again. False if nothing was heard since the last time, though there was time to listen.
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
    async fn a_line_is_dead_once_nothing_was_heard_between_two_questions() {
        let (begun, mut pulse) = (Instant::now(), KeepAlive::with_period(PERIOD));
        assert!(pulse.next_probe().await);
        pulse.note_activity();
        assert!(pulse.next_probe().await);
        assert!(!pulse.next_probe().await);
        assert_eq!(begun.elapsed(), PERIOD * 3);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_held_up_itself_listens_before_it_takes_a_line_for_dead() {
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
