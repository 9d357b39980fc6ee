//! Commands about jobs, and the reasons for which they are refused.

use std::sync::Arc;

use super::job::{FiringId, FiringOutcome, FiringStatus, JobLimits, JobPlan};
use crate::{
    id::{JobId, SessionId},
    message_content::MessageContent,
    run::RunMetadata,
};

/// Selection of the jobs to fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSelector {
    /// All whose time has come, within the limit.
    Due,
    /// The job, if its time has come.
    IfDue(JobId),
    /// The job, at any time.
    Now(JobId),
}

/// Mode of the conversation of a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationMode {
    /// The conversation continues.
    GoesOn,
    /// The conversation restarts: earlier messages are no part of it any more.
    BeginsAnew,
}

/// Message of a firing, with its session.
#[derive(Clone, Debug, PartialEq)]
pub struct FiringMessage {
    /// The session.
    pub session: SessionId,
    /// The message.
    pub message: MessageContent,
    /// Metadata of its run.
    pub marks: Box<RunMetadata>,
    /// Mode of the conversation, if nothing works in it.
    pub conversation: ConversationMode,
}

/// Result of a firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiringResult {
    /// The status.
    pub status: FiringStatus,
    /// True if people were notified of it.
    pub reported: bool,
    /// Error and summary.
    pub outcome: FiringOutcome,
}

/// Desired heartbeat of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlan {
    /// Its name.
    pub job: JobId,
    /// The agent.
    pub agent: String,
    /// Milliseconds from one to the next. Absent: it has one only on request.
    pub every: Option<u64>,
}

/// Handling of existing plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplanMode {
    /// Only differing plans are replaced.
    Changes,
    /// Everything is planned again from now.
    All,
}

/// A command about jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sets the limits of all jobs.
    Limit(JobLimits),
    /// Reports that the wall clock is so many milliseconds ahead of the decision time. Recorded if that changes due
    /// times.
    Clocked {
        /// Milliseconds; negative if it is late.
        ahead: i64,
    },
    /// Adds a job.
    Add {
        /// Its name.
        job: JobId,
        /// Its times and its agent.
        plan: Box<JobPlan>,
        /// Its work, in the form of its adapter.
        content: Arc<str>,
    },
    /// Changes a job.
    Change {
        /// The job.
        job: JobId,
        /// Its times and its agent.
        plan: Box<JobPlan>,
        /// Its work, in the form of its adapter.
        content: Arc<str>,
    },
    /// Removes a job.
    Remove {
        /// The job.
        job: JobId,
    },
    /// Sets the agents with heartbeats, and no others.
    Beats {
        /// The heartbeats.
        beats: Vec<HeartbeatPlan>,
        /// Handling of unchanged ones.
        replan: ReplanMode,
    },
    /// Fires jobs.
    Fire(JobSelector),
    /// Sends the message of a firing that is due. A repetition does not send it again; a message that is refused ends the firing.
    Say {
        /// The firing.
        firing: FiringId,
        /// The message, with its session.
        message: Box<FiringMessage>,
    },
    /// Ends a firing.
    End {
        /// The firing.
        firing: FiringId,
        /// The result.
        ending: FiringResult,
    },
}

/// Reason for which a command about jobs was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No job has this name.
    #[error("no job {0}")]
    NoJob(JobId),
    /// A job has this name.
    #[error("job {0} exists")]
    Exists(JobId),
    /// The number of jobs is at its limit.
    #[error("there are already {0} jobs, which is the limit")]
    TooMany(u32),
    /// The schedule is never due.
    #[error("the schedule never fires")]
    Never,
    /// A firing of it is open.
    #[error("job {0} is already running")]
    Busy(JobId),
    /// The number of open firings is at its limit.
    #[error("{0} jobs are already running, which is the limit")]
    Full(u32),
}
