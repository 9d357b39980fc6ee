//! Automation: jobs and heartbeats. Source: docs/protocol/gsv.md, Schedules and Heartbeats.
//!
//! The engine (`core::schedule`) decides when a job is due, and that each firing happens once. This adapter decides about the
//! message, the session and the receiver of the report.

mod definition;
mod firing;
mod heartbeats;
mod history;
mod jobs;
mod notify;
mod schedule_input;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use countersign_core::{
    engine::{Command, CommandError, EngineReply, Event, RecordedFact},
    schedule::{self, JobLimits, ReplanMode},
};
use countersign_protocol::gsv::{GsvError, GsvRequest, Method, code};
use countersign_runtime::{DueFiring, InboxLane, OwnerError};
use tokio::sync::watch;

use super::{
    GsvAdapter,
    method_result::{MethodResult, unsupported_method},
};

pub use history::JobRunsView;
pub(super) use jobs::{StartedJobs, begin_run};
pub(super) use schedule_input::in_wire_form;

/// Answers a request of this group, but for `cron.run`: see [`begin_run`].
pub(super) async fn handle_request(door: &Arc<GsvAdapter>, method: Method, request: GsvRequest) -> MethodResult {
    match request {
        GsvRequest::CronStatus => jobs::cron_status(door).await,
        GsvRequest::CronList(list) => jobs::cron_list(door, list).await,
        GsvRequest::CronAdd(create) => jobs::cron_add(door, *create).await,
        GsvRequest::CronUpdate(update) => jobs::cron_update(door, *update).await,
        GsvRequest::CronRemove(remove) => jobs::cron_remove(door, remove).await,
        GsvRequest::CronRuns(runs) => jobs::cron_runs(door, runs).await,
        GsvRequest::HeartbeatStatus => heartbeats::heartbeat_status(door).await,
        GsvRequest::HeartbeatStart => heartbeats::start_heartbeats(door).await,
        GsvRequest::HeartbeatTrigger(trigger) => heartbeats::trigger_heartbeat(door, &trigger.agent).await,
        _ => Err(unsupported_method(method)),
    }
}

/// Answers a request of an agent. It does not wait for runs: they may wait for its own to end.
pub(super) async fn handle_agent_request(door: &Arc<GsvAdapter>, method: Method, request: GsvRequest) -> MethodResult {
    match request {
        GsvRequest::CronStatus => jobs::cron_status(door).await,
        GsvRequest::CronList(list) => jobs::cron_list(door, list).await,
        GsvRequest::CronAdd(create) => jobs::cron_add(door, *create).await,
        GsvRequest::CronUpdate(update) => jobs::cron_update(door, *update).await,
        GsvRequest::CronRemove(remove) => jobs::cron_remove(door, remove).await,
        GsvRequest::CronRun(run) => jobs::start_jobs(door, run).await,
        GsvRequest::CronRuns(runs) => jobs::cron_runs(door, runs).await,
        _ => Err(unsupported_method(method)),
    }
}

/// State of jobs and heartbeats in this adapter.
#[derive(Default)]
pub(super) struct AutomationState {
    /// True if heartbeats were planned since this process began.
    is_beating: AtomicBool,
    /// Lock for changes of jobs: a change starts from the current job.
    changing: tokio::sync::Mutex<()>,
    /// Lock for plans of heartbeats: the last plan is by the newest settings.
    planning: tokio::sync::Mutex<()>,
}

/// Entry point for firings. They wait until the adapter is open.
pub(super) struct FiringDispatcher(watch::Sender<Option<Arc<GsvAdapter>>>);

impl Default for FiringDispatcher {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl FiringDispatcher {
    /// Lets waiting firings continue.
    pub(super) fn open(&self, door: &Arc<GsvAdapter>) {
        self.0.send_replace(Some(Arc::clone(door)));
    }

