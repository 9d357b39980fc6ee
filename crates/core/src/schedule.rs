//! Computes due times of planned work: at an instant, at an interval, or by the calendar of a time zone; and keeps
//! the plans, with each firing from its time to its end.
//!
//! It must not know what is executed then: an instant goes in, the next one comes out, and the work of a job is the content of its
//! record, in the form of its adapter. The rules of time zones are compiled in, so that one log gives the same instants on
//! every machine.

mod calendar;
mod command;
mod cron;
mod event;
mod heartbeat;
mod job;
mod reset;
mod state;
mod time_phrase;
mod zone;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use command::{
    Command, ConversationMode, FiringMessage, FiringResult, HeartbeatPlan, JobSelector, ReplanMode, ScheduleError,
};
pub use cron::{CronError, CronExpression};
pub use event::Event;
pub use heartbeat::{
    ActiveHours, HeartbeatReport, HoursError, REPEATED_AFTER, SkipReason, has_tasks, heartbeat_report,
};
pub use job::{
    AfterRun, FinishedRun, Firing, FiringCause, FiringId, FiringOutcome, FiringStage, FiringStatus, Job, JobKind,
    JobLimits, JobPlan, LastFiring,
};
pub use reset::ResetRule;
pub use state::State;
pub(crate) use state::{fired_event, first_firing};
pub use time_phrase::{TimePhraseError, parse_instant, parse_span};
pub use zone::{UnknownZone, Zone};

use crate::time::Millis;

/// Minimum time between two firings of [`JobSchedule::Every`].
pub const SHORTEST: Duration = Duration::from_secs(1);

/// Maximum time by which a wall clock may be put back without repeating firings of that time: people and time services
/// correct a clock by this much, and clocks are put back in autumn if a machine runs on local time. With more, it was wrong.
const CORRECTED: Duration = Duration::from_secs(3 * 60 * 60);

/// The anchor of steps that are counted from the time of planning.
const NOT_COUNTED: Millis = Millis(u64::MAX);

/// Due times of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum JobSchedule {
    /// Once. A past instant is due at once.
    At {
        /// The instant.
        at: Millis,
    },
    /// Fixed interval: at the anchor, and then by this step, for any duration of a run.
    Every {
        /// The step in milliseconds; see [`JobSchedule::every`].
        every: u64,
        /// Origin of the steps. Nothing is due before it.
        anchor: Millis,
    },
    /// Calendar times of a cron expression.
    Cron {
        /// The minutes.
        expression: CronExpression,
        /// The zone of the local time.
        zone: Zone,
    },
}

/// Error for an interval that is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every {0} ms is too often: a second is the least")]
pub struct TooOften(pub u64);

/// A firing whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiringTimes {
    /// Time that it was planned for. With the job it identifies the firing, so that it is done once.
    pub planned: Millis,
    /// Time that is planned next. Absent if there is none.
    pub next: Option<Millis>,
}

impl JobSchedule {
    /// Creates a schedule for every `every` milliseconds from `anchor` on.
    ///
    /// # Errors
    /// [`TooOften`] below [`SHORTEST`].
    pub fn every(every: u64, anchor: Millis) -> Result<Self, TooOften> {
        if u128::from(every) < SHORTEST.as_millis() {
            return Err(TooOften(every));
        }
        Ok(Self::Every { every, anchor })
    }

    /// Creates a schedule for every `every` milliseconds from the time of planning. Only the planner's clock knows that instant: another
    /// one is a little ahead or late, and steps from a future moment would be due then.
    ///
    /// # Errors
    /// [`TooOften`] below [`SHORTEST`].
    pub fn every_from_now(every: u64) -> Result<Self, TooOften> {
        Self::every(every, NOT_COUNTED)
    }

    /// Sets the origin of steps that have none yet.
    pub(crate) fn count_from(&mut self, now: Millis) {
        if let Self::Every { anchor, .. } = self
            && *anchor == NOT_COUNTED
        {
            *anchor = now;
        }
    }

    /// Returns the first firing of work that was planned at `created`.
    pub fn first_firing(&self, created: Millis) -> Option<Millis> {
        match self {
            Self::At { at } => Some(*at),
            Self::Every { .. } | Self::Cron { .. } => self.next(created),
        }
    }

    /// Returns the first firing strictly after `after`. Absent if there is none.
    pub fn next(&self, after: Millis) -> Option<Millis> {
        match self {
            Self::At { at } => (*at > after).then_some(*at),
            Self::Every { every, anchor } if after < *anchor => (*every > 0).then_some(*anchor),
            Self::Every { every, anchor } => {
                let steps = (after.0 - anchor.0).checked_div(*every)?.checked_add(1)?;
                anchor.0.checked_add(steps.checked_mul(*every)?).map(Millis)
            }
            Self::Cron { expression, zone } => expression.next(after, *zone),
        }
    }

    /// Adjusts to a wall clock that showed `before`, was put back and shows `now`. Counted steps continue.
    fn put_back(&mut self, before: Millis, now: Millis) {
        let Self::Every { every, anchor } = self else { return };
        if *anchor > before || *anchor <= now || *every == 0 {
            return;
        }
        let steps = (anchor.0 - now.0).div_ceil(*every);
        *anchor = Millis(anchor.0.saturating_sub(steps.saturating_mul(*every)));
    }

    /// Returns the time for which the firing of `next` is planned then. A past firing is not due again if the clock was only
    /// corrected, and nothing waits much longer than its step.
    fn next_put_back(&self, next: Millis, before: Millis, now: Millis) -> Option<Millis> {
        let stays = match self {
            Self::At { .. } => true,
            Self::Every { every, .. } => before.since(now) < Duration::from_millis(*every).min(CORRECTED),
            Self::Cron { .. } => before.since(now) <= CORRECTED,
        };
        if stays || next <= now { Some(next) } else { self.next(now) }
    }

    /// Decides whether the firing planned for `planned` is due at `now`, and what comes after it.
    ///
    /// Firings between the two, of a time when no process ran, are dropped: for any number of missed ones, one is due, and the
    /// next lies after `now`.
    pub fn due_firing(&self, planned: Millis, now: Millis) -> Option<FiringTimes> {
        if planned > now {
            return None;
        }
        let next = match self {
            Self::At { .. } => None,
            Self::Every { .. } | Self::Cron { .. } => self.next(now),
        };
        Some(FiringTimes { planned, next })
    }
}
