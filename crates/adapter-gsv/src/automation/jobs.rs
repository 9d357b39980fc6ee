//! The methods about jobs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use countersign_core::{
    engine::{Command, CommandError, Engine, EngineReply, Event, RecordedFact},
    id::{JobId, Lsn},
    schedule::{self, FiringId, FiringOutcome, FiringStage, Job, JobKind, JobSelector},
};
use countersign_protocol::{
    RawJson,
    gsv::{GsvError, code, cron, key},
};
use countersign_runtime::{FactFollower, InboxLane, OwnerError};
use uuid::Uuid;

use super::{
    super::{GsvAdapter, method_result::MethodResult, peer::ConnectedPeer},
    definition::JobDefinition,
    fact_of_schedule, gateway_closing, history, job_error, schedule_error, send_command,
};

pub(super) async fn cron_status(door: &Arc<GsvAdapter>) -> MethodResult {
    let now = door.context.clock.now();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| {
        let state = engine.state().schedule();
        let limits = state.limits();
        let small = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        cron::CronStatusResult {
            enabled: limits.enabled,
            count: state.planned_count(),
            due_count: state.waiting_count(now),
            running_count: state.on_their_way(),
            next_run_at_ms: state.next_job().map(|next| next.0),
            max_jobs: small(limits.most),
            max_concurrent_runs: small(limits.at_once),
        }
    });
    Ok(RawJson::from_wire(&read.await.ok_or_else(gateway_closing)?.0))
}

pub(super) async fn cron_list(door: &Arc<GsvAdapter>, list: cron::CronListParams) -> MethodResult {
    Ok(RawJson::from_wire(&list_jobs(door, list).await?))
}

/// Lists jobs, those that are due first at first.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn list_jobs(
    door: &Arc<GsvAdapter>,
    list: cron::CronListParams,
) -> Result<cron::CronListResult, GsvError> {
    let source = door.context.handle.source(InboxLane::Request);
    let agent = list.agent.as_deref().map(key::agent_id);
    let (page, is_all) = (list.page, list.include_disabled);
    let read = source.read_state(move |engine| {
        let jobs = engine.state().schedule().jobs(JobKind::Job);
        let is_selected = |job: &&Job| {
            let plan = job.plan();
            agent.as_ref().is_none_or(|agent| plan.agent == *agent) && (is_all || plan.enabled)
        };
        let mut jobs: Vec<&Job> = jobs.filter(is_selected).collect();
        jobs.sort_by_key(|job| (Reverse(job.next().map(Reverse)), job.created_at(), job.id().clone()));
        let count = jobs.len();
        (page.select_rows(jobs).into_iter().cloned().collect::<Vec<Job>>(), count)
    });
    let ((jobs, count), _) = read.await.ok_or_else(gateway_closing)?;
    Ok(cron::CronListResult { jobs: to_wire_jobs(door, jobs).await?, count })
}

/// Converts jobs to those of the wire.
async fn to_wire_jobs(door: &Arc<GsvAdapter>, jobs: Vec<Job>) -> Result<Vec<cron::CronJob>, GsvError> {
    let places = jobs.iter().flat_map(|job| [Some(job.content_lsn()), job.last_firing().map(|last| last.record)]);
    let places: Vec<Lsn> = places.flatten().collect();
    let texts = door.context.handle.contents().get(&places).await.map_err(|error| job_error(error.to_string()))?;
    let texts: BTreeMap<Lsn, Arc<str>> =
        places.into_iter().zip(texts).filter_map(|(place, text)| Some((place, text?))).collect();
    Ok(jobs.iter().filter_map(|job| to_wire_job(job, &texts)).collect())
}

fn to_wire_job(job: &Job, texts: &BTreeMap<Lsn, Arc<str>>) -> Option<cron::CronJob> {
    let definition: JobDefinition = serde_json::from_str(texts.get(&job.content_lsn())?).ok()?;
    let last = job.last_firing();
    let outcome = last.and_then(|last| serde_json::from_str::<FiringOutcome>(texts.get(&last.record)?).ok());
    Some(cron::CronJob {
        id: job.id().as_str().to_owned(),
        agent_id: job.plan().agent.clone(),
        name: definition.name,
        description: definition.description,
        enabled: job.plan().enabled,
        delete_after_run: definition.delete_after_run,
        created_at_ms: job.created_at().0,
        updated_at_ms: job.updated_at().0,
        schedule: definition.schedule,
        spec: definition.spec,
        state: cron::CronJobState {
            next_run_at_ms: job.next().map(|next| next.0),
            running_at_ms: job.firing().map(|firing| firing.at.0),
            last_run_at_ms: last.map(|last| last.at.0),
            last_status: last.map(|last| history::wire_status(last.status)),
            last_error: outcome.and_then(|outcome| outcome.error),
            last_duration_ms: last.map(|last| u64::try_from(last.took.as_millis()).unwrap_or(u64::MAX)),
        },
    })
}

