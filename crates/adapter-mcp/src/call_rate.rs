//! Limit of calls of each principal, valid or not.

use std::collections::HashMap;

use countersign_core::{id::PrincipalId, time::Millis};
use countersign_http::limits::SlidingWindow;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Most principals whose calls are counted at the same time.
const MOST_PRINCIPALS: usize = 4096;

/// Limit of calls in any 60 seconds.
pub(super) struct CallRate {
    per_minute: u32,
    begun: Instant,
    windows: Mutex<HashMap<PrincipalId, PrincipalWindow>>,
}

struct PrincipalWindow {
    window: SlidingWindow,
    used_at: Instant,
}

impl CallRate {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute, begun: Instant::now(), windows: Mutex::default() }
    }

    /// Counts a call of a principal, if the limit has room for it.
    pub(super) fn try_count(&self, principal: &PrincipalId) -> bool {
        let now = Instant::now();
        let mut windows = self.windows.lock();
        if !windows.contains_key(principal) && windows.len() >= MOST_PRINCIPALS {
            let longest = windows.iter().min_by_key(|(_, one)| one.used_at).map(|(principal, _)| principal.clone());
            longest.iter().for_each(|principal| drop(windows.remove(principal)));
        }
        let new = || PrincipalWindow { window: SlidingWindow::new(self.per_minute), used_at: now };
        let one = windows.entry(principal.clone()).or_insert_with(new);
        one.used_at = now;
        let elapsed = now.saturating_duration_since(self.begun).as_millis();
        one.window.try_count(Millis(elapsed.try_into().unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::id::PrincipalId;

    use super::CallRate;

    #[tokio::test(start_paused = true)]
    async fn calls_of_each_principal_are_counted_for_a_minute() {
        let (rate, ana, bo) = (CallRate::new(2), PrincipalId::new("token:ana"), PrincipalId::new("token:bo"));
        let counted = [&ana, &ana, &ana, &bo].map(|principal| rate.try_count(principal));
        assert_eq!(counted, [true, true, false, true]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(rate.try_count(&ana));
    }
}
