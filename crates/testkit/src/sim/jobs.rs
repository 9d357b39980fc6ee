//! Jobs of a simulation: commands that plan them, their messages, and the facts of each firing.
//!
//! It must not ask the engine: it reads the record as an outsider would.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use countersign_core::{
    FiringStep,
    engine::{Command, Event, Fact, FactMeta, RecordedFact},
    id::{JobId, RunId, SessionId},
    ledger::BudgetLimits,
    run,
    schedule::{
        self, AfterRun, ConversationMode, FiringCause, FiringId, FiringMessage, FiringOutcome, FiringResult,
        FiringStatus, HeartbeatPlan, JobKind, JobLimits, JobPlan, JobSchedule, JobSelector, ReplanMode, Zone,
    },
    time::Millis,
    unattended::ContractTerms,
};

use super::{commands, messages, rng::SimRng};

/// Stage of a firing, by the record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AuditedFiring {
    Due,
    MessageSent(SessionId, Option<(RunId, Option<run::RunOutcome>)>),
    Ran,
}

#[derive(Clone, Debug)]
struct AuditedJob {
    kind: JobKind,
    number: u64,
    /// Last time that was planned and came.
    planned: Option<Millis>,
    open: Option<AuditedFiring>,
    is_removed: bool,
    /// True if it is removed after it ran well.
    removes_itself: bool,
    schedule: JobSchedule,
}

fn is_self_removing(plan: &JobPlan) -> bool {
    matches!(plan.schedule, JobSchedule::At { .. }) && plan.afterwards == AfterRun::Goes
}

/// All jobs, by the record.
#[derive(Clone, Debug, Default)]
pub(super) struct JobAudit {
    limits: JobLimits,
    /// Difference of the wall clock to the record's, in milliseconds.
    ahead: i64,
    jobs: BTreeMap<JobId, AuditedJob>,
    /// Firings whose message was sent.
    sent: BTreeSet<FiringId>,
}

