//! Deciders for jobs: their plans, their firings, and the messages of firings.

use super::renewal;
use crate::{
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    id::{JobId, PrincipalId},
    schedule::{
        self, Command, ConversationMode, Event as Happened, FinishedRun, FiringCause, FiringId, FiringMessage,
        FiringOutcome, FiringResult, FiringStage, FiringStatus, HeartbeatPlan, Job, JobKind, JobPlan, JobSchedule,
        JobSelector, ReplanMode, ScheduleError as Refused,
    },
    session::Session,
    settle,
    time::Millis,
};

pub(super) fn decide_schedule(
    view: DecisionView<'_>,
    command: Command,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let state = view.state.schedule();
    // Instants of jobs are those of the wall clock.
    let wall = state.wall_time(context.now);
    match command {
        Command::Clocked { ahead } if state.is_moved(ahead) => {
            Ok(done_reply(vec![schedule_fact(Happened::Clocked { ahead })]))
        }
        Command::Clocked { .. } => Ok(done_reply(Vec::new())),
        Command::Limit(limits) if limits == state.limits() => Ok(done_reply(Vec::new())),
        Command::Limit(limits) => Ok(done_reply(vec![schedule_fact(Happened::Limited(limits))])),
        Command::Add { job, mut plan, content } => {
            plan.schedule.count_from(wall);
            if state.job(&job).is_some() || state.open_firings().any(|(open, _)| *open.id() == job) {
                return Err(Refused::Exists(job).into());
            }
            let most = state.limits().most;
            if plan.kind == JobKind::Job && state.planned_count() >= usize::try_from(most).unwrap_or(usize::MAX) {
                return Err(Refused::TooMany(most).into());
            }
            let first = schedule::first_firing(&plan, wall).ok_or(Refused::Never)?;
            let next = plan.enabled.then_some(first);
            let event = Event::Schedule(Happened::Added { job, plan, next });
            Ok(done_reply(vec![Fact { event, session: None, content: Some(content) }]))
        }
        Command::Change { job, mut plan, content } => {
            plan.schedule.count_from(wall);
            let next = next_firing(find_job(view, &job)?, &plan, wall)?;
            let event = Event::Schedule(Happened::Changed { job, plan, next });
            Ok(done_reply(vec![Fact { event, session: None, content: Some(content) }]))
        }
        Command::Remove { job } => match state.job(&job) {
            Some(_) => Ok(done_reply(vec![schedule_fact(Happened::Removed { job })])),
            None => Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle }),
        },
        Command::Beats { beats, replan } => Ok(done_reply(planned_beats(view, beats, replan, wall))),
        Command::Fire(which) => fire_jobs(view, &which, context.now),
        Command::Say { firing, message } => Ok(send_firing(view, firing, *message, context)),
        Command::End { firing, ending } => Ok(end_firing(view, &firing, &ending, context.now)),
    }
}

fn done_reply(facts: Vec<Fact>) -> DecisionResult {
    DecisionResult { facts, reply: EngineReply::Done }
}

fn schedule_fact(event: Happened) -> Fact {
    Fact::without_content(Event::Schedule(event), None)
}

fn find_job<'a>(view: DecisionView<'a>, job: &JobId) -> Result<&'a Job, CommandError> {
    view.state.schedule().job(job).ok_or_else(|| Refused::NoJob(job.clone()).into())
}

/// Returns the next due time of a job under another plan. An unchanged schedule keeps its time.
fn next_firing(job: &Job, plan: &JobPlan, now: Millis) -> Result<Option<Millis>, CommandError> {
    let is_as_before = job.plan().schedule == plan.schedule && job.plan().enabled == plan.enabled;
    if is_as_before {
        return Ok(job.next());
    }
    let first = schedule::first_firing(plan, now).ok_or(Refused::Never)?;
    Ok(plan.enabled.then_some(first))
}

fn planned_beats(view: DecisionView<'_>, beats: Vec<HeartbeatPlan>, replan: ReplanMode, now: Millis) -> Vec<Fact> {
    let state = view.state.schedule();
    let gone = state.jobs(JobKind::Heartbeat).filter(|job| !beats.iter().any(|beat| beat.job == *job.id()));
    let mut facts: Vec<Fact> = gone.map(|job| schedule_fact(Happened::Removed { job: job.id().clone() })).collect();
    for HeartbeatPlan { job, agent, every } in beats {
        let known = state.job(&job);
        let step = |job: &Job| match job.plan().schedule {
            JobSchedule::Every { every, .. } if job.plan().enabled => Some(every),
            _ => None,
        };
        if known.is_some_and(|known| replan == ReplanMode::Changes && step(known) == every) {
            continue;
        }
        let schedule = every.and_then(|every| JobSchedule::every(every, now).ok());
        let enabled = schedule.is_some();
        let schedule = schedule.unwrap_or(JobSchedule::At { at: Millis(0) });
        let next = schedule.next(now).filter(|_| enabled);
        let (kind, afterwards) = (JobKind::Heartbeat, schedule::AfterRun::Stays);
        let plan = Box::new(JobPlan { agent, kind, schedule, follows_house: false, enabled, afterwards });
        facts.push(schedule_fact(match known {
            Some(_) => Happened::Changed { job, plan, next },
            None => Happened::Added { job, plan, next },
        }));
    }
    facts
}

