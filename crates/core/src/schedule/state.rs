//! All jobs, and which of them is due next. Looking costs the same however many there are.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    JobSchedule,
    event::Event,
    job::{
        AfterRun, Firing, FiringCause, FiringId, FiringStage, FiringStatus, Job, JobKind, JobLimits, JobPlan,
        LastFiring,
    },
};
use crate::{
    id::{JobId, Lsn, RunId, SessionId},
    ledger::BudgetBreach,
    run::RunOutcome,
    time::Millis,
};

/// How far the wall clock may be from where it was, in milliseconds, before that counts as moved.
const TOLERATED: u64 = 1000;

/// Every job with its firing on its way, and what holds for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    limits: JobLimits,
    /// How far the wall clock is ahead of the time that decisions are told, in milliseconds.
    ahead: i64,
    jobs: BTreeMap<JobId, Job>,
    /// What is due by itself, by when: jobs, and heartbeats.
    due: BTreeSet<(Millis, JobId)>,
    beats: BTreeSet<(Millis, JobId)>,
    /// What is on its way.
    open: BTreeSet<JobId>,
    /// How many of those, and of all, are [`Kind::Job`].
    open_jobs: usize,
    planned: usize,
    /// Firings that were said in a session and are not over.
    by_session: BTreeMap<SessionId, BTreeSet<JobId>>,
}

impl State {
    /// What holds for all jobs.
    pub fn limits(&self) -> JobLimits {
        self.limits
    }

    /// What the wall clock shows at `now`. Instants of jobs are its.
    pub fn wall_time(&self, now: Millis) -> Millis {
        now.moved_by(self.ahead)
    }

    /// Whether there is anything for which it matters what the wall clock shows.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether a wall clock that is this far ahead was moved since jobs last heard of it.
    pub fn is_moved(&self, ahead: i64) -> bool {
        self.ahead.abs_diff(ahead) > TOLERATED
    }

