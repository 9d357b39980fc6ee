//! Deciders for jobs: what is planned, what fires, and what is said for it.

use super::renewal;
use crate::{
    decision::{BranchBuilder, CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    id::{JobId, PrincipalId},
    schedule::{
        self, Beat, Cause, Command, Conversation, Ending, Event as Happened, FiringId, Job, Kind, Message, Outcome,
        Over, Plan, Refusal as Refused, Replan, Schedule, Stage, Status, Which,
    },
    session::Session,
    settle,
    time::Millis,
};

pub(super) fn decide(
    view: DecisionView<'_>,
    command: Command,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let state = view.state.schedule();
    // Instants of jobs are those of the wall clock.
    let wall = state.wall(context.now);
    match command {
        Command::Clocked { ahead } if state.is_moved(ahead) => Ok(done(vec![plain(Happened::Clocked { ahead })])),
        Command::Clocked { .. } => Ok(done(Vec::new())),
        Command::Limit(limits) if limits == state.limits() => Ok(done(Vec::new())),
        Command::Limit(limits) => Ok(done(vec![plain(Happened::Limited(limits))])),
        Command::Add { job, mut plan, content } => {
            plan.schedule.count_from(wall);
            if state.job(&job).is_some() || state.open().any(|(open, _)| *open.id() == job) {
                return Err(Refused::Exists(job).into());
            }
            let most = state.limits().most;
            if plan.kind == Kind::Job && state.planned() >= usize::try_from(most).unwrap_or(usize::MAX) {
                return Err(Refused::TooMany(most).into());
            }
            let first = schedule::first(&plan, wall).ok_or(Refused::Never)?;
            let next = plan.enabled.then_some(first);
            let event = Event::Schedule(Happened::Added { job, plan, next });
            Ok(done(vec![Fact { event, session: None, content: Some(content) }]))
        }
        Command::Change { job, mut plan, content } => {
            plan.schedule.count_from(wall);
            let next = changed(find(view, &job)?, &plan, wall)?;
            let event = Event::Schedule(Happened::Changed { job, plan, next });
            Ok(done(vec![Fact { event, session: None, content: Some(content) }]))
        }
        Command::Remove { job } => match state.job(&job) {
            Some(_) => Ok(done(vec![plain(Happened::Removed { job })])),
            None => Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle }),
        },
        Command::Beats { beats, replan } => Ok(done(planned_beats(view, beats, replan, wall))),
        Command::Fire(which) => fire(view, &which, context.now),
        Command::Say { firing, message } => Ok(say(view, firing, *message, context)),
        Command::End { firing, ending } => Ok(end(view, &firing, &ending, context.now)),
    }
}

fn done(facts: Vec<Fact>) -> DecisionResult {
    DecisionResult { facts, reply: EngineReply::Done }
}

fn plain(event: Happened) -> Fact {
    Fact::without_content(Event::Schedule(event), None)
}

fn find<'a>(view: DecisionView<'a>, job: &JobId) -> Result<&'a Job, CommandError> {
    view.state.schedule().job(job).ok_or_else(|| Refused::NoJob(job.clone()).into())
}

/// When a job is due next under another plan. What is planned as before stays when it was.
fn changed(job: &Job, plan: &Plan, now: Millis) -> Result<Option<Millis>, CommandError> {
    let is_as_before = job.plan().schedule == plan.schedule && job.plan().enabled == plan.enabled;
    if is_as_before {
        return Ok(job.next());
    }
    let first = schedule::first(plan, now).ok_or(Refused::Never)?;
    Ok(plan.enabled.then_some(first))
}

fn planned_beats(view: DecisionView<'_>, beats: Vec<Beat>, replan: Replan, now: Millis) -> Vec<Fact> {
    let state = view.state.schedule();
    let gone = state.jobs(Kind::Heartbeat).filter(|job| !beats.iter().any(|beat| beat.job == *job.id()));
    let mut facts: Vec<Fact> = gone.map(|job| plain(Happened::Removed { job: job.id().clone() })).collect();
    for Beat { job, agent, every } in beats {
        let known = state.job(&job);
        let step = |job: &Job| match job.plan().schedule {
            Schedule::Every { every, .. } if job.plan().enabled => Some(every),
            _ => None,
        };
        if known.is_some_and(|known| replan == Replan::Changes && step(known) == every) {
            continue;
        }
        let schedule = every.and_then(|every| Schedule::every(every, now).ok());
        let enabled = schedule.is_some();
        let schedule = schedule.unwrap_or(Schedule::At { at: Millis(0) });
        let next = schedule.next(now).filter(|_| enabled);
        let (kind, afterwards) = (Kind::Heartbeat, schedule::Afterwards::Stays);
        let plan = Box::new(Plan { agent, kind, schedule, follows_house: false, enabled, afterwards });
        facts.push(plain(match known {
            Some(_) => Happened::Changed { job, plan, next },
            None => Happened::Added { job, plan, next },
        }));
    }
    facts
}

