//! Health of the messenger.

use std::{fmt, sync::Arc};

use countersign_core::time::Millis;
use countersign_runtime::Clock;
use parking_lot::Mutex;

/// Time of the last successful call of the Bot API, and time and reason of the last failed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// The last call that worked.
    pub worked: Option<Millis>,
    /// The last call that did not, and why. It never holds the token.
    pub failed: Option<(Millis, String)>,
}

impl HealthReport {
    /// Reports whether the last call worked.
    pub fn is_well(&self) -> bool {
        self.worked.is_some() && self.failed.as_ref().is_none_or(|(at, _)| self.worked > Some(*at))
    }
}

/// Holder of the report.
#[derive(Clone)]
pub(super) struct HealthTracker {
    clock: Clock,
    report: Arc<Mutex<HealthReport>>,
}

impl fmt::Debug for HealthTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.lock().fmt(f)
    }
}

impl HealthTracker {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, report: Arc::default() }
    }

    pub(super) fn record_success(&self) {
        let mut report = self.report.lock();
        report.worked = Some(self.clock.now());
        // Within one millisecond the order would be lost.
        if report.failed.as_ref().is_some_and(|(at, _)| report.worked <= Some(*at)) {
            report.failed = None;
        }
    }

    pub(super) fn record_failure(&self, why: String) {
        self.report.lock().failed = Some((self.clock.now(), why));
    }

    pub(super) fn report(&self) -> HealthReport {
        self.report.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, HealthTracker, Millis};

    #[tokio::test(start_paused = true)]
    async fn the_last_call_says_whether_it_is_well() {
        let health = HealthTracker::new(Clock::starting_at(Millis(5)));
        assert!(!health.report().is_well());
        health.record_failure("getMe: down".to_owned());
        assert!(!health.report().is_well());
        health.record_success();
        assert!(health.report().is_well(), "in the same millisecond");
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        health.record_failure("getMe: down".to_owned());
        assert_eq!(health.report().failed, Some((Millis(1_005), "getMe: down".to_owned())));
        assert!(!health.report().is_well());
    }
}