/// Finds one job of [`JobKind::Job`].
async fn find_job(door: &Arc<GsvAdapter>, id: &str) -> Result<Job, GsvError> {
    let job = JobId::new(id);
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| engine.state().schedule().job(&job).cloned());
    let (found, _) = read.await.ok_or_else(gateway_closing)?;
    found.filter(|job| job.plan().kind == JobKind::Job).ok_or_else(|| cron::unknown_job(id))
}

async fn saved_job(door: &Arc<GsvAdapter>, id: &str) -> Result<cron::CronSaveResult, GsvError> {
    let job = to_wire_jobs(door, vec![find_job(door, id).await?]).await?.pop();
    Ok(cron::CronSaveResult { ok: true, job: job.ok_or_else(|| job_error(format!("Cron job cannot be read: {id}")))? })
}

pub(super) async fn cron_add(door: &Arc<GsvAdapter>, create: cron::CronAddParams) -> MethodResult {
    Ok(RawJson::from_wire(&add_job(door, create).await?))
}

/// Plans a job.
///
/// # Errors
/// 500 with the reason.
pub(super) async fn add_job(
    door: &Arc<GsvAdapter>,
    create: cron::CronAddParams,
) -> Result<cron::CronSaveResult, GsvError> {
    let agent = create.agent.as_deref().map_or_else(|| door.settings.default_agent(), key::agent_id);
    let definition = JobDefinition {
        name: create.name,
        description: create.description,
        schedule: create.schedule,
        spec: create.spec,
        delete_after_run: create.delete_after_run,
    };
    let plan = definition.to_plan(door, agent, create.enabled)?;
    let id = Uuid::new_v4().to_string();
    let (job, plan, content) = (JobId::new(id.as_str()), Box::new(plan), definition.record_content());
    send_command(door, schedule::Command::Add { job, plan, content }).await?;
    saved_job(door, &id).await
}

pub(super) async fn cron_update(door: &Arc<GsvAdapter>, update: cron::CronUpdateParams) -> MethodResult {
    Ok(RawJson::from_wire(&update_job(door, update).await?))
}

/// Changes a job. Fields that are missing in the patch stay.
///
/// # Errors
/// 500 with the reason.
pub(super) async fn update_job(
    door: &Arc<GsvAdapter>,
    update: cron::CronUpdateParams,
) -> Result<cron::CronSaveResult, GsvError> {
    let _turn = door.automation.changing.lock().await;
    let job = find_job(door, &update.id).await?;
    let text =
        door.context.handle.contents().get(&[job.content_lsn()]).await.map_err(|error| job_error(error.to_string()))?;
    let text = text.into_iter().next().flatten();
    let before = text.and_then(|text| serde_json::from_str::<JobDefinition>(&text).ok());
    let before = before.ok_or_else(|| job_error(format!("Cron job cannot be read: {}", update.id)))?;
    let is_planned_anew = update.schedule.is_some();
    let definition = JobDefinition {
        name: update.name.unwrap_or(before.name),
        description: update.description.or(before.description),
        schedule: update.schedule.unwrap_or(before.schedule),
        spec: match update.spec {
            Some(patch) => patch.apply_to(Some(&before.spec))?,
            None => before.spec,
        },
        delete_after_run: update.delete_after_run.or(before.delete_after_run),
    };
    let agent = update.agent.as_deref().map_or_else(|| job.plan().agent.clone(), key::agent_id);
    let enabled = update.enabled.unwrap_or_else(|| job.plan().enabled);
    let mut plan = definition.to_plan(door, agent, enabled)?;
    if !is_planned_anew {
        // Intervals continue from where they were counted.
        plan.schedule = job.plan().schedule.clone();
        plan.follows_house = job.plan().follows_house;
    }
    let (plan, content) = (Box::new(plan), definition.record_content());
    send_command(door, schedule::Command::Change { job: job.id().clone(), plan, content }).await?;
    saved_job(door, &update.id).await
}

