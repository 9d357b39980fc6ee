//! What happened to jobs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::job::{FinishedRun, FiringCause, FiringId, FiringStatus, JobKind, JobLimits, JobPlan};
use crate::{id::JobId, time::Millis};

/// A fact about jobs. When each is due next stands in the facts, so that later rules of time zones move nothing of the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// This holds for all jobs from now on.
    Limited(JobLimits),
    /// The wall clock was moved: it is so far ahead of the time of records, in milliseconds. Instants of jobs are those
    /// of the wall clock.
    Clocked {
        /// Milliseconds; behind if negative.
        ahead: i64,
    },
    /// Something is planned. The content says what it does.
    Added {
        /// Its name.
        job: JobId,
        /// When and whose.
        plan: Box<JobPlan>,
        /// When it is due first.
        next: Option<Millis>,
    },
    /// It is planned otherwise. The content says what it does now.
    Changed {
        /// Which.
        job: JobId,
        /// When and whose.
        plan: Box<JobPlan>,
        /// When it is due next.
        next: Option<Millis>,
    },
    /// It is planned no more. What is on its way goes on.
    Removed {
        /// Which.
        job: JobId,
    },
    /// A firing is to begin.
    Fired {
        /// Which.
        firing: FiringId,
        /// When it was planned for.
        planned: Millis,
        /// Why it fires.
        cause: FiringCause,
        /// When the job is due next.
        next: Option<Millis>,
    },
    /// Its message was said in the session of this record.
    #[serde(rename = "said")]
    MessageSent {
        /// Which.
        firing: FiringId,
    },
    /// Its run is over.
    Ran {
        /// Which.
        firing: FiringId,
        /// What it came to.
        over: Box<FinishedRun>,
    },
    /// It is done. The content says what went wrong, and what was said.
    Ended {
        /// Which.
        firing: FiringId,
        /// Of what kind of a job.
        kind: JobKind,
        /// How.
        status: FiringStatus,
        /// When it fired.
        fired_at: Millis,
        /// How long it took, without telling people of it.
        took: Duration,
        /// When the job is due next.
        next: Option<Millis>,
        /// Whether people were told of it.
        #[serde(rename = "told")]
        reported: bool,
        /// How many firings of the job are remembered.
        remembered: u32,
    },
}
