//! Keeps the log's snapshot near its head, so that a restart reads little. It is a cache: nothing depends on it.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use countersign_core::{
    engine::{ActiveRules, Engine, SNAPSHOT_VERSION},
    id::Lsn,
};
use countersign_store::{AnyLog, Log as _, Partition, Snapshot};
use tokio::{
    runtime,
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};
use tracing::warn;

use super::open;

/// Approximate records that a restart reads after the snapshot, following a crash.
const EVERY: u64 = 16_384;
/// Shortest time between two snapshots; many records make one earlier all the same: each reads and
/// writes the whole state, however little has changed in it.
const APART: Duration = Duration::from_secs(60);
const MANY: u64 = 8 * EVERY;
/// Records that make a snapshot worth its writing at a clean end.
const WORTH: u64 = 2_048;
/// Time for which the thread that reads for snapshots is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Schedule of snapshots.
pub(super) struct SnapshotScheduler {
    log: AnyLog,
    /// Idle time after which a session is left to the log.
    idle: Option<Duration>,
    /// The position of the last one; 0 if there is none.
    last: Lsn,
    /// When the last one was begun.
    begun: Option<Instant>,
    maker: Option<Sender<SnapshotJob>>,
    writing: Option<oneshot::Receiver<()>>,
}

/// One snapshot to be made, and who wants to know when it is.
struct SnapshotJob {
    log: AnyLog,
    rules: ActiveRules,
    idle: Option<Duration>,
    done: oneshot::Sender<()>,
}

impl SnapshotScheduler {
    pub(super) fn new(log: AnyLog, idle: Option<Duration>, last: Lsn) -> Self {
        Self { log, idle, last, begun: None, maker: None, writing: None }
    }

    /// Starts one in the background if enough was recorded since the last.
    pub(super) fn start_if_due(&mut self, engine: &Engine, durable: Lsn) {
        if durable.0 < self.last.0 + EVERY || self.is_writing() || !self.is_time(durable) {
            return;
        }
        self.last = durable;
        self.begun = Some(Instant::now());
        let (done, writing) = oneshot::channel();
        let job = SnapshotJob { log: self.log.clone(), rules: engine.rules().clone(), idle: self.idle, done };
        let maker = match self.maker.take().map_or_else(spawn_maker, Ok) {
            Ok(maker) => maker,
            Err(error) => return warn!(%error, "cannot start the snapshot thread"),
        };
        // A snapshot whose thread broke off is begun again with the next.
        if maker.send(job).is_ok() {
            self.maker = Some(maker);
            self.writing = Some(writing);
        }
    }

    fn is_writing(&mut self) -> bool {
        // A finished writer reports only once.
        self.writing.take_if(|writing| writing.try_recv() != Err(TryRecvError::Empty));
        self.writing.is_some()
    }

    /// Reports whether the last one was long enough ago.
    fn is_time(&self, durable: Lsn) -> bool {
        durable.0 >= self.last.0 + MANY || self.begun.is_none_or(|begun| begun.elapsed() >= APART)
    }

    /// Writes one at a clean end, if it saves a restart some work.
    pub(super) async fn write_last(&mut self, engine: &Engine, durable: Lsn) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.await;
        }
        if durable.0 >= self.last.0 + WORTH && engine.state().head_lsn() == durable {
            save_snapshot(&self.log, engine).await;
        }
    }
}

/// Loads an engine from the log's snapshot, if it has one that this version can use.
pub(super) async fn load_engine(log: &AnyLog, rules: &ActiveRules) -> Option<Engine> {
    let snapshot = match log.load_snapshot(Partition::ZERO, SNAPSHOT_VERSION).await {
        Ok(snapshot) => snapshot?,
        Err(error) => {
            warn!(%error, "cannot read the snapshot; replaying the log from its start");
            return None;
        }
    };
    let engine = Engine::from_snapshot(rules.clone(), std::str::from_utf8(&snapshot.bytes).ok()?);
    engine.ok().filter(|engine| engine.state().head_lsn() == snapshot.lsn)
}

/// Starts the thread on which snapshots are made, all of them.
///
/// Each takes as much memory as the state and gives it back. What a heap has given out once it keeps, and each thread has one
/// of its own: made on threads that do other things too, snapshots would leave all of those heaps as large as the state.
fn spawn_maker() -> std::io::Result<Sender<SnapshotJob>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(1)
        .thread_keep_alive(KEPT)
        .thread_name("snapshot-reader")
        .build()?;
    let (maker, jobs): (_, Receiver<SnapshotJob>) = channel();
    thread::Builder::new().name("snapshots".to_owned()).spawn(move || {
        while let Ok(SnapshotJob { log, rules, idle, done }) = jobs.recv() {
            runtime.block_on(write_behind(log, rules, idle));
            // The receiver may be gone.
            let _ = done.send(());
        }
    })?;
    Ok(maker)
}

