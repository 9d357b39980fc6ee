//! A planned job, and its open firing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{JobSchedule, Zone};
use crate::{
    id::{JobId, Lsn, RunId, SessionId},
    ledger::BudgetBreach,
    run::RunOutcome,
    time::Millis,
};

pub use crate::id::FiringId;

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// A job that a person planned. [`JobLimits`] apply to it.
    Job,
    /// A check of an agent's task list. There is one an agent, and it is not subject to the limits.
    Heartbeat,
}

/// Handling of a job with [`JobSchedule::At`] after it ran successfully.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterRun {
    /// The job is kept, and is not due any more.
    #[default]
    Stays,
    /// The job is removed.
    Goes,
}

/// Times and agent of a job. Its work is in the content of its record, in the form of its adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPlan {
    /// The agent of the job.
    pub agent: String,
    /// The kind.
    pub kind: JobKind,
    /// Its times.
    pub schedule: JobSchedule,
    /// True if its zone is that of the gateway and changes with it.
    #[serde(default)]
    pub follows_house: bool,
    /// True if it fires automatically.
    pub enabled: bool,
    /// Handling after it ran successfully.
    #[serde(default)]
    pub afterwards: AfterRun,
}

/// Limits of all jobs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// True if jobs fire automatically.
    pub enabled: bool,
    /// Maximum number of jobs.
    pub most: u32,
    /// Maximum number of open firings.
    pub at_once: u32,
    /// Number of firings of each that are remembered.
    pub remembered: u32,
    /// Zone of the gateway.
    pub zone: Zone,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self { enabled: true, most: 200, at_once: 4, remembered: 200, zone: Zone::UTC }
    }
}

/// Cause of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringCause {
    /// Its time has come.
    Due,
    /// A person requested it now.
    #[serde(rename = "asked")]
    Manual,
}

/// Status of a finished firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringStatus {
    /// Successful.
    Ok,
    /// Not successful.
    Failed,
    /// Not executed.
    Skipped,
}

/// Outcome of a firing, for people: the content of the record with which it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringOutcome {
    /// The error, or the reason for which it was not executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Stage of a firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringStage {
    /// Waiting to be begun.
    Due,
    /// Its message was sent to a session.
    #[serde(rename = "said")]
    MessageSent {
        /// The session.
        session: SessionId,
        /// The run that it began, once it has. A run that continues after a compaction replaces it.
        run: Option<RunId>,
        /// Outcome of that run, if it has ended.
        end: Option<RunOutcome>,
        /// Position of the last words of the run.
        words: Option<Lsn>,
        /// The limit of its contract that it used up, if that ended it.
        breach: Option<BudgetBreach>,
    },
    /// Its run is over. People have to be notified of it.
    Over(FinishedRun),
}

/// Result of a run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedRun {
    /// The session in which it ran.
    pub session: SessionId,
    /// Its outcome. Absent if it never began, because its message was taken back.
    pub end: Option<RunOutcome>,
    /// Position of its last words.
    pub words: Option<Lsn>,
    /// The limit of its contract that it used up, if that ended it.
    pub breach: Option<BudgetBreach>,
    /// Time of its end.
    pub at: Millis,
}

/// An open firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Number of the firing, from 1.
    pub number: u64,
    /// Time that it was planned for.
    pub planned: Millis,
    /// Time at which it fired.
    pub at: Millis,
    /// The cause.
    pub cause: FiringCause,
    /// The stage.
    pub stage: FiringStage,
}

/// The last firing that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFiring {
    /// Time at which it fired.
    pub at: Millis,
    /// Its status.
    pub status: FiringStatus,
    /// Its duration.
    pub took: Duration,
    /// The record of its end, whose content has the details.
    pub record: Lsn,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub(super) id: JobId,
    pub(super) plan: JobPlan,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
    pub(super) content: Lsn,
    pub(super) next: Option<Millis>,
    pub(super) fired: u64,
    pub(super) firing: Option<Firing>,
    pub(super) last: Option<LastFiring>,
    #[serde(rename = "told")]
    pub(super) last_report: Option<(Millis, Lsn)>,
    /// True if the job is removed when its firing has ended.
    pub(super) is_removed: bool,
}

impl Job {
    /// Returns its id.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Returns its times and its agent.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// Returns the time of its creation.
    pub fn created_at(&self) -> Millis {
        self.created_at
    }

    /// Returns the time of its last change.
    pub fn updated_at(&self) -> Millis {
        self.updated_at
    }

    /// Returns the record whose content is its work.
    pub fn content_lsn(&self) -> Lsn {
        self.content
    }

    /// Returns the time at which it is due next.
    pub fn next(&self) -> Option<Millis> {
        self.next
    }

    /// Returns its open firing.
    pub fn firing(&self) -> Option<&Firing> {
        self.firing.as_ref()
    }

    /// Returns its last firing that ended. For a heartbeat, the last that was not skipped.
    pub fn last_firing(&self) -> Option<&LastFiring> {
        self.last.as_ref()
    }

    /// Returns the time of the last notification of people about its result, and the record whose content is the notification.
    pub fn last_report(&self) -> Option<(Millis, Lsn)> {
        self.last_report
    }

    /// Returns the time at which it fires automatically, if no firing of it is open.
    pub(super) fn due_at(&self) -> Option<Millis> {
        self.next.filter(|_| self.plan.enabled && self.firing.is_none() && !self.is_removed)
    }
}
