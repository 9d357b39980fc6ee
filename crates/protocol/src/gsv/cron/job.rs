//! Jobs and their runs in answers.

use serde::Serialize;

use super::{CronSchedule, CronSpec};
use crate::json::wire_values;

/// Status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CronRunStatus {
    /// Well.
    Ok,
    /// Not well.
    Error,
    /// The run was skipped.
    Skipped,
}

/// The state of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CronJobState {
    /// Time of the next run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// Start of the present run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_at_ms: Option<u64>,
    /// Time of the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<u64>,
    /// Status of that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<CronRunStatus>,
    /// Error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Duration of the run, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_duration_ms: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CronJob {
    /// Its id.
    pub id: String,
    /// Agent that owns the job.
    pub agent_id: String,
    /// Name.
    pub name: String,
    /// Description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if it runs on its schedule.
    pub enabled: bool,
    /// True if it is deleted after its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
    /// Time of creation.
    pub created_at_ms: u64,
    /// Time of the last change.
    pub updated_at_ms: u64,
    /// Schedule.
    pub schedule: CronSchedule,
    /// Work of the job.
    pub spec: CronSpec,
    /// State of the job.
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

/// The answer to `cron.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CronListResult {
    /// The jobs, by the time at which they are due.
    pub jobs: Vec<CronJob>,
    /// Total number, over all pages.
    pub count: usize,
}

/// The answer to `cron.remove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CronRemoveResult {
    /// Always true.
    pub ok: bool,
    /// True if there was such a job.
    pub removed: bool,
}

/// The answer to `cron.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CronStatusResult {
    /// True if jobs run on their schedules.
    pub enabled: bool,
    /// Number of jobs.
    pub count: usize,
    /// Number of jobs that are due.
    pub due_count: usize,
    /// Number of jobs that run.
    pub running_count: usize,
    /// Time at which the next job is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// Most jobs that may exist.
    pub max_jobs: usize,
    /// Most jobs that may run at once.
    pub max_concurrent_runs: usize,
}

/// Result of one job in `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRunResult {
    /// The job.
    pub job_id: String,
    /// Status of the run.
    pub status: CronRunStatus,
    /// Error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Final text of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Duration of the run, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Time of the next run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
}

/// The answer to `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CronRunResult {
    /// Always true.
    pub ok: bool,
    /// Number of jobs that ran.
    pub ran: usize,
    /// Result of each.
    pub results: Vec<JobRunResult>,
}

/// A run that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastRun {
    /// Its number.
    pub id: u64,
    /// Time of the run.
    pub ts: u64,
    /// Result of the run.
    #[serde(flatten)]
    pub result: JobRunResult,
}

/// The answer to `cron.runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CronRunsResult {
    /// The newest first.
    pub runs: Vec<PastRun>,
    /// Total number, over all pages.
    pub count: usize,
}

wire_values! { CronSaveResult, CronListResult, CronRemoveResult, CronStatusResult, CronRunResult, CronRunsResult }
