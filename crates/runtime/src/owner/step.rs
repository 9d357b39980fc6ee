//! The loop: take a batch, decide, record, release, and then start owed work.

mod append;
mod failure;
mod pending_release;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    engine::{self, ActiveRules, Command, Engine, Event, FactMeta, RecordedFact, ResidencyScope},
    id::Lsn,
    schedule,
    time::Millis,
};
use countersign_store::{AnyLog, Epoch};
use tokio::time::Instant;
use tracing::error;

use self::pending_release::PendingRelease;
use super::{
    OwnerHandle, OwnerOptions,
    handle::EndGuard,
    open::{LogPosition, OwnerOpenError},
    parking::ParkedItems,
    record::is_too_large,
    snapshots::SnapshotScheduler,
};
use crate::{
    deliver::{ContentCache, ReleaseRing},
    inbox::{Inbox, InboxItem, InboxLane, NotRecorded, OwnerError, OwnerReply, QueuedItem},
    metrics::RuntimeMetrics,
    work::{CloseScope, Reconciler, ReconcilerOptions},
};

/// Most items in one batch.
const BATCH: usize = 256;
/// Approximate bytes of commands in one batch.
const BATCH_BYTES: usize = 1 << 20;
/// Wait before a log that could not be written is tried again.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Deadlines are looked at at least this often, so that a machine that slept notices those that passed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Time that a closing owner waits for work in flight.
const GRACE: Duration = Duration::from_secs(4);
/// Part of it that calls of services have to end by themselves. The rest is for recording the ends of the others.
const SERVICES: Duration = Duration::from_secs(3);

/// The task that owns the state of one log.
pub(super) struct LogOwner {
    engine: Engine,
    /// The rules that are recorded to be in force.
    rules: ActiveRules,
    /// Rules of the batch that is being decided, if it brings some.
    coming: Option<ActiveRules>,
    /// The epoch that this owner took the log over in.
    epoch: Epoch,
    /// The head of the log.
    durable: Lsn,
    /// Facts that were decided before there was anything worth a file.
    deferred: Vec<RecordedFact>,
    log: AnyLog,
    options: OwnerOptions,
    inbox: Arc<Inbox>,
    ring: Arc<ReleaseRing>,
    contents: ContentCache,
    reconciler: Reconciler,
    /// Why the log cannot be written, and when it is tried again.
    degraded: Option<(Arc<str>, Instant)>,
    /// The boot that this process recorded. Work of another is another owner's.
    boot: u32,
    is_closing: bool,
    /// When a closing owner cancels calls of services too.
    reconciler_closes: Option<Instant>,
    /// True if the state no longer matches the log, and cannot be made to.
    is_lost: bool,
    /// When deadlines are looked at again after looking at them went wrong.
    tick_after: Option<Instant>,
    parked: ParkedItems,
    /// Reads that depend on facts which are not durable, and the items after them in their lines. They come first in the
    /// next batch, so that a read result is never taken back.
    held: Vec<QueuedItem>,
    /// Time that the oldest answer of this batch was queued: the commands of the batch are decided as if they came then.
    oldest_answer_age: Duration,
    /// True if deadlines passed while the log could not be written.
    owes_time: bool,
    snapshots: SnapshotScheduler,
    meters: Arc<RuntimeMetrics>,
}

/// Continuation of the owner after a step.
#[derive(PartialEq, Eq)]
enum StepOutcome {
    Work,
    End,
}

impl LogOwner {
    pub(super) fn new(engine: Engine, at: LogPosition, options: OwnerOptions, handle: &OwnerHandle) -> Self {
        let OwnerHandle { inbox, ring, contents, log, is_held, meters, .. } = handle;
        let reconciler = Reconciler::new(ReconcilerOptions {
            environment: Arc::clone(&options.environment),
            results: inbox.source(InboxLane::Result),
            contents: contents.clone(),
            merge: options.merge,
            is_held: Arc::clone(is_held),
            meters: Arc::clone(meters),
        });
        let boot = engine.state().boot_count();
        Self {
            boot,
            is_closing: false,
            reconciler_closes: None,
            is_lost: false,
            tick_after: None,
            held: Vec::new(),
            oldest_answer_age: Duration::ZERO,
            owes_time: false,
            // In the line of results, which a closing owner still takes.
            parked: ParkedItems::new(log.clone(), inbox.source(InboxLane::Result)),
            snapshots: SnapshotScheduler::new(log.clone(), options.idle, at.snapshot),
            rules: engine.rules().clone(),
            coming: None,
            engine,
            epoch: at.epoch,
            durable: at.durable,
            deferred: Vec::new(),
            log: log.clone(),
            options,
            inbox: Arc::clone(inbox),
            ring: Arc::clone(ring),
            contents: contents.clone(),
            reconciler,
            degraded: None,
            meters: Arc::clone(meters),
        }
    }

