//! The loop: take a batch, decide, record, release, and then see to what is owed.

mod append;
mod failure;

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
use countersign_store::{AnyLog, Epoch, Log as _};
use tokio::{sync::oneshot, time::Instant};
use tracing::error;

use super::{
    Handle, Options,
    handle::Ended,
    open::{OpenError, Position},
    parking::Parked,
    record::is_too_large,
    snapshots::Snapshots,
    told,
};
use crate::{
    deliver::{Contents, Live, Released, Ring},
    inbox::{Inbox, Item, Lane, NotRecorded, Refused, Replied, Reply, Waiting},
    meters::Meters,
    work::{Close, Desk, DeskOptions},
};

/// How much one batch takes up at most.
const BATCH: usize = 256;
/// How many bytes of commands one batch takes up, about.
const BATCH_BYTES: usize = 1 << 20;
/// How long it waits before it tries a log again that could not be written.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Deadlines are looked at at least this often, so that a machine that slept notices those that passed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long a closing owner waits for what is in flight.
const GRACE: Duration = Duration::from_secs(4);
/// How much of that calls of services have to end by themselves. The rest is for what is said of those that do not.
const SERVICES: Duration = Duration::from_secs(3);

/// The task that owns the state of one log.
pub(super) struct Owner {
    engine: Engine,
    /// The rules that are recorded to be in force.
    rules: ActiveRules,
    /// Those that the batch brings which is being decided, where it brings some.
    coming: Option<ActiveRules>,
    /// The epoch that this owner took the log over in.
    epoch: Epoch,
    /// The head of the log.
    durable: Lsn,
    /// What was decided before there was anything worth a file.
    deferred: Vec<RecordedFact>,
    log: AnyLog,
    options: Options,
    inbox: Arc<Inbox>,
    ring: Arc<Ring>,
    contents: Contents,
    desk: Desk,
    /// Why the log cannot be written, and when it is tried again.
    degraded: Option<(Arc<str>, Instant)>,
    /// The boot that this process recorded. Work of another is another owner's.
    boot: u32,
    is_closing: bool,
    /// When a closing owner cancels calls of services too.
    desk_closes: Option<Instant>,
    /// Whether the state is no longer what the log says, and cannot be made so.
    is_lost: bool,
    /// When deadlines are looked at again after looking at them went wrong.
    tick_after: Option<Instant>,
    parked: Parked,
    /// Reads that stand behind facts which are not durable, and what follows them in their lines. They come first in the
    /// next batch, so that what is read is never taken back.
    held: Vec<Waiting>,
    /// How long before now the commands of this batch are decided: when the first answer in it came.
    lag: Duration,
    /// Whether deadlines passed while the log could not be written.
    owes_time: bool,
    snapshots: Snapshots,
    meters: Arc<Meters>,
}

/// What leaves once the batch is durable, in order.
enum Release {
    Facts(Vec<RecordedFact>),
    Live(Live),
    Reply(oneshot::Sender<Replied>, Replied),
    Read(Box<dyn FnOnce(u64) + Send>),
}

/// Whether the owner goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Work,
    End,
}

impl Owner {
    pub(super) fn new(engine: Engine, at: Position, options: Options, handle: &Handle) -> Self {
        let Handle { inbox, ring, contents, log, is_held, meters, .. } = handle;
        let desk = Desk::new(DeskOptions {
            host: Arc::clone(&options.host),
            results: inbox.source(Lane::Result),
            contents: contents.clone(),
            merge: options.merge,
            is_held: Arc::clone(is_held),
            meters: Arc::clone(meters),
        });
        let boot = engine.state().boot_count();
        Self {
            boot,
            is_closing: false,
            desk_closes: None,
            is_lost: false,
            tick_after: None,
            held: Vec::new(),
            lag: Duration::ZERO,
            owes_time: false,
            // In the line of results, which a closing owner still takes.
            parked: Parked::new(log.clone(), inbox.source(Lane::Result)),
            snapshots: Snapshots::new(log.clone(), options.idle, at.snapshot),
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
            desk,
            degraded: None,
            meters: Arc::clone(meters),
        }
    }