/// Makes the state again from the log, away from the owner, and saves it.
async fn write_behind(log: AnyLog, rules: ActiveRules, idle: Option<Duration>) {
    match open::replay_log(&log, rules).await {
        Ok(mut engine) => {
            // A replay lets go of nothing, and everything that ever was would be in every snapshot from then on.
            let now = engine.state().last_fact_at();
            engine.evict_idle(now, idle);
            save_snapshot(&log, &engine).await;
        }
        Err(error) => warn!(%error, "no snapshot written: cannot replay the log"),
    }
}

async fn save_snapshot(log: &AnyLog, engine: &Engine) {
    let head = engine.state().head_lsn();
    let before = Lsn(head.0.saturating_sub(1));
    let last = match log.read_records(Partition::ZERO, before, 1).await {
        Ok(page) => page.into_iter().next(),
        Err(error) => return warn!(%error, "no snapshot written: cannot read its last record"),
    };
    let Some(last) = last.filter(|last| last.lsn == head) else { return };
    let snapshot = Snapshot {
        lsn: head,
        chain: last.chain,
        version: SNAPSHOT_VERSION,
        bytes: engine.to_snapshot().into_bytes().into(),
    };
    if let Err(error) = log.save_snapshot(Partition::ZERO, snapshot).await {
        warn!(%error, "cannot write the snapshot");
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        engine::{Command, DecisionContext},
        gate::IdentityMap,
        id::{IdGenerator, SessionId},
        policy::{CompiledRules, DefaultPolicy, PathContext},
        session::{self, Settings},
        time::Millis,
    };
    use countersign_store::{Batch, MemoryLog};

    use super::*;
    use crate::owner::encode_record;

    fn rules() -> ActiveRules {
        ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        }
    }

    #[tokio::test]
    async fn a_snapshot_that_is_written_on_the_way_leaves_sessions_at_rest_to_the_log() {
        let mut engine = Engine::new(rules());
        let mut facts = Vec::new();
        for (session, now) in [("rests", Millis(1)), ("works", Millis(3_600_000))] {
            let settings = Box::new(Settings::default());
            let open = session::Command::Open { cwd: "/".to_owned(), name: None, parent: None, door: None, settings };
            let mut context = DecisionContext { now, fresh: IdGenerator::new([1; 16]) };
            facts.extend(
                engine.handle_command(Command::Session(SessionId::new(session), open), &mut context).unwrap().0,
            );
        }
        let log = AnyLog::from(MemoryLog::new());
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, Lsn(0), Batch(facts.iter().map(encode_record).collect())).await.unwrap();
        write_behind(log.clone(), rules(), Some(Duration::from_secs(600))).await;
        let saved = load_engine(&log, &rules()).await.expect("it was saved");
        let sessions: Vec<&str> = saved.state().sessions().map(|session| session.id().as_str()).collect();
        assert_eq!(sessions, ["works"]);
    }

    /// A writer that has reported its snapshot reports nothing more; a second wait for it breaks off.
    #[tokio::test]
    async fn the_end_does_not_wait_for_one_that_is_made_already() {
        let mut snapshots = SnapshotScheduler::new(AnyLog::from(MemoryLog::new()), None, Lsn(0));
        let (done, writing) = oneshot::channel();
        snapshots.writing = Some(writing);
        assert!(snapshots.is_writing());
        done.send(()).unwrap();
        assert!(!snapshots.is_writing());
        snapshots.write_last(&Engine::new(rules()), Lsn(0)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn snapshots_are_a_minute_apart_or_many_records() {
        let engine = Engine::new(rules());
        let mut snapshots = SnapshotScheduler::new(AnyLog::from(MemoryLog::new()), None, Lsn(0));
        let mut head = 0;
        for (records, seconds, is_made) in [
            (EVERY - 1, 0, false),
            (1, 0, true),
            (EVERY, 59, false),
            (0, 1, true),
            (MANY - 1, 0, false),
            (1, 0, true),
            (EVERY - 1, 3600, false),
            (1, 0, true),
        ] {
            head += records;
            tokio::time::advance(Duration::from_secs(seconds)).await;
            snapshots.start_if_due(&engine, Lsn(head));
            let made = snapshots.writing.take();
            assert_eq!(made.is_some(), is_made, "record {head}");
            if let Some(made) = made {
                made.await.expect("its thread goes on");
            }
        }
    }

    #[tokio::test]
    async fn a_snapshot_is_followed_by_no_other_while_it_is_made() {
        let engine = Engine::new(rules());
        let mut snapshots = SnapshotScheduler::new(AnyLog::from(MemoryLog::new()), None, Lsn(0));
        let (done, writing) = oneshot::channel();
        snapshots.writing = Some(writing);
        snapshots.start_if_due(&engine, Lsn(MANY));
        assert_eq!(snapshots.last, Lsn(0));
        drop(done);
        snapshots.start_if_due(&engine, Lsn(MANY));
        assert_eq!(snapshots.last, Lsn(MANY));
        snapshots.write_last(&engine, Lsn(MANY)).await;
    }
}