    /// One job, heartbeats too.
    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).filter(|job| !job.is_removed)
    }

    /// All of a kind, by id.
    pub fn jobs(&self, kind: JobKind) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(move |job| job.plan.kind == kind && !job.is_removed)
    }

    /// How many there are of [`Kind::Job`].
    pub fn planned_count(&self) -> usize {
        self.planned
    }

    /// How many of [`Kind::Job`] are on their way.
    pub fn on_their_way(&self) -> usize {
        self.open_jobs
    }

    /// How many of [`Kind::Job`] wait though their time has come.
    pub fn waiting_count(&self, now: Millis) -> usize {
        let wall = self.wall_time(now);
        self.due.iter().take_while(|(at, _)| *at <= wall).count()
    }

    /// When the next of [`Kind::Job`] is due.
    pub fn next_job(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A firing that is on its way.
    pub fn firing(&self, id: &FiringId) -> Option<(&Job, &Firing)> {
        let job = self.jobs.get(&id.job)?;
        Some((job, job.firing.as_ref().filter(|firing| firing.number == id.number)?))
    }

    /// Everything that is on its way.
    pub fn open_firings(&self) -> impl Iterator<Item = (&Job, &Firing)> {
        self.open.iter().filter_map(|id| self.jobs.get(id)).filter_map(|job| Some((job, job.firing.as_ref()?)))
    }

    /// What was said in a session and is not over.
    pub(crate) fn firings_in(&self, session: &SessionId) -> impl Iterator<Item = (&Job, &Firing)> {
        let jobs = self.by_session.get(session).into_iter().flatten().filter_map(|id| self.jobs.get(id));
        jobs.filter_map(|job| Some((job, job.firing.as_ref()?)))
    }

    /// The sessions in which something was said that is not over.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.by_session.keys()
    }

    /// When something fires by itself next.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let job = self.due.first().filter(|_| self.limits.enabled && self.has_room());
        let first = job.into_iter().chain(self.beats.first()).map(|(at, _)| *at).min();
        first.map(|at| at.moved_by(self.ahead.saturating_neg()))
    }

    /// Whether another of [`Kind::Job`] may fire.
    pub(crate) fn has_room(&self) -> bool {
        self.open_jobs < self.at_once()
    }

    fn at_once(&self) -> usize {
        usize::try_from(self.limits.at_once).unwrap_or(usize::MAX)
    }

    /// What fires by itself at `now`.
    pub(crate) fn due_events(&self, now: Millis) -> Vec<Event> {
        let jobs = if self.limits.enabled { self.due_jobs(now) } else { Vec::new() };
        let wall = self.wall_time(now);
        let beats = self.beats.iter().take_while(|(at, _)| *at <= wall).filter_map(|(_, id)| self.jobs.get(id));
        jobs.into_iter().chain(beats).filter_map(|job| fired_event(job, FiringCause::Due, wall)).collect()
    }

    /// The jobs whose time has come, the oldest first, as far as there is room.
    pub(crate) fn due_jobs(&self, now: Millis) -> Vec<&Job> {
        let room = self.at_once().saturating_sub(self.open_jobs);
        let wall = self.wall_time(now);
        let due = self.due.iter().take_while(|(at, _)| *at <= wall).take(room);
        due.filter_map(|(_, id)| self.jobs.get(id)).collect()
    }

    /// Folds a recorded event in. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event, session: Option<&SessionId>, lsn: Lsn, at: Millis) {
        match event {
            Event::Limited(limits) => self.set_limits(*limits, self.wall_time(at)),
            Event::Clocked { ahead } => self.move_clock(*ahead, at),
            // A heartbeat may come back while the last of it is on its way.
            Event::Added { job, plan, next } if self.jobs.contains_key(job) => self.change_job(job, |job| {
                job.plan = (**plan).clone();
                job.next = *next;
                job.updated_at = at;
                job.content = lsn;
                job.is_removed = false;
            }),
            Event::Added { job, plan, next } => {
                let job = Job {
                    id: job.clone(),
                    plan: (**plan).clone(),
                    created_at: at,
                    updated_at: at,
                    content: lsn,
                    next: *next,
                    fired: 0,
                    firing: None,
                    last: None,
                    last_report: None,
                    is_removed: false,
                };
                self.insert_job(job);
            }
            Event::Changed { job, plan, next } => self.change_job(job, |job| {
                job.plan = (**plan).clone();
                job.next = *next;
                job.updated_at = at;
                job.content = lsn;
            }),
            Event::Removed { job } => self.change_job(job, |job| {
                job.is_removed = true;
                // What nobody has begun is not begun any more.
                job.firing.take_if(|firing| firing.stage == FiringStage::Due);
            }),
            Event::Fired { firing, planned, cause, next } => self.change_job(&firing.job, |job| {
                job.fired = firing.number;
                job.next = *next;
                let (planned, cause) = (*planned, *cause);
                job.firing = Some(Firing { number: firing.number, planned, at, cause, stage: FiringStage::Due });
            }),
            Event::MessageSent { firing } => self.change_firing(firing, |firing| {
                if let Some(session) = session {
                    firing.stage = FiringStage::MessageSent {
                        session: session.clone(),
                        run: None,
                        end: None,
                        words: None,
                        breach: None,
                    };
                }
            }),
            Event::Ran { firing, over } => {
                self.change_firing(firing, |firing| firing.stage = FiringStage::Over((**over).clone()));
            }
            Event::Ended { firing, kind, status, fired_at, took, next, reported, .. } => {
                self.change_job(&firing.job, |job| {
                    if job.firing.take_if(|open| open.number == firing.number).is_none() {
                        return;
                    }
                    // How an agent last was is not forgotten for a beat that there was none of.
                    if (*kind, *status) != (JobKind::Heartbeat, FiringStatus::Skipped) {
                        job.last = Some(LastFiring { at: *fired_at, status: *status, took: *took, record: lsn });
                    }
                    if *reported {
                        job.last_report = Some((at, lsn));
                    }
                    job.next = *next;
                    if let (JobSchedule::At { .. }, None) = (&job.plan.schedule, next) {
                        job.plan.enabled = false;
                        job.is_removed |= job.plan.afterwards == AfterRun::Goes && *status == FiringStatus::Ok;
                    }
                });
            }
        }
    }

    /// Notes the run that the message of a firing began, or that goes on with it.
    pub(crate) fn record_run(&mut self, id: &FiringId, run: RunId) {
        self.change_firing(id, |firing| {
            if let FiringStage::MessageSent { run: works, end, .. } = &mut firing.stage {
                (*works, *end) = (Some(run), None);
            }
        });
    }

    /// Notes how that run ended, where its last words lie, and what it used up of its contract.
    pub(crate) fn record_run_end(
        &mut self,
        id: &FiringId,
        run: RunId,
        (how, last, used): (RunOutcome, Option<Lsn>, Option<BudgetBreach>),
    ) {
        self.change_firing(id, |firing| {
            if let FiringStage::MessageSent { run: Some(works), end, words, breach, .. } = &mut firing.stage
                && *works == run
            {
                (*end, *words, *breach) = (Some(how), last, used);
            }
        });
    }

    fn set_limits(&mut self, limits: JobLimits, now: Millis) {
        let moved = limits.zone != self.limits.zone;
        self.limits = limits;
        if !moved {
            return;
        }
        let follow = self.jobs.values().filter(|job| job.plan.follows_house).map(|job| job.id.clone());
        for id in follow.collect::<Vec<_>>() {
            self.change_job(&id, |job| {
                if let JobSchedule::Cron { zone, .. } = &mut job.plan.schedule {
                    *zone = limits.zone;
                }
                // What is due already stays so.
                if job.next.is_some_and(|next| next > now) {
                    job.next = job.plan.schedule.next(now);
                }
            });
        }
    }

    /// The wall clock was moved. What a clock that was put forward has passed is due; what one that was put back comes to
    /// again is planned anew.
    fn move_clock(&mut self, ahead: i64, at: Millis) {
        let before = self.wall_time(at);
        self.ahead = ahead;
        let now = self.wall_time(at);
        if now >= before {
            return;
        }
        for id in self.jobs.keys().cloned().collect::<Vec<_>>() {
            self.change_job(&id, |job| {
                job.plan.schedule.put_back(before, now);
                job.next = job.next.and_then(|next| job.plan.schedule.next_put_back(next, before, now));
            });
        }
    }

    fn change_firing(&mut self, id: &FiringId, change: impl FnOnce(&mut Firing)) {
        self.change_job(&id.job, |job| {
            if let Some(firing) = job.firing.as_mut().filter(|firing| firing.number == id.number) {
                change(firing);
            }
        });
    }

    fn change_job(&mut self, id: &JobId, change: impl FnOnce(&mut Job)) {
        let Some(mut job) = self.jobs.remove(id) else { return };
        self.remove_job(&job);
        change(&mut job);
        if !job.is_removed || job.firing.is_some() {
            self.insert_job(job);
        }
    }

    /// Puts a job into all indexes.
    fn insert_job(&mut self, job: Job) {
        let is_job = job.plan.kind == JobKind::Job;
        if let Some(at) = job.due_at() {
            let due = if is_job { &mut self.due } else { &mut self.beats };
            due.insert((at, job.id.clone()));
        }
        self.planned += usize::from(is_job && !job.is_removed);
        if let Some(firing) = &job.firing {
            self.open.insert(job.id.clone());
            self.open_jobs += usize::from(is_job);
            if let FiringStage::MessageSent { session, .. } = &firing.stage {
                self.by_session.entry(session.clone()).or_default().insert(job.id.clone());
            }
        }
        self.jobs.insert(job.id.clone(), job);
    }

    /// Takes a job out of all indexes.
    fn remove_job(&mut self, job: &Job) {
        let is_job = job.plan.kind == JobKind::Job;
        if let Some(at) = job.due_at() {
            let due = if is_job { &mut self.due } else { &mut self.beats };
            due.remove(&(at, job.id.clone()));
        }
        self.planned -= usize::from(is_job && !job.is_removed);
        if let Some(firing) = &job.firing {
            self.open.remove(&job.id);
            self.open_jobs -= usize::from(is_job);
            if let FiringStage::MessageSent { session, .. } = &firing.stage
                && let Some(jobs) = self.by_session.get_mut(session)
            {
                jobs.remove(&job.id);
                if jobs.is_empty() {
                    self.by_session.remove(session);
                }
            }
        }
    }

    /// What a snapshot holds: the rest is made again from it.
    pub(crate) fn to_parts(&self) -> (JobLimits, i64, impl Iterator<Item = &Job>) {
        (self.limits, self.ahead, self.jobs.values())
    }

    /// The state of what [`State::parts`] gave.
    pub(crate) fn from_parts(limits: JobLimits, ahead: i64, jobs: Vec<Job>) -> Self {
        let mut state = Self { limits, ahead, ..Self::default() };
        jobs.into_iter().for_each(|job| state.insert_job(job));
        state
    }
}

/// The fact that a job fires by a wall clock that shows `now`. None if something of it is on its way.
pub(crate) fn fired_event(job: &Job, cause: FiringCause, now: Millis) -> Option<Event> {
    if job.firing.is_some() {
        return None;
    }
    let due = job.next.and_then(|next| job.plan.schedule.due_firing(next, now));
    let (planned, next) = match (due, cause) {
        (Some(due), _) => (due.planned, due.next),
        // Its own time stays planned.
        (None, FiringCause::Manual) => (now, job.next),
        (None, FiringCause::Due) => return None,
    };
    let firing = FiringId { job: job.id.clone(), number: job.fired + 1 };
    Some(Event::Fired { firing, planned, cause, next })
}

/// When a job is due first, or again, under a plan. Absent if it is never.
pub(crate) fn first_firing(plan: &JobPlan, now: Millis) -> Option<Millis> {
    plan.schedule.first_firing(now)
}
