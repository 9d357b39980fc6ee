//! Says when something that was planned is due: at an instant, every so often, or by the calendar of a time zone; and keeps
//! what is planned, with each firing from its time to its end.
//!
//! It must not know what is done then: an instant goes in, the next one comes out, and what a job does is the content of its
//! record, in the words of its door. The rules of time zones are compiled in, so that one log gives the same instants on
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

/// The shortest time between two firings of [`Schedule::Every`].
pub const SHORTEST: Duration = Duration::from_secs(1);

/// How far a wall clock may be put back with what was due in that time not being due again: so far people and time services
/// correct a clock, and clocks are put back in autumn where a machine lives by local time. Further, it was wrong.
const CORRECTED: Duration = Duration::from_secs(3 * 60 * 60);

/// The anchor of steps that are counted from when they are planned.
const NOT_COUNTED: Millis = Millis(u64::MAX);

/// When something is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum JobSchedule {
    /// Once. An instant that is past is due at once.
    At {
        /// The instant.
        at: Millis,
    },
    /// Again and again, always the same time apart: at the anchor, and then by this step whatever a run takes.
    Every {
        /// The step in milliseconds; see [`Schedule::every`].
        every: u64,
        /// Where steps are counted from. Nothing is due before it.
        anchor: Millis,
    },
    /// By the calendar.
    Cron {
        /// Which minutes.
        expression: CronExpression,
        /// In whose local time.
        zone: Zone,
    },
}

/// Why something cannot be done every so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every {0} ms is too often: a second is the least")]
pub struct TooOften(pub u64);

/// A firing whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiringTimes {
    /// When it was planned for. With the job it names the firing, so that it is done once.
    pub planned: Millis,
    /// What is planned next. Absent if nothing is.
    pub next: Option<Millis>,
}

impl JobSchedule {
    /// Every `every` milliseconds from `anchor` on.
    ///
    /// # Errors
    /// [`TooOften`] below [`SHORTEST`].
    pub fn every(every: u64, anchor: Millis) -> Result<Self, TooOften> {
        if u128::from(every) < SHORTEST.as_millis() {
            return Err(TooOften(every));
        }
        Ok(Self::Every { every, anchor })
    }

    /// Every `every` milliseconds from when it is planned. Only the planner's clock knows that instant: another one is a little
    /// ahead of it or behind, and what is counted from a moment to come is due then.
    ///
    /// # Errors
    /// [`TooOften`] below [`SHORTEST`].
    pub fn every_from_now(every: u64) -> Result<Self, TooOften> {
        Self::every(every, NOT_COUNTED)
    }

    /// Steps that are not counted from anywhere yet are counted from here.
    pub(crate) fn count_from(&mut self, now: Millis) {
        if let Self::Every { anchor, .. } = self
            && *anchor == NOT_COUNTED
        {
            *anchor = now;
        }
    }

    /// The first firing of something that was planned at `created`.
    pub fn first_firing(&self, created: Millis) -> Option<Millis> {
        match self {
            Self::At { at } => Some(*at),
            Self::Every { .. } | Self::Cron { .. } => self.next(created),
        }
    }

    /// The first firing strictly after `after`. Absent if there is none.
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

    /// A wall clock that showed `before` was put back and shows `now`. Steps that were counted go on being counted.
    fn put_back(&mut self, before: Millis, now: Millis) {
        let Self::Every { every, anchor } = self else { return };
        if *anchor > before || *anchor <= now || *every == 0 {
            return;
        }
        let steps = (anchor.0 - now.0).div_ceil(*every);
        *anchor = Millis(anchor.0.saturating_sub(steps.saturating_mul(*every)));
    }

    /// What was planned for `next` is planned for then. Something that fired is not due again for a clock that was only
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
    /// Firings between the two, of a time when nobody was there, are gone: however many were missed, one is due, and the
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
