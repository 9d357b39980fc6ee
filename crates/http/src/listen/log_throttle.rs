//! What would be said a thousand times is said once a minute, with how often it was so.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing more is said.
const QUIET: Duration = Duration::from_secs(60);

/// When something was said last, and how often it was not.
#[derive(Debug, Default)]
pub struct LogThrottle {
    last: Option<Instant>,
    kept: u64,
}

impl LogThrottle {
    /// How often it was kept back since it was said last, if it is to be said now.
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
    async fn it_is_said_at_once_and_then_once_a_minute() {
        let mut seldom = LogThrottle::default();
        let logged = [seldom.try_log(), seldom.try_log(), seldom.try_log()];
        tokio::time::advance(QUIET).await;
        assert_eq!((logged, seldom.try_log(), seldom.try_log()), ([Some(0), None, None], Some(2), None));
    }
}
