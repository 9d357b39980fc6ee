//! What can be asked of jobs, and why it may be refused.

use std::sync::Arc;

use super::job::{FiringId, Limits, Outcome, Plan, Status};
use crate::{
    id::{JobId, SessionId},
    message_content::Said,
    run::Marks,
};

/// Which jobs are to fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All whose time has come, as far as there is room.
    Due,
    /// This one if its time has come.
    IfDue(JobId),
    /// This one, whatever its time.
    Now(JobId),
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversation {
    /// It does.
    GoesOn,
    /// What was said before is no part of it any more.
    BeginsAnew,
}

/// What a firing says, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// In which session.
    pub session: SessionId,
    /// What.
    pub said: Said,
    /// What it says of its run.
    pub marks: Box<Marks>,
    /// What becomes of the conversation, where nothing works in it.
    pub conversation: Conversation,
}

/// How a firing ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// How.
    pub status: Status,
    /// Whether people were told of it.
    pub told: bool,
    /// What went wrong and what was said.
    pub outcome: Outcome,
}

/// A heartbeat that an agent is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its name.
    pub job: JobId,
    /// Whose.
    pub agent: String,
    /// Milliseconds from one to the next. Absent: it has one only when somebody wants it.
    pub every: Option<u64>,
}

/// Whether what is planned already stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replan {
    /// Only what differs is planned otherwise.
    Changes,
    /// Everything is planned anew from now.
    All,
}

/// A command about jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// This holds for all of them from now on.
    Limit(Limits),
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
        plan: Box<Plan>,
        /// What it does, in the words of its door.
        content: Arc<str>,
    },
    /// Plans it otherwise.
    Change {
        /// Which.
        job: JobId,
        /// When and whose.
        plan: Box<Plan>,
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
        beats: Vec<Beat>,
        /// Whether those that are as they should be are planned anew too.
        replan: Replan,
    },
    /// Has jobs fire.
    Fire(Which),
    /// Says the message of a firing that is due. Said before, it is not said again; what cannot be said ends the firing.
    Say {
        /// Which.
        firing: FiringId,
        /// What and where.
        message: Box<Message>,
    },
    /// A firing is done.
    End {
        /// Which.
        firing: FiringId,
        /// How.
        ending: Ending,
    },
}

/// Why something about jobs was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