fn fire_jobs(view: DecisionView<'_>, which: &JobSelector, now: Millis) -> Result<DecisionResult, CommandError> {
    let state = view.state.schedule();
    let wall = state.wall_time(now);
    let is_due = |job: &&Job| job.plan().enabled && job.next().is_some_and(|next| next <= wall);
    let (jobs, cause) = match which {
        JobSelector::Due => (state.due_jobs(now), FiringCause::Due),
        JobSelector::IfDue(job) => {
            let job = Some(find_job(view, job)?).filter(|job| is_due(job) && state.has_room());
            (job.into_iter().collect(), FiringCause::Due)
        }
        JobSelector::Now(job) => {
            let job = find_job(view, job)?;
            match job.firing() {
                // Its own time came first, for a job that is always due when it is planned: that run is meant.
                Some(firing) if job.plan().kind == JobKind::Job && firing.cause == FiringCause::Due => {
                    let firing = FiringId { job: job.id().clone(), number: firing.number };
                    return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Fired(vec![firing]) });
                }
                Some(_) => return Err(Refused::Busy(job.id().clone()).into()),
                None => {}
            }
            if job.plan().kind == JobKind::Job && !state.has_room() {
                return Err(Refused::Full(state.limits().at_once).into());
            }
            (vec![job], FiringCause::Manual)
        }
    };
    let fired: Vec<Happened> = jobs.into_iter().filter_map(|job| schedule::fired_event(job, cause, wall)).collect();
    let named = fired.iter().filter_map(|event| match event {
        Happened::Fired { firing, .. } => Some(firing.clone()),
        _ => None,
    });
    let reply = EngineReply::Fired(named.collect());
    Ok(DecisionResult { facts: fired.into_iter().map(schedule_fact).collect(), reply })
}

/// Sends the message of a firing. No client waits for the reply: a message that is refused ends the firing.
fn send_firing(
    view: DecisionView<'_>,
    firing: FiringId,
    message: FiringMessage,
    context: &mut DecisionContext,
) -> DecisionResult {
    let state = view.state.schedule();
    let Some((_, open)) = state.firing(&firing).filter(|(_, open)| open.stage == FiringStage::Due) else {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    };
    debug_assert_eq!(open.number, firing.number);
    match firing_facts(view, &firing, message, context) {
        Ok(facts) => done_reply(facts),
        Err(refusal) => {
            let outcome = FiringOutcome { error: Some(refusal.to_string()), summary: None };
            end_firing(
                view,
                &firing,
                &FiringResult { status: FiringStatus::Failed, reported: false, outcome },
                context.now,
            )
        }
    }
}

fn firing_facts(
    view: DecisionView<'_>,
    firing: &FiringId,
    message: FiringMessage,
    context: &mut DecisionContext,
) -> Result<Vec<Fact>, CommandError> {
    let FiringMessage { session, message: content, marks, conversation } = message;
    let session = super::find_session(view, &session)?;
    view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(session.id().clone()))?;
    let mut marks = marks;
    marks.firing = Some(firing.clone());
    let event = Event::Schedule(Happened::MessageSent { firing: firing.clone() });
    let mut facts = vec![Fact::without_content(event, Some(session.id().clone()))];
    if conversation == ConversationMode::BeginsAnew && is_over(session) && !view.closing {
        facts.extend(renewal::renew_session(view, session, &PrincipalId::new("system"), None)?.facts);
        let mut branch = BranchBuilder::from_root(session);
        settle::begin_own(&mut branch, Some(content), *marks, context);
        facts.extend(branch.into_facts());
    } else {
        facts.extend(renewal::submit_message(view, session, content, marks, context)?.facts);
    }
    Ok(facts)
}

/// Reports whether a session has messages and no work in progress.
fn is_over(session: &Session) -> bool {
    session.is_at_rest() && session.queued_count() == 0 && !session.entries().is_empty()
}

fn end_firing(view: DecisionView<'_>, id: &FiringId, ending: &FiringResult, now: Millis) -> DecisionResult {
    let Some((job, open)) = view.state.schedule().firing(id) else {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Dropped };
    };
    let until = match &open.stage {
        FiringStage::Over(FinishedRun { at, .. }) => *at,
        FiringStage::Due => now,
        // Its run reports its own end.
        FiringStage::MessageSent { .. } => return DecisionResult { facts: Vec::new(), reply: EngineReply::Dropped },
    };
    let ended = Happened::Ended {
        firing: id.clone(),
        kind: job.plan().kind,
        status: ending.status,
        fired_at: view.state.schedule().wall_time(open.at),
        took: until.since(open.at),
        next: job.next(),
        reported: ending.reported,
        remembered: view.state.schedule().limits().remembered,
    };
    let content = serde_json::to_string(&ending.outcome).expect("an outcome is plain text");
    done_reply(vec![Fact { event: Event::Schedule(ended), session: None, content: Some(content.into()) }])
}
