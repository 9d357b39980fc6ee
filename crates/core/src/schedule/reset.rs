//! Computes the time at which a session restarts automatically.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CronExpression, Zone};
use crate::time::Millis;

/// Rule for the automatic restart of a session. It is evaluated when a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase")]
pub enum ResetRule {
    /// Never.
    #[default]
    Manual,
    /// Every day at a full hour.
    Daily {
        /// Hour of the day, from 0 to 23.
        hour: u8,
    },
    /// After a while without events.
    Idle {
        /// Minutes without events; 0 is due at the next run.
        minutes: u32,
    },
}

impl ResetRule {
    /// Returns the time from which on a session with the last event at `last` restarts. Absent if it never does.
    ///
    /// A daily hour that the clock skips is the end of the gap; of one that comes twice the first counts.
    pub fn next(self, last: Millis, zone: Zone) -> Option<Millis> {
        match self {
            Self::Manual => None,
            Self::Daily { hour } => CronExpression::daily_at(hour).next(last, zone),
            Self::Idle { minutes } => Some(last + Duration::from_secs(u64::from(minutes) * 60)),
        }
    }

    /// Decides whether a run that begins at `now` restarts the session.
    pub fn is_due(self, last: Millis, now: Millis, zone: Zone) -> bool {
        match self {
            Self::Manual => false,
            Self::Daily { .. } | Self::Idle { minutes: 0 } => self.next(last, zone).is_some_and(|at| at <= now),
            // An equal time is not longer.
            Self::Idle { .. } => self.next(last, zone).is_some_and(|at| at < now),
        }
    }
}