    /// Records what recovery decided, before anything else is taken.
    pub(super) async fn record_recovery(&mut self, recorded: Vec<RecordedFact>) -> Result<(), OwnerOpenError> {
        self.append_batch(recorded, &mut Vec::new())
            .await
            .map_err(|failed| OwnerOpenError::NotRecorded(failed.to_string()))?;
        self.reconciler.reconcile(&self.engine);
        Ok(())
    }

    pub(super) async fn run(mut self) {
        // However this task ends, no sender may wait for it any more.
        let _ended = EndGuard { inbox: Arc::clone(&self.inbox), ring: Arc::clone(&self.ring) };
        let mut closing: Option<Instant> = None;
        loop {
            if self.inbox.is_closed() && closing.is_none() {
                closing = Some(Instant::now() + GRACE);
                self.reconciler_closes = Some(Instant::now() + SERVICES);
                self.is_closing = true;
                self.engine.quiesce();
                self.reconciler.close(CloseScope::AllButElsewhere);
            }
            if self.reconciler_closes.take_if(|at| Instant::now() >= *at).is_some() {
                self.reconciler.close(CloseScope::All);
            }
            if let Some(deadline) = closing
                && (Instant::now() >= deadline || self.reconciler.is_idle() && self.has_nothing_waiting())
            {
                break;
            }
            self.wait_for_work(closing).await;
            if self.run_step().await == StepOutcome::End {
                break;
            }
        }
        self.reconciler.abandon();
        self.snapshots.write_last(&self.engine, self.durable).await;
    }

    fn has_nothing_waiting(&self) -> bool {
        self.inbox.is_empty() && self.held.is_empty() && self.parked.is_empty()
    }

