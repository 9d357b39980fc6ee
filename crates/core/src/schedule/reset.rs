//! Says when a session begins anew by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CronExpression, Zone};
use crate::time::Millis;

/// When a session begins anew by itself. It is looked at when a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase")]
pub enum ResetRule {
    /// Never.
    #[default]
    Manual,
    /// Every day at a full hour.
    Daily {
        /// From 0 to 23.
        hour: u8,
    },
    /// When nothing happened for a while.
    Idle {
        /// For how long; 0 is due at the next run.
        minutes: u32,
    },
}

impl ResetRule {
    /// From when on a session in which something happened last at `last` begins anew. Absent if it never does.
    ///
    /// A daily hour that the clock skips is the end of the gap; of one that comes twice the first counts.
    pub fn next(self, last: Millis, zone: Zone) -> Option<Millis> {
        match self {
            Self::Manual => None,
            Self::Daily { hour } => CronExpression::daily_at(hour).next(last, zone),
            Self::Idle { minutes } => Some(last + Duration::from_secs(u64::from(minutes) * 60)),
        }
    }

    /// Decides whether a run that begins at `now` begins the session anew.
    pub fn is_due(self, last: Millis, now: Millis, zone: Zone) -> bool {
        match self {
            Self::Manual => false,
            Self::Daily { .. } | Self::Idle { minutes: 0 } => self.next(last, zone).is_some_and(|at| at <= now),
            // Just as long is not longer.
            Self::Idle { .. } => self.next(last, zone).is_some_and(|at| at < now),
        }
    }
}
