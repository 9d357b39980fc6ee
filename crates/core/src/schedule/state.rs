//! All jobs, and the one that is due next. A look-up costs the same for any number of jobs.

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

/// Tolerated change of the wall clock, in milliseconds, before it counts as moved.
const TOLERATED: u64 = 1000;

/// Every job with its open firing, and the limits of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    limits: JobLimits,
    /// Lead of the wall clock over the decision time, in milliseconds.
    ahead: i64,
    jobs: BTreeMap<JobId, Job>,
    /// Jobs and heartbeats that fire automatically, by time.
    due: BTreeSet<(Millis, JobId)>,
    beats: BTreeSet<(Millis, JobId)>,
    /// Jobs with an open firing.
    open: BTreeSet<JobId>,
    /// Number of those, and of all, that are [`JobKind::Job`].
    open_jobs: usize,
    planned: usize,
    /// Firings whose message was sent to a session and that are not over.
    by_session: BTreeMap<SessionId, BTreeSet<JobId>>,
}

impl State {
    /// Returns the limits of all jobs.
    pub fn limits(&self) -> JobLimits {
        self.limits
    }

    /// Returns the time of the wall clock at `now`. Instants of jobs are its.
    pub fn wall_time(&self, now: Millis) -> Millis {
        now.moved_by(self.ahead)
    }

    /// Reports whether no job depends on the wall clock.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Reports whether a wall clock that is this far ahead was moved since the last report of it.
    pub fn is_moved(&self, ahead: i64) -> bool {
        self.ahead.abs_diff(ahead) > TOLERATED
    }

    /// Returns one job, heartbeats too.
    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).filter(|job| !job.is_removed)
    }

    /// Returns all of a kind, by id.
    pub fn jobs(&self, kind: JobKind) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(move |job| job.plan.kind == kind && !job.is_removed)
    }

    /// Returns the number of jobs of [`JobKind::Job`].
    pub fn planned_count(&self) -> usize {
        self.planned
    }

    /// Returns the number of open firings of [`JobKind::Job`].
    pub fn on_their_way(&self) -> usize {
        self.open_jobs
    }

    /// Returns the number of jobs of [`JobKind::Job`] that wait though their time has come.
    pub fn waiting_count(&self, now: Millis) -> usize {
        let wall = self.wall_time(now);
        self.due.iter().take_while(|(at, _)| *at <= wall).count()
    }

    /// Returns the time at which the next of [`JobKind::Job`] is due.
    pub fn next_job(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns an open firing.
    pub fn firing(&self, id: &FiringId) -> Option<(&Job, &Firing)> {
        let job = self.jobs.get(&id.job)?;
        Some((job, job.firing.as_ref().filter(|firing| firing.number == id.number)?))
    }

    /// Returns all open firings.
    pub fn open_firings(&self) -> impl Iterator<Item = (&Job, &Firing)> {
        self.open.iter().filter_map(|id| self.jobs.get(id)).filter_map(|job| Some((job, job.firing.as_ref()?)))
    }

    /// Returns the firings whose message was sent to a session and that are not over.
    pub(crate) fn firings_in(&self, session: &SessionId) -> impl Iterator<Item = (&Job, &Firing)> {
        let jobs = self.by_session.get(session).into_iter().flatten().filter_map(|id| self.jobs.get(id));
        jobs.filter_map(|job| Some((job, job.firing.as_ref()?)))
    }

    /// Returns the sessions with a message of a firing that is not over.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &SessionId> {
        self.by_session.keys()
    }

    /// Returns the time of the next automatic firing.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        let job = self.due.first().filter(|_| self.limits.enabled && self.has_room());
        let first = job.into_iter().chain(self.beats.first()).map(|(at, _)| *at).min();
        first.map(|at| at.moved_by(self.ahead.saturating_neg()))
    }

    /// Reports whether another of [`JobKind::Job`] may fire.
    pub(crate) fn has_room(&self) -> bool {
        self.open_jobs < self.at_once()
    }

    fn at_once(&self) -> usize {
        usize::try_from(self.limits.at_once).unwrap_or(usize::MAX)
    }

    /// Returns the automatic firings at `now`.
    pub(crate) fn due_events(&self, now: Millis) -> Vec<Event> {
        let jobs = if self.limits.enabled { self.due_jobs(now) } else { Vec::new() };
        let wall = self.wall_time(now);
        let beats = self.beats.iter().take_while(|(at, _)| *at <= wall).filter_map(|(_, id)| self.jobs.get(id));
        jobs.into_iter().chain(beats).filter_map(|job| fired_event(job, FiringCause::Due, wall)).collect()
    }

    /// Returns the jobs whose time has come, the oldest first, within the limit.
    pub(crate) fn due_jobs(&self, now: Millis) -> Vec<&Job> {
        let room = self.at_once().saturating_sub(self.open_jobs);
        let wall = self.wall_time(now);
        let due = self.due.iter().take_while(|(at, _)| *at <= wall).take(room);
        due.filter_map(|(_, id)| self.jobs.get(id)).collect()
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event, session: Option<&SessionId>, lsn: Lsn, at: Millis) {
        match event {
            Event::Limited(limits) => self.set_limits(*limits, self.wall_time(at)),
            Event::Clocked { ahead } => self.move_clock(*ahead, at),
            // A heartbeat may come back while its last firing is open.
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
                // A firing that was not begun is dropped.
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
                    // The last result of an agent is kept over a skipped heartbeat.
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

    /// Records the run that the message of a firing began, or that continues it.
    pub(crate) fn record_run(&mut self, id: &FiringId, run: RunId) {
        self.change_firing(id, |firing| {
            if let FiringStage::MessageSent { run: works, end, .. } = &mut firing.stage {
                (*works, *end) = (Some(run), None);
            }
        });
    }

    /// Records the outcome of that run, the position of its last words, and the limit of its contract that it used up.
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
                // A job that is due already stays due.
                if job.next.is_some_and(|next| next > now) {
                    job.next = job.plan.schedule.next(now);
                }
            });
        }
    }

    /// Adjusts to a moved wall clock. Times that a clock put forward has passed are due; times that one put back reaches
    /// again are planned again.
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

    /// Adds a job to all indexes.
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

    /// Removes a job from all indexes.
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

    /// Returns the parts of a snapshot: the rest is rebuilt from them.
    pub(crate) fn to_parts(&self) -> (JobLimits, i64, impl Iterator<Item = &Job>) {
        (self.limits, self.ahead, self.jobs.values())
    }

    /// Rebuilds the state from the parts of [`State::to_parts`].
    pub(crate) fn from_parts(limits: JobLimits, ahead: i64, jobs: Vec<Job>) -> Self {
        let mut state = Self { limits, ahead, ..Self::default() };
        jobs.into_iter().for_each(|job| state.insert_job(job));
        state
    }
}

/// Returns the fact that a job fires by a wall clock that shows `now`. None if a firing of it is open.
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

/// Returns the time at which a job is due first, or again, under a plan. Absent if it never is.
pub(crate) fn first_firing(plan: &JobPlan, now: Millis) -> Option<Millis> {
    plan.schedule.first_firing(now)
}