pub(super) async fn cron_remove(door: &Arc<GsvAdapter>, remove: cron::CronRemoveParams) -> MethodResult {
    Ok(RawJson::from_wire(&remove_job(door, &remove.id).await?))
}

/// Removes a job.
///
/// # Errors
/// 500 if the change was not recorded.
pub(super) async fn remove_job(door: &Arc<GsvAdapter>, id: &str) -> Result<cron::CronRemoveResult, GsvError> {
    let Ok(job) = find_job(door, id).await else { return Ok(cron::CronRemoveResult { ok: true, removed: false }) };
    let reply = send_command(door, schedule::Command::Remove { job: job.id().clone() }).await?;
    Ok(cron::CronRemoveResult { ok: true, removed: reply == EngineReply::Done })
}

/// Jobs that a `cron.run` started, and whose ends it waits for.
pub(crate) struct StartedJobs {
    facts: FactFollower<Arc<RecordedFact>>,
    /// Firings, or the result of the selected job if it runs already.
    fired: Result<Vec<FiringId>, cron::JobRunResult>,
}

/// Starts jobs.
///
/// # Errors
/// 500 with the reason why none was started.
pub(crate) async fn begin_run(door: &Arc<GsvAdapter>, run: &cron::CronRunParams) -> Result<StartedJobs, GsvError> {
    let facts = door.context.handle.follow_facts(fact_of_schedule).await.ok_or_else(gateway_closing)?;
    Ok(StartedJobs { facts, fired: fire_jobs(door, run).await? })
}

impl StartedJobs {
    /// Waits for their ends, and returns the answer. The jobs continue if the caller disconnects.
    ///
    /// # Errors
    /// 503 if the caller has disconnected.
    pub(crate) async fn wait_ends(self, door: &Arc<GsvAdapter>, peer: &ConnectedPeer) -> MethodResult {
        let result = match self.fired {
            Ok(fired) => wait_ends(door, peer, self.facts, fired).await?,
            Err(skipped) => cron::CronRunResult { ok: true, ran: 0, results: vec![skipped] },
        };
        Ok(RawJson::from_wire(&result))
    }
}

async fn wait_ends(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    mut facts: FactFollower<Arc<RecordedFact>>,
    fired: Vec<FiringId>,
) -> Result<cron::CronRunResult, GsvError> {
    let mut results = BTreeMap::new();
    let mut spoke = begun_firings(door, fired.clone()).await?;
    while results.len() < fired.len() {
        let (over, result) = tokio::select! {
            biased;
            end = next_end(&mut facts, &mut spoke) => end.ok_or_else(gateway_closing)?,
            () = peer.wait_gone() => return Err(GsvError::new(code::UNAVAILABLE, "the connection is gone")),
        };
        // An earlier run of the same job may end meanwhile.
        let is_over = |fired: &&FiringId| match &over {
            EndedWork::Firing(firing) => *fired == firing,
            EndedWork::Job(job) => fired.job == *job && !spoke.contains(*fired),
        };
        if let Some(firing) = fired.iter().find(is_over) {
            results.entry(firing.clone()).or_insert(result);
        }
    }
    let ran = results.values().filter(|result| result.status != cron::CronRunStatus::Skipped).count();
    let results = fired.iter().filter_map(|fired| results.remove(fired)).collect();
    Ok(cron::CronRunResult { ok: true, ran, results })
}

/// Starts jobs, or reports that the selected one runs already.
async fn fire_jobs(
    door: &Arc<GsvAdapter>,
    run: &cron::CronRunParams,
) -> Result<Result<Vec<FiringId>, cron::JobRunResult>, GsvError> {
    let which = match run {
        cron::CronRunParams::Due => JobSelector::Due,
        cron::CronRunParams::IfDue(id) => JobSelector::IfDue(find_job(door, id).await?.id().clone()),
        cron::CronRunParams::Force(id) => JobSelector::Now(find_job(door, id).await?.id().clone()),
    };
    let source = door.context.handle.source(InboxLane::Request);
    match source.send_command(Command::Schedule(schedule::Command::Fire(which))).await.map(|reply| reply.outcome) {
        Ok(EngineReply::Fired(fired)) => Ok(Ok(fired)),
        Ok(_) => Ok(Ok(Vec::new())),
        Err(OwnerError::Refusal(CommandError::Schedule(schedule::ScheduleError::Busy(job)))) => {
            let error = Some("it is running already".to_owned());
            Ok(Err(run_result(&job, cron::CronRunStatus::Skipped, error, None)))
        }
        Err(refused) => Err(schedule_error(&refused)),
    }
}