    /// Records what recovery decided, before anything else is taken.
    pub(super) async fn record_recovery(&mut self, recorded: Vec<RecordedFact>) -> Result<(), OpenError> {
        self.append(recorded, &mut Vec::new()).await.map_err(|failed| OpenError::NotRecorded(failed.to_string()))?;
        self.desk.reconcile(&self.engine);
        Ok(())
    }

    pub(super) async fn run(mut self) {
        // Whatever ends this task, nobody may wait for it any more.
        let _ended = Ended { inbox: Arc::clone(&self.inbox), ring: Arc::clone(&self.ring) };
        let mut closing: Option<Instant> = None;
        loop {
            if self.inbox.is_closed() && closing.is_none() {
                closing = Some(Instant::now() + GRACE);
                self.desk_closes = Some(Instant::now() + SERVICES);
                self.is_closing = true;
                self.engine.quiesce();
                self.desk.close(Close::AllButElsewhere);
            }
            if self.desk_closes.take_if(|at| Instant::now() >= *at).is_some() {
                self.desk.close(Close::All);
            }
            if let Some(deadline) = closing
                && (Instant::now() >= deadline || self.desk.is_idle() && self.has_nothing_waiting())
            {
                break;
            }
            self.wait(closing).await;
            if self.step().await == Next::End {
                break;
            }
        }
        self.desk.abandon();
        self.snapshots.last(&self.engine, self.durable).await;
    }

    fn has_nothing_waiting(&self) -> bool {
        self.inbox.is_empty() && self.held.is_empty() && self.parked.is_empty()
    }

    /// Waits until there is something to do.
    async fn wait(&mut self, closing: Option<Instant>) {
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
            // Tasks that were cancelled end without a command where nobody waits for one any more.
            until = until.min(Instant::now() + Duration::from_millis(20));
        }
        tokio::select! {
            () = self.inbox.arrived() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }

    async fn step(&mut self) -> Next {
        if let Some((_, at)) = &self.degraded
            && Instant::now() >= *at
        {
            match self.log.probe().await {
                Ok(()) => self.degraded = None,
                Err(failed) => self.degrade(&failed.to_string()),
            }
        }
        let mut waiting = std::mem::take(&mut self.held);
        if self.degraded.is_some() {
            waiting.extend(self.inbox.take_served());
        } else {
            waiting.extend(self.inbox.take(BATCH, BATCH_BYTES));
        }
        let mut taken = Vec::new();
        let mut recorded: Vec<RecordedFact> = Vec::new();
        let mut releases = Vec::new();
        // An answer that came in time counts, however long it waited here: time passes behind it, and not before.
        let answers = waiting.iter().filter(|waiting| waiting.item.is_answer());
        self.lag = answers.map(|waiting| waiting.since.elapsed()).max().unwrap_or_default();
        if self.degraded.is_none() && self.owes_time {
            self.tell_time(Command::Extend, &mut recorded, &mut releases).await;
        }
        if self.degraded.is_none()
            && let Some(ahead) = self.moved(&waiting)
        {
            self.tell_time(Command::Schedule(schedule::Command::Clocked { ahead }), &mut recorded, &mut releases).await;
        }
        for waiting in waiting {
            self.take_up(waiting, &mut taken, &mut recorded, &mut releases).await;
        }
        self.lag = Duration::ZERO;
        if self.degraded.is_none() {
            self.tick(&mut recorded, &mut releases).await;
        }
        if self.is_lost {
            error!("the state can no longer be told from the log; this owner ends");
            self.desk.abandon();
            return Next::End;
        }
        let next = match self.append(recorded, &mut releases).await {
            Ok(()) => {
                if let Some(rules) = self.coming.take() {
                    self.rules = rules;
                }
                self.owes_time &= self.degraded.is_some();
                self.release(releases);
                Next::Work
            }
            Err(failed) => self.roll_back(failed, taken, releases).await,
        };
        if next == Next::End {
            // What is owed now may be another owner's, or was never recorded.
            self.desk.abandon();
            return next;
        }
        // What is not in the log yet cannot be fetched from it.
        let idle = self.options.idle.filter(|_| self.deferred.is_empty());
        self.engine.evict_idle(self.options.clock.now(), idle);
        self.snapshots.follow(&self.engine, self.durable);
        if self.engine.state().boot_count() == self.boot {
            self.desk.reconcile(&self.engine);
            self.meters.in_flight.set(self.desk.in_flight());
        }
        next
    }