    /// Waits until there is something to do.
    async fn wait_for_work(&mut self, closing: Option<Instant>) {
        let may_settle = self.tick_after.is_none_or(|at| Instant::now() >= at);
        if self.degraded.is_none()
            && (!self.inbox.is_empty() || !self.held.is_empty() || self.engine.is_unsettled() && may_settle)
        {
            return;
        }
        let now = self.options.clock.now();
        let due = self.engine.state().next_deadline().map_or(LOOK_EVERY, |at| at.since(now).min(LOOK_EVERY));
        let mut until = Instant::now() + due;
        if let Some((_, probe)) = &self.degraded {
            until = *probe;
        }
        if let Some(at) = self.tick_after {
            until = until.min(at);
        }
        if closing.is_some() {
            // Cancelled tasks end without a command if their result is no longer needed.
            until = until.min(Instant::now() + Duration::from_millis(20));
        }
        tokio::select! {
            () = self.inbox.wait_for_item() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    async fn run_step(&mut self) -> StepOutcome {
        if let Some((_, at)) = &self.degraded
            && Instant::now() >= *at
        {
            self.probe_log().await;
        }
        let mut waiting = std::mem::take(&mut self.held);
        if self.degraded.is_some() {
            waiting.extend(self.inbox.take_served());
        } else {
            waiting.extend(self.inbox.take_batch(BATCH, BATCH_BYTES));
        }
        let mut taken = Vec::new();
        let mut recorded: Vec<RecordedFact> = Vec::new();
        let mut releases = Vec::new();
        // An answer that came in time counts, however long it was queued here: time passes after it, and not before.
        let answers = waiting.iter().filter(|waiting| waiting.item.is_answer());
        self.oldest_answer_age = answers.map(|waiting| waiting.queued_at.elapsed()).max().unwrap_or_default();
        if self.degraded.is_none() && self.owes_time {
            self.decide_time_command(Command::Extend, &mut recorded, &mut releases).await;
        }
        if self.degraded.is_none()
            && let Some(ahead) = self.moved_offset(&waiting)
        {
            self.decide_time_command(
                Command::Schedule(schedule::Command::Clocked { ahead }),
                &mut recorded,
                &mut releases,
            )
            .await;
        }
        for waiting in waiting {
            self.take_up(waiting, &mut taken, &mut recorded, &mut releases).await;
        }
        self.oldest_answer_age = Duration::ZERO;
        if self.degraded.is_none() {
            self.run_tick(&mut recorded, &mut releases).await;
        }
        if self.is_lost {
            error!("the state in memory no longer matches the log; the owner stops");
            self.reconciler.abandon();
            return StepOutcome::End;
        }
        let next = match self.append_batch(recorded, &mut releases).await {
            Ok(()) => {
                if let Some(rules) = self.coming.take() {
                    self.rules = rules;
                }
                self.owes_time &= self.degraded.is_some();
                self.release_all(releases);
                StepOutcome::Work
            }
            Err(failed) => self.roll_back(failed, taken, releases).await,
        };
        if next == StepOutcome::End {
            // Work owed now may be another owner's, or was never recorded.
            self.reconciler.abandon();
            return next;
        }
        // Facts that are not in the log yet cannot be fetched from it.
        let idle = self.options.idle.filter(|_| self.deferred.is_empty());
        self.engine.evict_idle(self.options.clock.now(), idle);
        self.snapshots.start_if_due(&self.engine, self.durable);
        if self.engine.state().boot_count() == self.boot {
            self.reconciler.reconcile(&self.engine);
            self.meters.in_flight.set(self.reconciler.in_flight());
        }
        next
    }

    /// Returns the offset of the wall clock, if it was set and there are jobs for which that matters.
    fn moved_offset(&self, waiting: &[QueuedItem]) -> Option<i64> {
        let schedule = self.engine.state().schedule();
        if schedule.is_empty() && !waiting.iter().any(|waiting| waiting.item.is_about_jobs()) {
            return None;
        }
        Some(self.options.clock.ahead_millis()).filter(|ahead| schedule.is_moved(*ahead))
    }

    /// Lets deadlines pass, and continues with the items that did not fit into the last batch.
    async fn run_tick(&mut self, recorded: &mut Vec<RecordedFact>, releases: &mut Vec<PendingRelease>) {
        let now: Millis = self.options.clock.now();
        let is_due = self.engine.state().next_deadline().is_some_and(|at| at <= now);
        if !(is_due || self.engine.is_unsettled()) || self.tick_after.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.tick_after = None;
        self.decide_time_command(Command::Tick, recorded, releases).await;
    }

    async fn decide_time_command(
        &mut self,
        command: Command,
        recorded: &mut Vec<RecordedFact>,
        releases: &mut Vec<PendingRelease>,
    ) {
        match self.decide_command(command, recorded).await {
            Ok(Ok((facts, _))) if !facts.is_empty() => {
                recorded.extend(facts.iter().cloned());
                releases.push(PendingRelease::Facts(facts));
            }
            Ok(_) => {}
            Err(_) => self.tick_after = Some(Instant::now() + PROBE_EVERY),
        }
    }

    async fn take_up(
        &mut self,
        waiting: QueuedItem,
        taken: &mut Vec<QueuedItem>,
        recorded: &mut Vec<RecordedFact>,
        releases: &mut Vec<PendingRelease>,
    ) {
        let Some(waiting) = self.parked.park_item(&self.engine, waiting) else { return };
        if let InboxItem::Fetched(scope, records) = waiting.item {
            for waiting in self.unpark_fetched(&scope, records, releases) {
                self.decide_item(waiting, taken, recorded, releases).await;
            }
            return;
        }
        self.decide_item(waiting, taken, recorded, releases).await;
    }

    /// Takes the fetched records, and returns the items that waited for them in the order in which they came.
    fn unpark_fetched(
        &mut self,
        scope: &ResidencyScope,
        records: Result<Vec<(Event, FactMeta)>, Arc<str>>,
        releases: &mut Vec<PendingRelease>,
    ) -> Vec<QueuedItem> {
        let waited = self.parked.release_scope(scope);
        match records {
            Ok(records) => {
                self.engine.fetch_scope(scope, records, self.options.clock.now());
                waited
            }
            Err(why) => {
                let mut without_reply = Vec::new();
                for waiting in waited {
                    match waiting.item {
                        InboxItem::Command(_, Some(reply)) => {
                            releases.push(PendingRelease::Reply(reply, Err(OwnerError::Unreadable(Arc::clone(&why)))));
                        }
                        InboxItem::Command(_, None) => without_reply.push(waiting),
                        InboxItem::Read(..) | InboxItem::Fetched(..) | InboxItem::Live(_) => {}
                    }
                }
                if !without_reply.is_empty() {
                    self.parked.park_again(scope, without_reply);
                }
                Vec::new()
            }
        }
    }

    async fn decide_item(
        &mut self,
        waiting: QueuedItem,
        taken: &mut Vec<QueuedItem>,
        recorded: &mut Vec<RecordedFact>,
        releases: &mut Vec<PendingRelease>,
    ) {
        let follows_one_held = self.held.iter().any(|held| held.source == waiting.source);
        if follows_one_held || matches!(waiting.item, InboxItem::Read(..)) && !recorded.is_empty() {
            self.held.push(waiting);
            return;
        }
        let QueuedItem { item, source, lane, queued_at, permit } = waiting;
        match item {
            InboxItem::Fetched(..) => {}
            InboxItem::Live(live) => releases.push(PendingRelease::Live(live)),
            InboxItem::Read(_, read) => releases.push(PendingRelease::Read(read(&self.engine))),
            InboxItem::Command(command, reply) if self.degraded.is_some() => match (reply, &self.degraded) {
                (Some(reply), Some((why, _))) => {
                    releases.push(PendingRelease::Reply(reply, Err(NotRecorded(Arc::clone(why)).into())));
                }
                (reply, _) => {
                    let item = InboxItem::Command(command, reply);
                    self.inbox.put_back(vec![QueuedItem { item, source, lane, queued_at, permit }]);
                }
            },
            InboxItem::Command(command, reply) => {
                // A one-way item must not be lost if it cannot be recorded now: it is offered again. A sender that waits for an
                // answer gets the error instead, and may send it again.
                let is_one_way = reply.is_none();
                let broken = if is_one_way { crate::work::failure_command(&command) } else { None };
                if is_one_way {
                    let item = InboxItem::Command(command.clone(), None);
                    taken.push(QueuedItem { item, source, lane, queued_at, permit });
                }
                let mut decided = self.decide_command(*command, recorded).await;
                if let (Err(_), Some(broken)) = (&decided, broken) {
                    // The result cannot be decided as it is; a report that it broke off can.
                    decided = self.decide_command(broken, recorded).await;
                    self.is_lost |= decided.is_err();
                }
                let replied = match decided {
                    Ok(Ok((facts, outcome))) => {
                        recorded.extend(facts.iter().cloned());
                        if let Some(reply) = reply {
                            releases.push(PendingRelease::Reply(reply, Ok(OwnerReply { outcome, position: 0 })));
                        }
                        releases.push(PendingRelease::Facts(facts));
                        return;
                    }
                    Ok(Err(refusal)) => Err(OwnerError::Refusal(refusal)),
                    Err(refused) => Err(refused),
                };
                if let Some(reply) = reply {
                    releases.push(PendingRelease::Reply(reply, replied));
                }
            }
        }
    }

    /// Decides one command. A panic costs that command only: the state is rebuilt as it was before.
    async fn decide_command(
        &mut self,
        command: Command,
        batch: &[RecordedFact],
    ) -> Result<Result<(Vec<RecordedFact>, engine::EngineReply), engine::CommandError>, OwnerError> {
        let mut context = self.options.engine_context();
        context.now =
            Millis(context.now.0.saturating_sub(u64::try_from(self.oldest_answer_age.as_millis()).unwrap_or(u64::MAX)));
        let rules = if let Command::UseRules(rules) = &command { Some((**rules).clone()) } else { None };
        let engine = &mut self.engine;
        let refused = match catch_unwind(AssertUnwindSafe(|| engine.handle_command(command, &mut context))) {
            Ok(Ok((facts, _))) if facts.iter().any(is_too_large) => {
                error!("a decision exceeds the record size limit; its command is refused");
                OwnerError::TooLarge
            }
            Ok(decided) => {
                self.coming = rules.filter(|_| decided.is_ok()).or_else(|| self.coming.take());
                return Ok(decided);
            }
            Err(_) => {
                self.meters.undecided.add(1);
                error!("a decision panicked; its command is refused");
                OwnerError::Panicked
            }
        };
        for recorded in batch {
            if let Some(content) = &recorded.fact.content {
                self.contents.cache_text(recorded.meta.lsn, content);
            }
        }
        if let Err(failed) = self.rebuild_engine(batch).await {
            error!(error = %failed, "cannot rebuild the state from the log");
            self.is_lost = true;
        }
        Err(refused)
    }
}