/// Returns the firings that have begun already. A firing that began at its own time was announced before the caller subscribed.
async fn begun_firings(door: &Arc<GsvAdapter>, fired: Vec<FiringId>) -> Result<HashSet<FiringId>, GsvError> {
    let look = move |engine: &Engine| {
        let state = engine.state().schedule();
        let has_begun = |id: &FiringId| state.firing(id).is_some_and(|(_, firing)| firing.stage != FiringStage::Due);
        fired.into_iter().filter(has_begun).collect()
    };
    let read = door.context.handle.source(InboxLane::Request).read_state(look).await;
    read.map(|(begun, _)| begun).ok_or_else(gateway_closing)
}

/// Starts jobs, and returns those that will run.
pub(super) async fn start_jobs(door: &Arc<GsvAdapter>, run: cron::CronRunParams) -> MethodResult {
    let begun = match fire_jobs(door, &run).await? {
        Ok(fired) => serde_json::json!({ "ok": true, "started": fired.iter().map(|it| &it.job).collect::<Vec<_>>() }),
        Err(skipped) => serde_json::json!({ "ok": true, "started": [], "skipped": skipped }),
    };
    Ok(RawJson::from(begun))
}

/// Work that has ended.
enum EndedWork {
    Firing(FiringId),
    /// A job, with every firing of it that had not begun.
    Job(JobId),
}

/// Waits for the next end of a firing or of a job. Firings that began are in `spoke`.
async fn next_end(
    facts: &mut FactFollower<Arc<RecordedFact>>,
    spoke: &mut HashSet<FiringId>,
) -> Option<(EndedWork, cron::JobRunResult)> {
    loop {
        let recorded = facts.next().await?;
        let Event::Schedule(event) = &recorded.fact.event else { continue };
        match event {
            schedule::Event::Ended { firing, status, took, next, .. } => {
                let content = recorded.fact.content.as_deref();
                let outcome =
                    content.and_then(|text| serde_json::from_str::<FiringOutcome>(text).ok()).unwrap_or_default();
                let status = history::wire_status(*status);
                let result = cron::JobRunResult {
                    duration_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                    next_run_at_ms: next.map(|next| next.0),
                    ..run_result(&firing.job, status, outcome.error, outcome.summary)
                };
                return Some((EndedWork::Firing(firing.clone()), result));
            }
            schedule::Event::MessageSent { firing } => {
                spoke.insert(firing.clone());
            }
            schedule::Event::Removed { job } => {
                let error = Some("it was removed".to_owned());
                return Some((EndedWork::Job(job.clone()), run_result(job, cron::CronRunStatus::Skipped, error, None)));
            }
            schedule::Event::Limited(_)
            | schedule::Event::Clocked { .. }
            | schedule::Event::Added { .. }
            | schedule::Event::Changed { .. }
            | schedule::Event::Fired { .. }
            | schedule::Event::Ran { .. } => {}
        }
    }
}

fn run_result(
    job: &JobId,
    status: cron::CronRunStatus,
    error: Option<String>,
    summary: Option<String>,
) -> cron::JobRunResult {
    let job_id = job.as_str().to_owned();
    cron::JobRunResult { job_id, status, error, summary, duration_ms: None, next_run_at_ms: None }
}

pub(super) async fn cron_runs(door: &Arc<GsvAdapter>, runs: cron::CronRunsParams) -> MethodResult {
    Ok(RawJson::from_wire(&past_runs(door, &runs).await?))
}

/// Returns the past runs.
///
/// # Errors
/// 500 if the record cannot be read.
pub(super) async fn past_runs(
    door: &Arc<GsvAdapter>,
    runs: &cron::CronRunsParams,
) -> Result<cron::CronRunsResult, GsvError> {
    let found = history::job_runs(door.context.handle.log(), runs.job.as_deref(), runs.page).await;
    found.map_err(|error| job_error(error.to_string()))
}