impl JobAudit {
    /// Reads one record, and reports the rule that it breaks.
    pub(super) fn read_record(&mut self, meta: &FactMeta, event: &Event) -> Result<(), String> {
        match event {
            Event::Schedule(event) => self.read_job_event(meta, event),
            Event::Run(run::Event::Marked { run, marks }) => match &marks.firing {
                Some(firing) => self.start_run(firing, *run),
                None => Ok(()),
            },
            Event::Run(run::Event::Ended { run, end, .. }) => {
                let ended = self.jobs.values_mut().filter_map(|job| match &mut job.open {
                    Some(AuditedFiring::MessageSent(_, Some((works, end)))) if works == run => Some(end),
                    _ => None,
                });
                ended.for_each(|of| *of = Some(*end));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn start_run(&mut self, firing: &FiringId, run: RunId) -> Result<(), String> {
        let open = self.jobs.get_mut(&firing.job).filter(|job| job.number == firing.number);
        let Some(AuditedFiring::MessageSent(_, works)) = open.and_then(|job| job.open.as_mut()) else {
            return Err("a run starts for a firing without a message".to_owned());
        };
        let may = match works {
            None => true,
            Some((before, None)) => *before == run,
            Some((_, Some(end))) => *end == run::RunOutcome::Overflowed,
        };
        *works = Some((run, None));
        ensure(may, "a firing has two runs")
    }

    fn read_job_event(&mut self, meta: &FactMeta, event: &schedule::Event) -> Result<(), String> {
        match event {
            schedule::Event::Limited(limits) => {
                self.limits = *limits;
                Ok(())
            }
            schedule::Event::Clocked { ahead } => {
                self.move_clock(*ahead);
                Ok(())
            }
            schedule::Event::Added { job, plan, .. } => {
                let (kind, removes_itself, schedule) = (plan.kind, is_self_removing(plan), plan.schedule.clone());
                let seen = AuditedJob {
                    kind,
                    number: 0,
                    planned: None,
                    open: None,
                    is_removed: false,
                    removes_itself,
                    schedule,
                };
                let before = self.jobs.insert(job.clone(), seen);
                // One that was removed and returns counts its firings from 1 again.
                self.sent.retain(|firing| firing.job != *job);
                ensure(before.is_none_or(|job| job.is_removed && job.open.is_none()), "a job is added twice")
            }
            schedule::Event::Changed { job, plan, .. } => {
                let seen = self.jobs.get_mut(job).filter(|job| !job.is_removed);
                let seen = seen.ok_or("a job that does not exist is changed")?;
                seen.removes_itself = is_self_removing(plan);
                if seen.schedule != plan.schedule {
                    // Its times are others.
                    (seen.planned, seen.schedule) = (None, plan.schedule.clone());
                }
                Ok(())
            }
            schedule::Event::Removed { job } => {
                let seen = self.jobs.get_mut(job).filter(|job| !job.is_removed).ok_or("a job is removed twice")?;
                seen.is_removed = true;
                seen.open.take_if(|stage| *stage == AuditedFiring::Due);
                Ok(())
            }
            schedule::Event::Fired { firing, planned, cause, next } => {
                let wall = meta.at.moved_by(self.ahead);
                let room = usize::try_from(self.limits.at_once).unwrap_or(usize::MAX);
                let on_their_way =
                    self.jobs.values().filter(|job| job.kind == JobKind::Job && job.open.is_some()).count();
                let seen = self.jobs.get_mut(&firing.job).ok_or("a job that does not exist fires")?;
                ensure(!seen.is_removed, "a removed job fires")?;
                ensure(seen.open.is_none(), "a job fires during its firing")?;
                ensure(firing.number == seen.number + 1, "the number of a firing is not the next one")?;
                ensure(seen.kind == JobKind::Heartbeat || on_their_way < room, "more jobs fire at once than allowed")?;
                if *cause == FiringCause::Due {
                    ensure(*planned <= wall, "a job fires before its time")?;
                    ensure(seen.planned.is_none_or(|before| before < *planned), "a job fires twice for one time")?;
                    ensure(next.is_none_or(|next| next > wall), "a job is due again at once")?;
                    seen.planned = Some(*planned);
                }
                (seen.number, seen.open) = (firing.number, Some(AuditedFiring::Due));
                Ok(())
            }
            schedule::Event::MessageSent { firing } => {
                let session = meta.session.clone().ok_or("a message of a firing without a session")?;
                let open = self.open_job(firing)?;
                ensure(open.open == Some(AuditedFiring::Due), "a message of a firing that is not due")?;
                open.open = Some(AuditedFiring::MessageSent(session, None));
                ensure(self.sent.insert(firing.clone()), "two messages of one firing")
            }
            schedule::Event::Ran { firing, .. } => {
                let open = self.open_job(firing)?;
                let works = matches!(&open.open, Some(AuditedFiring::MessageSent(_, Some((_, None)))));
                ensure(matches!(open.open, Some(AuditedFiring::MessageSent(..))), "a firing ran without a message")?;
                open.open = Some(AuditedFiring::Ran);
                ensure(!works, "a firing ran although its run has not ended")
            }
            schedule::Event::Ended { firing, status, next, .. } => {
                let open = self.open_job(firing)?;
                let was = open.open.take();
                open.is_removed |= open.removes_itself && next.is_none() && *status == FiringStatus::Ok;
                let fits =
                    was == Some(AuditedFiring::Ran) || was == Some(AuditedFiring::Due) && *status != FiringStatus::Ok;
                ensure(fits, "a firing ends before it ran")
            }
        }
    }

    /// Moves the wall clock. One that was set back far repeats times that were not right before.
    fn move_clock(&mut self, ahead: i64) {
        let back = u64::try_from(self.ahead.saturating_sub(ahead)).unwrap_or(0);
        self.ahead = ahead;
        for job in self.jobs.values_mut() {
            let comes_again = match job.schedule {
                JobSchedule::Every { every, .. } => back >= every.min(CORRECTED),
                JobSchedule::At { .. } | JobSchedule::Cron { .. } => back > CORRECTED,
            };
            if comes_again {
                job.planned = None;
            }
        }
    }

    fn open_job(&mut self, firing: &FiringId) -> Result<&mut AuditedJob, String> {
        let open = self.jobs.get_mut(&firing.job).filter(|job| job.number == firing.number && job.open.is_some());
        open.ok_or_else(|| "a fact about a firing that is not open".to_owned())
    }

    /// Returns a job with an open firing, if there is one.
    pub(super) fn is_open(&self) -> Option<&JobId> {
        self.jobs.iter().find(|(_, job)| job.open.is_some()).map(|(id, _)| id)
    }
}

/// Largest step back of a clock after which its earlier time counts as right, in milliseconds.
const CORRECTED: u64 = 3 * 60 * 60 * 1000;

const JOBS: [&str; 4] = ["j1", "j2", "j3", "j4"];

/// Returns a command that plans a job, or starts one now.
pub(super) fn random_command(rng: &mut SimRng, now: Millis) -> Command {
    let job = JobId::new(rng.pick(&JOBS));
    let command = match rng.below(11) {
        0 | 1 => schedule::Command::Add { job, plan: Box::new(random_plan(rng, now)), content: "{}".into() },
        2 => schedule::Command::Change { job, plan: Box::new(random_plan(rng, now)), content: "{}".into() },
        3 => schedule::Command::Remove { job },
        4 | 5 => schedule::Command::Fire(JobSelector::Now(job)),
        6 => schedule::Command::Fire(if rng.chance(50) { JobSelector::Due } else { JobSelector::IfDue(job) }),
        7 => schedule::Command::Limit(JobLimits {
            enabled: rng.chance(80),
            most: 3,
            at_once: rng.pick(&[1, 2, 4]),
            remembered: 10,
            zone: rng.pick(&[Zone::UTC, berlin_zone()]),
        }),
        8 => schedule::Command::Beats {
            beats: vec![HeartbeatPlan {
                job: JobId::new("beat"),
                agent: "main".to_owned(),
                every: rng.chance(80).then(|| rng.pick(&[100_000, 400_000])),
            }],
            replan: rng.pick(&[ReplanMode::Changes, ReplanMode::All]),
        },
        9 => {
            schedule::Command::Clocked { ahead: rng.pick(&[0, 900, 5_000, 7_200_000, -5_000, -7_200_000, -90_000_000]) }
        }
        _ => stray_command(rng, job),
    };
    Command::Schedule(command)
}

fn berlin_zone() -> Zone {
    "Europe/Berlin".parse().unwrap_or(Zone::UTC)
}

/// Returns a command that comes twice, or too late.
fn stray_command(rng: &mut SimRng, job: JobId) -> schedule::Command {
    let fired = FiringId { job, number: 1 + rng.below(3) };
    if rng.chance(50) {
        schedule::Command::Say { message: random_message(rng), firing: fired }
    } else {
        end_command(rng, fired)
    }
}

fn random_plan(rng: &mut SimRng, now: Millis) -> JobPlan {
    let soon = now + Duration::from_millis(rng.below(500_000));
    let every = JobSchedule::every(60_000 + rng.below(300_000), now);
    let cron = rng.pick(&["*/5 * * * *", "7 * * * *"]).parse().ok();
    let schedule = match (rng.below(3), every, cron) {
        (0, Ok(every), _) => every,
        (1, _, Some(expression)) => JobSchedule::Cron { expression, zone: Zone::UTC },
        _ => JobSchedule::At { at: soon },
    };
    JobPlan {
        agent: "main".to_owned(),
        kind: JobKind::Job,
        schedule,
        follows_house: rng.chance(50),
        enabled: rng.chance(85),
        afterwards: rng.pick(&[AfterRun::Stays, AfterRun::Goes]),
    }
}

fn random_message(rng: &mut SimRng) -> Box<FiringMessage> {
    let budget =
        BudgetLimits { wall_time: Some(1 + rng.below(900_000)), calls: Some(rng.below(6)), ..BudgetLimits::default() };
    let terms = ContractTerms { actor: "cron".to_owned(), budget, ..ContractTerms::default() };
    let terms = rng.chance(70).then(|| Box::new(terms));
    Box::new(FiringMessage {
        session: SessionId::new(rng.pick(&commands::SESSIONS)),
        message: messages::user_message(rng),
        marks: Box::new(run::RunMetadata { terms, ..run::RunMetadata::default() }),
        conversation: rng.pick(&[ConversationMode::GoesOn, ConversationMode::BeginsAnew]),
    })
}

fn end_command(rng: &mut SimRng, firing: FiringId) -> schedule::Command {
    let status = rng.pick(&[FiringStatus::Failed, FiringStatus::Skipped]);
    schedule::Command::End {
        firing,
        ending: FiringResult { status, reported: false, outcome: FiringOutcome::default() },
    }
}

/// Returns the result of a step of a firing.
pub(super) fn firing_result(rng: &mut SimRng, firing: FiringId, step: FiringStep) -> Command {
    Command::Schedule(match step {
        FiringStep::Say if rng.chance(15) => end_command(rng, firing),
        FiringStep::Say => schedule::Command::Say { message: random_message(rng), firing },
        FiringStep::Tell => {
            let status = rng.pick(&[FiringStatus::Ok, FiringStatus::Failed]);
            let ending = FiringResult { status, reported: rng.chance(50), outcome: FiringOutcome::default() };
            schedule::Command::End { firing, ending }
        }
    })
}

/// Returns the commands that remove every job, so that all can come to rest.
pub(super) fn closing_commands() -> Vec<Command> {
    let remove = JOBS.map(|job| schedule::Command::Remove { job: JobId::new(job) });
    let beats = schedule::Command::Beats { beats: Vec::new(), replan: ReplanMode::Changes };
    remove.into_iter().chain([beats]).map(Command::Schedule).collect()
}

/// Plants the fault of an owner that lets a job fire once more for the same time.
pub(super) fn fire_again(fired: &RecordedFact, head: countersign_core::id::Lsn) -> Option<RecordedFact> {
    let Event::Schedule(schedule::Event::Fired { firing, planned, cause, next }) = &fired.fact.event else {
        return None;
    };
    let firing = FiringId { job: firing.job.clone(), number: firing.number + 1 };
    let event = Event::Schedule(schedule::Event::Fired { firing, planned: *planned, cause: *cause, next: *next });
    let meta = FactMeta { lsn: head.next(), ..fired.meta.clone() };
    Some(RecordedFact { meta, fact: Fact { event, session: None, content: None } })
}

fn ensure(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}