    /// How far ahead the wall clock is, if somebody set it and there are jobs for which that matters.
    fn moved(&self, waiting: &[Waiting]) -> Option<i64> {
        let schedule = self.engine.state().schedule();
        if schedule.is_empty() && !waiting.iter().any(|waiting| waiting.item.is_about_jobs()) {
            return None;
        }
        Some(self.options.clock.ahead()).filter(|ahead| schedule.is_moved(*ahead))
    }

    /// Lets deadlines pass, and goes on with what did not fit into the last batch.
    async fn tick(&mut self, recorded: &mut Vec<RecordedFact>, releases: &mut Vec<Release>) {
        let now: Millis = self.options.clock.now();
        let is_due = self.engine.state().next_deadline().is_some_and(|at| at <= now);
        if !(is_due || self.engine.is_unsettled()) || self.tick_after.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.tick_after = None;
        self.tell_time(Command::Tick, recorded, releases).await;
    }

    async fn tell_time(&mut self, command: Command, recorded: &mut Vec<RecordedFact>, releases: &mut Vec<Release>) {
        match self.decide(command, recorded).await {
            Ok(Ok((facts, _))) if !facts.is_empty() => {
                recorded.extend(facts.iter().cloned());
                releases.push(Release::Facts(facts));
            }
            Ok(_) => {}
            Err(_) => self.tick_after = Some(Instant::now() + PROBE_EVERY),
        }
    }

    async fn take_up(
        &mut self,
        waiting: Waiting,
        taken: &mut Vec<Waiting>,
        recorded: &mut Vec<RecordedFact>,
        releases: &mut Vec<Release>,
    ) {
        let Some(waiting) = self.parked.hold(&self.engine, waiting) else { return };
        if let Item::Fetched(scope, records) = waiting.item {
            for waiting in self.fetched(&scope, records, releases) {
                self.decide_item(waiting, taken, recorded, releases).await;
            }
            return;
        }
        self.decide_item(waiting, taken, recorded, releases).await;
    }

    /// Takes what was fetched, and gives what waited for it in the order in which it came.
    fn fetched(
        &mut self,
        scope: &ResidencyScope,
        records: Result<Vec<(Event, FactMeta)>, Arc<str>>,
        releases: &mut Vec<Release>,
    ) -> Vec<Waiting> {
        let waited = self.parked.release(scope);
        match records {
            Ok(records) => {
                self.engine.fetch_scope(scope, records, self.options.clock.now());
                waited
            }
            Err(why) => {
                let mut told = Vec::new();
                for waiting in waited {
                    match waiting.item {
                        Item::Command(_, Some(reply)) => {
                            releases.push(Release::Reply(reply, Err(Refused::Unreadable(Arc::clone(&why)))));
                        }
                        Item::Command(_, None) => told.push(waiting),
                        Item::Read(..) | Item::Fetched(..) | Item::Live(_) => {}
                    }
                }
                if !told.is_empty() {
                    self.parked.hold_on(scope, told);
                }
                Vec::new()
            }
        }
    }