fn fire(view: DecisionView<'_>, which: &Which, now: Millis) -> Result<DecisionResult, CommandError> {
    let state = view.state.schedule();
    let wall = state.wall(now);
    let is_due = |job: &&Job| job.plan().enabled && job.next().is_some_and(|next| next <= wall);
    let (jobs, cause) = match which {
        Which::Due => (state.due_jobs(now), Cause::Due),
        Which::IfDue(job) => {
            let job = Some(find(view, job)?).filter(|job| is_due(job) && state.has_room());
            (job.into_iter().collect(), Cause::Due)
        }
        Which::Now(job) => {
            let job = find(view, job)?;
            match job.firing() {
                // Its own time came first, for a job that is due when it is planned always: that is the run that is meant.
                Some(firing) if job.plan().kind == Kind::Job && firing.cause == Cause::Due => {
                    let firing = FiringId { job: job.id().clone(), number: firing.number };
                    return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Fired(vec![firing]) });
                }
                Some(_) => return Err(Refused::Busy(job.id().clone()).into()),
                None => {}
            }
            if job.plan().kind == Kind::Job && !state.has_room() {
                return Err(Refused::Full(state.limits().at_once).into());
            }
            (vec![job], Cause::Asked)
        }
    };
    let fired: Vec<Happened> = jobs.into_iter().filter_map(|job| schedule::fired(job, cause, wall)).collect();
    let named = fired.iter().filter_map(|event| match event {
        Happened::Fired { firing, .. } => Some(firing.clone()),
        _ => None,
    });
    let reply = EngineReply::Fired(named.collect());
    Ok(DecisionResult { facts: fired.into_iter().map(plain).collect(), reply })
}

/// Nobody waits for what this comes to: what cannot be said is the end of the firing.
fn say(view: DecisionView<'_>, firing: FiringId, message: Message, context: &mut DecisionContext) -> DecisionResult {
    let state = view.state.schedule();
    let Some((_, open)) = state.firing(&firing).filter(|(_, open)| open.stage == Stage::Due) else {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Idle };
    };
    debug_assert_eq!(open.number, firing.number);
    match said(view, &firing, message, context) {
        Ok(facts) => done(facts),
        Err(refusal) => {
            let outcome = Outcome { error: Some(refusal.to_string()), summary: None };
            end(view, &firing, &Ending { status: Status::Failed, told: false, outcome }, context.now)
        }
    }
}

fn said(
    view: DecisionView<'_>,
    firing: &FiringId,
    message: Message,
    context: &mut DecisionContext,
) -> Result<Vec<Fact>, CommandError> {
    let Message { session, said, marks, conversation } = message;
    let session = super::find(view, &session)?;
    view.for_session(session).ok_or_else(|| CommandError::WaitsForHost(session.id().clone()))?;
    let mut marks = marks;
    marks.firing = Some(firing.clone());
    let event = Event::Schedule(Happened::Said { firing: firing.clone() });
    let mut facts = vec![Fact::without_content(event, Some(session.id().clone()))];
    if conversation == Conversation::BeginsAnew && is_over(session) && !view.closing {
        facts.extend(renewal::renew(view, session, &PrincipalId::new("system"), None)?.facts);
        let mut branch = BranchBuilder::from_root(session);
        settle::begin_own(&mut branch, Some(said), *marks, context);
        facts.extend(branch.into_facts());
    } else {
        facts.extend(renewal::say(view, session, said, marks, context)?.facts);
    }
    Ok(facts)
}

/// Whether something was said in a session, and nothing goes on in it.
fn is_over(session: &Session) -> bool {
    session.is_at_rest() && session.queued() == 0 && !session.entries().is_empty()
}

fn end(view: DecisionView<'_>, id: &FiringId, ending: &Ending, now: Millis) -> DecisionResult {
    let Some((job, open)) = view.state.schedule().firing(id) else {
        return DecisionResult { facts: Vec::new(), reply: EngineReply::Dropped };
    };
    let until = match &open.stage {
        Stage::Over(Over { at, .. }) => *at,
        Stage::Due => now,
        // Its run says itself when it is over.
        Stage::Said { .. } => return DecisionResult { facts: Vec::new(), reply: EngineReply::Dropped },
    };
    let ended = Happened::Ended {
        firing: id.clone(),
        kind: job.plan().kind,
        status: ending.status,
        fired_at: view.state.schedule().wall(open.at),
        took: until.since(open.at),
        next: job.next(),
        told: ending.told,
        remembered: view.state.schedule().limits().remembered,
    };
    let content = serde_json::to_string(&ending.outcome).expect("an outcome is plain text");
    done(vec![Fact { event: Event::Schedule(ended), session: None, content: Some(content.into()) }])
}
