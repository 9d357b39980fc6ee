//! What is planned, and a firing of it on its way.

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

/// What kind of a job it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// What somebody planned. [`Limits`] hold for it.
    Job,
    /// An agent looks after its list. There is one an agent, and it waits for nobody's turn.
    Heartbeat,
}

/// What becomes of a job with [`Schedule::At`] after it ran well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterRun {
    /// It stays, and is not due any more.
    #[default]
    Stays,
    /// It goes.
    Goes,
}

/// When a job is due, and whose it is. What it does stands in the content of its record, in the words of its door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPlan {
    /// Whose job it is.
    pub agent: String,
    /// What kind.
    pub kind: JobKind,
    /// When it is due.
    pub schedule: JobSchedule,
    /// Whether its zone is the house's and changes with it.
    #[serde(default)]
    pub follows_house: bool,
    /// Whether it is due by itself.
    pub enabled: bool,
    /// What becomes of it after it ran well.
    #[serde(default)]
    pub afterwards: AfterRun,
}

/// What holds for all jobs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLimits {
    /// Whether jobs are due by themselves.
    pub enabled: bool,
    /// How many there may be.
    pub most: u32,
    /// How many may be on their way at once.
    pub at_once: u32,
    /// How many firings of each are remembered.
    pub remembered: u32,
    /// The zone of the house.
    pub zone: Zone,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self { enabled: true, most: 200, at_once: 4, remembered: 200, zone: Zone::UTC }
    }
}

/// Why a job fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringCause {
    /// Its time has come.
    Due,
    /// Somebody wants it now.
    #[serde(rename = "asked")]
    Manual,
}

/// How a firing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringStatus {
    /// Well.
    Ok,
    /// Not well.
    Failed,
    /// It was not done.
    Skipped,
}

/// What a firing came to, for people: the content of the record with which it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringOutcome {
    /// What went wrong, or why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// How far a firing is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringStage {
    /// Somebody has to begin it.
    Due,
    /// Its message was said in a session.
    #[serde(rename = "said")]
    MessageSent {
        /// Which.
        session: SessionId,
        /// The run that it began, once it has. The one that goes on after a compaction takes its place.
        run: Option<RunId>,
        /// How that run ended, if it has.
        end: Option<RunOutcome>,
        /// Where the last words of the run lie.
        words: Option<Lsn>,
        /// What it used up of its contract, if that ended it.
        breach: Option<BudgetBreach>,
    },
    /// Its run is over. Somebody has to tell people of it.
    Over(FinishedRun),
}

/// What a run of a job came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedRun {
    /// Where it ran.
    pub session: SessionId,
    /// How it ended. Absent if it never began, because its message was taken back.
    pub end: Option<RunOutcome>,
    /// Where its last words lie.
    pub words: Option<Lsn>,
    /// What it used up of its contract, if that ended it.
    pub breach: Option<BudgetBreach>,
    /// When.
    pub at: Millis,
}

/// A firing on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firing {
    /// Counts from 1.
    pub number: u64,
    /// When it was planned for.
    pub planned: Millis,
    /// When it fired.
    pub at: Millis,
    /// Why.
    pub cause: FiringCause,
    /// How far it is.
    pub stage: FiringStage,
}

/// The last firing that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFiring {
    /// When it fired.
    pub at: Millis,
    /// How it ended.
    pub status: FiringStatus,
    /// How long it took.
    pub took: Duration,
    /// The record that says so, whose content says more.
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
    /// It goes when its firing has ended.
    pub(super) is_removed: bool,
}

impl Job {
    /// Its id.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// When it is due, and whose it is.
    pub fn plan(&self) -> &JobPlan {
        &self.plan
    }

    /// When it was made.
    pub fn created_at(&self) -> Millis {
        self.created_at
    }

    /// When it was last changed.
    pub fn updated_at(&self) -> Millis {
        self.updated_at
    }

    /// The record whose content says what it does.
    pub fn content_lsn(&self) -> Lsn {
        self.content
    }

    /// When it is due next.
    pub fn next(&self) -> Option<Millis> {
        self.next
    }

    /// Its firing that is on its way.
    pub fn firing(&self) -> Option<&Firing> {
        self.firing.as_ref()
    }

    /// Its last firing that ended. Of a heartbeat, that was not skipped.
    pub fn last_firing(&self) -> Option<&LastFiring> {
        self.last.as_ref()
    }

    /// When people were last told what came of it, and the record whose content says what they were told.
    pub fn last_report(&self) -> Option<(Millis, Lsn)> {
        self.last_report
    }

    /// When it counts as due by itself, with nothing of it on its way.
    pub(super) fn due_at(&self) -> Option<Millis> {
        self.next.filter(|_| self.plan.enabled && self.firing.is_none() && !self.is_removed)
    }
}
