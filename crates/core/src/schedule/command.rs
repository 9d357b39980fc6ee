//! What can be asked of jobs, and why it may be refused.

use std::sync::Arc;

use super::job::{FiringId, FiringOutcome, FiringStatus, JobLimits, JobPlan};
use crate::{
    id::{JobId, SessionId},
    message_content::MessageContent,
    run::RunMetadata,
};

/// Which jobs are to fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSelector {
    /// All whose time has come, as far as there is room.
    Due,
    /// This one if its time has come.
    IfDue(JobId),
    /// This one, whatever its time.
    Now(JobId),
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationMode {
    /// It does.
    GoesOn,
    /// What was said before is no part of it any more.
    BeginsAnew,
}

/// What a firing says, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct FiringMessage {
    /// In which session.
    pub session: SessionId,
    /// What.
    pub message: MessageContent,
    /// What it says of its run.
    pub marks: Box<RunMetadata>,
    /// What becomes of the conversation, where nothing works in it.
    pub conversation: ConversationMode,
}

/// How a firing ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiringResult {
    /// How.
    pub status: FiringStatus,
    /// Whether people were told of it.
    pub reported: bool,
    /// What went wrong and what was said.
    pub outcome: FiringOutcome,
}

/// A heartbeat that an agent is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlan {
    /// Its name.
    pub job: JobId,
    /// Whose.
    pub agent: String,
    /// Milliseconds from one to the next. Absent: it has one only when somebody wants it.
    pub every: Option<u64>,
}

/// Whether what is planned already stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplanMode {
    /// Only what differs is planned otherwise.
    Changes,
    /// Everything is planned anew from now.
    All,
}

/// A command about jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// This holds for all of them from now on.
    Limit(JobLimits),
    /// The wall clock is so many milliseconds ahead of the time that decisions are told. Recorded where that changes what is
    /// due when.
    Clocked {
        /// Milliseconds; behind if negative.
        ahead: i64,
    },
    /// Plans something.
    Add {
        /// Its name.
        job: JobId,
        /// When and whose.
        plan: Box<JobPlan>,
        /// What it does, in the words of its door.
        content: Arc<str>,
    },
    /// Plans it otherwise.
    Change {
        /// Which.
        job: JobId,
        /// When and whose.
        plan: Box<JobPlan>,
        /// What it does, in the words of its door.
        content: Arc<str>,
    },
    /// Plans it no more.
    Remove {
        /// Which.
        job: JobId,
    },
    /// These agents have heartbeats, and no others.
    Beats {
        /// Which.
        beats: Vec<HeartbeatPlan>,
        /// Whether those that are as they should be are planned anew too.
        replan: ReplanMode,
    },
    /// Has jobs fire.
    Fire(JobSelector),
    /// Says the message of a firing that is due. Said before, it is not said again; what cannot be said ends the firing.
    Say {
        /// Which.
        firing: FiringId,
        /// What and where.
        message: Box<FiringMessage>,
    },
    /// A firing is done.
    End {
        /// Which.
        firing: FiringId,
        /// How.
        ending: FiringResult,
    },
}

/// Why something about jobs was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No job has this name.
    #[error("no job {0}")]
    NoJob(JobId),
    /// A job has this name.
    #[error("job {0} exists")]
    Exists(JobId),
    /// There are as many as there may be.
    #[error("there are {0} jobs, which is the most")]
    TooMany(u32),
    /// It is never due.
    #[error("it is never due")]
    Never,
    /// It is on its way.
    #[error("job {0} is on its way")]
    Busy(JobId),
    /// As many are on their way as may be.
    #[error("{0} jobs are on their way, which is the most")]
    Full(u32),
}
