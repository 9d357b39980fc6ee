//! Jobs and their runs, as answers tell of them.

use serde::Serialize;

use super::{Schedule, Spec};
use crate::json::Wire;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Well.
    Ok,
    /// Not well.
    Error,
    /// It was not done.
    Skipped,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// When it is due next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// Since when it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_at_ms: Option<u64>,
    /// When it last ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<u64>,
    /// How that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<Status>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_duration_ms: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub agent_id: String,
    /// What it is called.
    pub name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it runs by itself.
    pub enabled: bool,
    /// Whether it goes after its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
    /// When it was made.
    pub created_at_ms: u64,
    /// When it was changed.
    pub updated_at_ms: u64,
    /// When it is due.
    pub schedule: Schedule,
    /// What it does.
    pub spec: Spec,
    /// How it stands.
    pub state: State,
}

/// The answer to `cron.add` and `cron.update`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// Always true.
    pub ok: bool,
    /// The job.
    pub job: Job,
}

impl Wire for Saved {}

/// The answer to `cron.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Those that are due first come first.
    pub jobs: Vec<Job>,
    /// How many there are in all.
    pub count: usize,
}

impl Wire for Listed {}

/// The answer to `cron.remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Always true.
    pub ok: bool,
    /// Whether there was such a job.
    pub removed: bool,
}

impl Wire for Removed {}

/// The answer to `cron.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// Whether jobs run by themselves.
    pub enabled: bool,
    /// How many there are.
    pub count: usize,
    /// How many are due.
    pub due_count: usize,
    /// How many run.
    pub running_count: usize,
    /// When the next is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// How many there may be.
    pub max_jobs: usize,
    /// How many may run at once.
    pub max_concurrent_runs: usize,
}

impl Wire for Scheduler {}

/// How one job went in `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// The job.
    pub job_id: String,
    /// How it ended.
    pub status: Status,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When it is due next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
}

/// The answer to `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ran {
    /// Always true.
    pub ok: bool,
    /// How many ran.
    pub ran: usize,
    /// How each went.
    pub results: Vec<RunResult>,
}

impl Wire for Ran {}

/// A run that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Past {
    /// Its number.
    pub id: u64,
    /// When it was.
    pub ts: u64,
    /// How it went.
    #[serde(flatten)]
    pub result: RunResult,
}

/// The answer to `cron.runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastRuns {
    /// The newest first.
    pub runs: Vec<Past>,
    /// How many there are in all.
    pub count: usize,
}

impl Wire for PastRuns {}
