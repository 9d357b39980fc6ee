//! Throttle of log lines: a frequent line is logged once a minute, with its count.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which no further line is logged.
const QUIET: Duration = Duration::from_secs(60);

/// Time of the last line, and the number suppressed since.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Option<Instant>,
    kept: u64,
}

impl LogThrottle {
    /// Returns the number suppressed since the last line, if one is to be logged now.
    pub fn try_log(&mut self) -> Option<u64> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < QUIET) {
            self.kept += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::{LogThrottle, QUIET};

    #[tokio::test(start_paused = true)]
    async fn a_line_is_logged_at_once_and_then_once_a_minute() {
        let mut seldom = LogThrottle::default();
        let logged = [seldom.try_log(), seldom.try_log(), seldom.try_log()];
        tokio::time::advance(QUIET).await;
        assert_eq!((logged, seldom.try_log(), seldom.try_log()), ([Some(0), None, None], Some(2), None));
    }
}