    /// Handles a firing.
    pub(super) async fn dispatch_firing(&self, fired: &DueFiring) -> schedule::Command {
        let mut opened = self.0.subscribe();
        let door = opened.wait_for(Option::is_some).await.ok().and_then(|door| door.clone());
        let Some(door) = door else { return std::future::pending().await };
        firing::handle_firing(&door, fired).await
    }
}

/// Brings the settings of jobs and heartbeats into force, now and after each change. `None` if the gateway
/// closes.
pub(super) async fn follow_settings(door: &Arc<GsvAdapter>) -> Option<()> {
    let of_settings = |recorded: &Arc<RecordedFact>| matches!(recorded.fact.event, Event::Settings(_)).then_some(());
    let mut changes = door.context.handle.follow_facts(of_settings).await?;
    bring_settings(door).await.ok()?;
    let door = Arc::clone(door);
    tokio::spawn(async move {
        while let Some(()) = changes.next().await {
            // A change that is not recorded now is brought with the next change, or by the next process.
            if door.settings.refresh(&door.context.handle).await.is_none() || bring_settings(&door).await.is_err() {
                tracing::warn!(
                    "failed to apply changed settings of jobs and heartbeats; retrying with the next change"
                );
            }
        }
    });
    Some(())
}

async fn bring_settings(door: &Arc<GsvAdapter>) -> Result<(), GsvError> {
    let tree = door.settings.tree();
    let usual = JobLimits::default();
    let count = |name: &str| tree["cron"][name].as_u64().and_then(|count| u32::try_from(count).ok());
    let limits = JobLimits {
        enabled: tree["cron"]["enabled"].as_bool().unwrap_or(usual.enabled),
        most: count("maxJobs").unwrap_or(usual.most),
        at_once: count("maxConcurrentRuns").unwrap_or(usual.at_once).max(1),
        remembered: count("maxRunsPerJobHistory").unwrap_or(usual.remembered).max(1),
        zone: door.settings.user_zone(),
    };
    send_command(door, schedule::Command::Limit(limits)).await?;
    if heartbeats::are_planned(door).await? {
        heartbeats::plan_heartbeats(door, ReplanMode::Changes).await?;
    }
    Ok(())
}

/// Returns the fact if it is about jobs.
fn fact_of_schedule(recorded: &Arc<RecordedFact>) -> Option<Arc<RecordedFact>> {
    matches!(recorded.fact.event, Event::Schedule(_)).then(|| Arc::clone(recorded))
}

/// Plans heartbeats, when the first peer connects.
pub(super) fn on_peer_connected(door: &Arc<GsvAdapter>) {
    if !door.automation.is_beating.swap(true, Ordering::Relaxed) {
        let door = Arc::clone(door);
        tokio::spawn(async move {
            if heartbeats::plan_heartbeats(&door, ReplanMode::Changes).await.is_err() {
                // The next peer that connects tries again.
                door.automation.is_beating.store(false, Ordering::Relaxed);
            }
        });
    }
}

/// Sends a command about jobs.
///
/// # Errors
/// 500 with the reason of the refusal.
async fn send_command(door: &GsvAdapter, command: schedule::Command) -> Result<EngineReply, GsvError> {
    let result = door.context.handle.source(InboxLane::Request).send_command(Command::Schedule(command)).await;
    result.map(|reply| reply.outcome).map_err(|refused| schedule_error(&refused))
}

/// Converts a refusal to an error of the wire.
fn schedule_error(refused: &OwnerError) -> GsvError {
    use countersign_protocol::gsv::cron;
    match refused {
        OwnerError::Refusal(CommandError::Schedule(refusal)) => match refusal {
            schedule::ScheduleError::NoJob(job) => cron::unknown_job(job.as_str()),
            schedule::ScheduleError::TooMany(most) => cron::too_many(usize::try_from(*most).unwrap_or(usize::MAX)),
            schedule::ScheduleError::Never => job_error("schedule is never due"),
            schedule::ScheduleError::Busy(job) => job_error(format!("Cron job is running: {job}")),
            schedule::ScheduleError::Full(most) => {
                job_error(format!("Too many cron jobs are running (at most {most})"))
            }
            schedule::ScheduleError::Exists(_) => job_error(refusal.to_string()),
        },
        refused => job_error(refused.to_string()),
    }
}

/// Returns an error with the code that the original uses for jobs.
fn job_error(message: impl Into<String>) -> GsvError {
    GsvError::new(code::FAILED, message)
}

fn gateway_closing() -> GsvError {
    job_error("the gateway is closing")
}
