//! Events of jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::job::{FinishedRun, FiringCause, FiringId, FiringStatus, JobKind, JobLimits, JobPlan};
use crate::{id::JobId, time::Millis};

/// A fact about jobs. The facts hold each next due time, so that later rules of time zones do not change the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The limits of all jobs were set.
    Limited(JobLimits),
    /// The wall clock was moved: it is this far ahead of the time of records, in milliseconds. Instants of jobs are those
    /// of the wall clock.
    Clocked {
        /// Milliseconds; negative if it is late.
        ahead: i64,
    },
    /// A job was added. The content is its work.
    Added {
        /// Its name.
        job: JobId,
        /// Its times and its agent.
        plan: Box<JobPlan>,
        /// Time at which it is due first.
        next: Option<Millis>,
    },
    /// A job was changed. The content is its new work.
    Changed {
        /// The job.
        job: JobId,
        /// Its times and its agent.
        plan: Box<JobPlan>,
        /// Time at which it is due next.
        next: Option<Millis>,
    },
    /// A job was removed. An open firing continues.
    Removed {
        /// The job.
        job: JobId,
    },
    /// A firing is to begin.
    Fired {
        /// The firing.
        firing: FiringId,
        /// Time that it was planned for.
        planned: Millis,
        /// Cause of the firing.
        cause: FiringCause,
        /// Time at which the job is due next.
        next: Option<Millis>,
    },
    /// Its message was sent to the session of this record.
    #[serde(rename = "said")]
    MessageSent {
        /// The firing.
        firing: FiringId,
    },
    /// Its run is over.
    Ran {
        /// The firing.
        firing: FiringId,
        /// The finished run.
        over: Box<FinishedRun>,
    },
    /// End of a firing. The content is the error and the summary.
    Ended {
        /// The firing.
        firing: FiringId,
        /// Kind of the job.
        kind: JobKind,
        /// The status.
        status: FiringStatus,
        /// Time at which it fired.
        fired_at: Millis,
        /// Its duration, without the notification of people.
        took: Duration,
        /// Time at which the job is due next.
        next: Option<Millis>,
        /// True if people were notified of it.
        #[serde(rename = "told")]
        reported: bool,
        /// Number of firings of the job that are remembered.
        remembered: u32,
    },
}