    async fn decide_item(
        &mut self,
        waiting: Waiting,
        taken: &mut Vec<Waiting>,
        recorded: &mut Vec<RecordedFact>,
        releases: &mut Vec<Release>,
    ) {
        let follows_one_held = self.held.iter().any(|held| held.source == waiting.source);
        if follows_one_held || matches!(waiting.item, Item::Read(..)) && !recorded.is_empty() {
            self.held.push(waiting);
            return;
        }
        let Waiting { item, source, lane, since, permit } = waiting;
        match item {
            Item::Fetched(..) => {}
            Item::Live(live) => releases.push(Release::Live(live)),
            Item::Read(_, read) => releases.push(Release::Read(read(&self.engine))),
            Item::Command(command, reply) if self.degraded.is_some() => match (reply, &self.degraded) {
                (Some(reply), Some((why, _))) => {
                    releases.push(Release::Reply(reply, Err(NotRecorded(Arc::clone(why)).into())));
                }
                (reply, _) => {
                    let item = Item::Command(command, reply);
                    self.inbox.put_back(vec![Waiting { item, source, lane, since, permit }]);
                }
            },
            Item::Command(command, reply) => {
                // What is only told must not be lost where it cannot be recorded now: it is offered again. Whoever waits for an
                // answer is told instead, and may ask again.
                let is_told = reply.is_none();
                let broken = if is_told { crate::work::broken(&command) } else { None };
                if is_told {
                    let item = Item::Command(command.clone(), None);
                    taken.push(Waiting { item, source, lane, since, permit });
                }
                let mut decided = self.decide(*command, recorded).await;
                if let (Err(_), Some(broken)) = (&decided, broken) {
                    // What came back cannot be decided as it is; that it broke off can.
                    decided = self.decide(broken, recorded).await;
                    self.is_lost |= decided.is_err();
                }
                let replied = match decided {
                    Ok(Ok((facts, outcome))) => {
                        recorded.extend(facts.iter().cloned());
                        if let Some(reply) = reply {
                            releases.push(Release::Reply(reply, Ok(Reply { outcome, position: 0 })));
                        }
                        releases.push(Release::Facts(facts));
                        return;
                    }
                    Ok(Err(refusal)) => Err(Refused::Refusal(refusal)),
                    Err(refused) => Err(refused),
                };
                if let Some(reply) = reply {
                    releases.push(Release::Reply(reply, replied));
                }
            }
        }
    }

    /// Decides one command. A panic costs that command only: the state is rebuilt as it was before.
    async fn decide(
        &mut self,
        command: Command,
        batch: &[RecordedFact],
    ) -> Result<Result<(Vec<RecordedFact>, engine::EngineReply), engine::CommandError>, Refused> {
        let mut context = self.options.context();
        context.now = Millis(context.now.0.saturating_sub(u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX)));
        let rules = if let Command::UseRules(rules) = &command { Some((**rules).clone()) } else { None };
        let engine = &mut self.engine;
        let refused = match catch_unwind(AssertUnwindSafe(|| engine.handle_command(command, &mut context))) {
            Ok(Ok((facts, _))) if facts.iter().any(is_too_large) => {
                error!("a decision is too large for the log; its command is refused");
                Refused::TooLarge
            }
            Ok(decided) => {
                self.coming = rules.filter(|_| decided.is_ok()).or_else(|| self.coming.take());
                return Ok(decided);
            }
            Err(_) => {
                self.meters.undecided.add(1);
                error!("a decision panicked; its command is refused");
                Refused::Panicked
            }
        };
        for recorded in batch {
            if let Some(content) = &recorded.fact.content {
                self.contents.remember(recorded.meta.lsn, content);
            }
        }
        if let Err(failed) = self.rebuild(batch).await {
            error!(error = %failed, "the state could not be rebuilt");
            self.is_lost = true;
        }
        Err(refused)
    }

    /// Lets everything of a durable batch leave, in order.
    fn release(&mut self, releases: Vec<Release>) {
        let mut replies = Vec::new();
        for release in releases {
            match release {
                Release::Facts(facts) => {
                    for recorded in facts {
                        self.meters.count(&recorded, self.engine.state());
                        told::tell(&recorded);
                        if let Some(content) = &recorded.fact.content {
                            self.contents.remember(recorded.meta.lsn, content);
                        }
                        self.ring.push(Released::Fact(Arc::new(recorded)));
                    }
                }
                Release::Live(live) => self.ring.push(Released::Live(Arc::new(live))),
                Release::Reply(reply, mut replied) => {
                    if let Ok(replied) = &mut replied {
                        replied.position = self.ring.pushed();
                    }
                    replies.push((reply, replied));
                }
                Release::Read(send) => send(self.ring.pushed()),
            }
        }
        // Whoever sees a frame must be able to see the replies that stand before it.
        for (reply, replied) in replies {
            let _ = reply.send(replied);
        }
        self.ring.publish();
    }
}
