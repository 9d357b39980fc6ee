//! Jobs and their runs, as answers tell of them.

use serde::Serialize;

use super::{CronSchedule, CronSpec};
use crate::json::WireValue;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CronRunStatus {
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
pub struct CronJobState {
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
    pub last_status: Option<CronRunStatus>,
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
pub struct CronJob {
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
    pub schedule: CronSchedule,
    /// What it does.
    pub spec: CronSpec,
    /// How it stands.
    pub state: CronJobState,
}

/// The answer to `cron.add` and `cron.update`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CronSaveResult {
    /// Always true.
    pub ok: bool,
    /// The job.
    pub job: CronJob,
}

impl WireValue for CronSaveResult {}

/// The answer to `cron.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CronListResult {
    /// Those that are due first come first.
    pub jobs: Vec<CronJob>,
    /// How many there are in all.
    pub count: usize,
}

impl WireValue for CronListResult {}

/// The answer to `cron.remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CronRemoveResult {
    /// Always true.
    pub ok: bool,
    /// Whether there was such a job.
    pub removed: bool,
}

impl WireValue for CronRemoveResult {}

/// The answer to `cron.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CronStatusResult {
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

impl WireValue for CronStatusResult {}

/// How one job went in `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRunResult {
    /// The job.
    pub job_id: String,
    /// How it ended.
    pub status: CronRunStatus,
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
pub struct CronRunResult {
    /// Always true.
    pub ok: bool,
    /// How many ran.
    pub ran: usize,
    /// How each went.
    pub results: Vec<JobRunResult>,
}

impl WireValue for CronRunResult {}

/// A run that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastRun {
    /// Its number.
    pub id: u64,
    /// When it was.
    pub ts: u64,
    /// How it went.
    #[serde(flatten)]
    pub result: JobRunResult,
}

/// The answer to `cron.runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CronRunsResult {
    /// The newest first.
    pub runs: Vec<PastRun>,
    /// How many there are in all.
    pub count: usize,
}

impl WireValue for CronRunsResult {}
