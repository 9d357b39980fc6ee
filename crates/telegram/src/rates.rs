//! Rates at which Telegram lets a bot write: its limits before it begins to refuse.
//!
//! It reads no clock: the time is handed in.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Limits of a bot. The defaults are Telegram's own figures; a server of one's own may take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRates {
    /// Calls in a second that write anything, to all chats together.
    pub overall_a_second: u32,
    /// Messages in a second to one chat, on average.
    pub chat_a_second: u32,
    /// Number of them that may come at once.
    pub burst: u32,
    /// Messages in a minute to a group.
    pub group_a_minute: u32,
}

impl Default for WriteRates {
    fn default() -> Self {
        Self { overall_a_second: 30, chat_a_second: 1, burst: 10, group_a_minute: 20 }
    }
}

/// Kind of the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    /// A new message.
    Message,
    /// A change of one that is there.
    Edit,
}

/// Recent messages to the one chat that there is.
#[derive(Debug)]
pub(super) struct RateMeter {
    rates: WriteRates,
    overall: VecDeque<Instant>,
    group: VecDeque<Instant>,
    /// When the chat's bucket is full again.
    full_at: Option<Instant>,
}

impl RateMeter {
    pub(super) fn new(rates: WriteRates) -> Self {
        Self { rates, overall: VecDeque::new(), group: VecDeque::new(), full_at: None }
    }

    /// Returns the time at which it may be written, at `now` or later.
    pub(super) fn ready_at(&mut self, writing: WriteKind, is_group: bool, now: Instant) -> Instant {
        let mut ready = window_opens(&mut self.overall, self.rates.overall_a_second, Duration::from_secs(1), now);
        if writing == WriteKind::Message {
            if is_group {
                let minute = Duration::from_secs(60);
                ready = ready.max(window_opens(&mut self.group, self.rates.group_a_minute, minute, now));
            }
            let room = self.message_cost() * self.rates.burst.saturating_sub(1);
            ready = ready.max(self.full_at.and_then(|full| full.checked_sub(room)).unwrap_or(now));
        }
        ready.max(now)
    }

    /// Notes that it was written.
    pub(super) fn record_write(&mut self, writing: WriteKind, now: Instant) {
        self.overall.push_back(now);
        if writing == WriteKind::Message {
            self.group.push_back(now);
            self.full_at = Some(self.full_at.unwrap_or(now).max(now) + self.message_cost());
        }
    }

    fn message_cost(&self) -> Duration {
        Duration::from_secs(1) / self.rates.chat_a_second.max(1)
    }
}

/// Returns the time at which the next may come after those of the last `span`, of which there may be `most`.
fn window_opens(past: &mut VecDeque<Instant>, most: u32, span: Duration, now: Instant) -> Instant {
    while past.front().is_some_and(|first| *first + span <= now) {
        past.pop_front();
    }
    let most = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
    past.len().checked_sub(most).and_then(|at| past.get(at)).map_or(now, |first| *first + span)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{RateMeter, WriteKind, WriteRates};

    /// Returns the time at which each of `count` goes out, in milliseconds, if all are queued at once.
    fn times(writing: WriteKind, is_group: bool, count: usize) -> Vec<u128> {
        let mut meter = RateMeter::new(WriteRates::default());
        let start = Instant::now();
        let mut now = start;
        (0..count)
            .map(|_| {
                now = meter.ready_at(writing, is_group, now);
                meter.record_write(writing, now);
                (now - start).as_millis()
            })
            .collect()
    }

    #[test]
    fn a_chat_takes_a_burst_and_then_one_a_second() {
        let times = times(WriteKind::Message, false, 40);
        assert_eq!(times[..10], [0; 10]);
        assert_eq!(times[10..], (1..=30).map(|second| second * 1000).collect::<Vec<u128>>());
    }

    #[test]
    fn a_group_takes_twenty_a_minute() {
        let times = times(WriteKind::Message, true, 41);
        assert_eq!((times[19], times[20], times[40]), (10_000, 60_000, 120_000));
    }

    #[test]
    fn all_together_take_thirty_a_second() {
        let times = times(WriteKind::Edit, true, 61);
        assert_eq!((times[29], times[30], times[59], times[60]), (0, 1_000, 1_000, 2_000));
    }

    #[test]
    fn a_pause_fills_the_bucket_again_and_no_further() {
        let mut meter = RateMeter::new(WriteRates::default());
        let mut now = Instant::now();
        for round in 0..2 {
            for at in 0..11 {
                let ready = meter.ready_at(WriteKind::Message, false, now);
                assert_eq!((ready - now).as_secs(), u64::from(at == 10), "round {round}, message {at}");
                if ready == now {
                    meter.record_write(WriteKind::Message, now);
                }
            }
            now += Duration::from_secs(100);
        }
    }
}
