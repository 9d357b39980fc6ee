//! Keeps the log's snapshot near its head, so that a restart reads little. It is a cache: nothing depends on it.

use countersign_core::{
    engine::{Engine, Rules, SNAPSHOT_VERSION},
    id::Lsn,
};
use countersign_store::{AnyLog, Log as _, Partition, Snapshot};
use tokio::task::JoinHandle;
use tracing::warn;

use super::open;

/// How many records a restart reads behind the snapshot, about, after a crash.
const EVERY: u64 = 16_384;
/// How many records make a snapshot worth its writing at a clean end.
const WORTH: u64 = 2_048;

/// Says when the next one is due.
pub(super) struct Snapshots {
    log: AnyLog,
    /// The position of the last one; 0 if there is none.
    last: Lsn,
    writing: Option<JoinHandle<()>>,
}

impl Snapshots {
    pub(super) fn new(log: AnyLog, last: Lsn) -> Self {
        Self { log, last, writing: None }
    }

    /// Writes one if enough was recorded since the last, beside the owner.
    pub(super) fn follow(&mut self, engine: &Engine, durable: Lsn) {
        let is_writing = self.writing.as_ref().is_some_and(|task| !task.is_finished());
        if durable.0 < self.last.0 + EVERY || is_writing {
            return;
        }
        self.last = durable;
        let (log, rules) = (self.log.clone(), engine.rules().clone());
        self.writing = Some(tokio::spawn(async move { write_behind(log, rules).await }));
    }

    /// Writes one at a clean end, if it saves a restart some work.
    pub(super) async fn last(&mut self, engine: &Engine, durable: Lsn) {
        if let Some(task) = self.writing.take() {
            let _ = task.await;
        }
        if durable.0 >= self.last.0 + WORTH && engine.state().head() == durable {
            save(&self.log, engine).await;
        }
    }
}

/// An engine with the log's snapshot, if it has one that this version can use.
pub(super) async fn load(log: &AnyLog, rules: &Rules) -> Option<Engine> {
    let snapshot = match log.load_snapshot(Partition::ZERO, SNAPSHOT_VERSION).await {
        Ok(snapshot) => snapshot?,
        Err(error) => {
            warn!(%error, "the snapshot cannot be read; the log is read from its beginning");
            return None;
        }
    };
    let engine = Engine::from_snapshot(rules.clone(), std::str::from_utf8(&snapshot.bytes).ok()?);
    engine.ok().filter(|engine| engine.state().head() == snapshot.lsn)
}

/// Makes the state again from the log, away from the owner, and saves it.
async fn write_behind(log: AnyLog, rules: Rules) {
    let runtime = tokio::runtime::Handle::current();
    let written = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            match open::replay(&log, rules).await {
                Ok(engine) => save(&log, &engine).await,
                Err(error) => warn!(%error, "no snapshot: the log cannot be replayed"),
            }
        });
    });
    if let Err(error) = written.await {
        warn!(%error, "no snapshot: its task broke off");
    }
}

async fn save(log: &AnyLog, engine: &Engine) {
    let head = engine.state().head();
    let before = Lsn(head.0.saturating_sub(1));
    let last = match log.read(Partition::ZERO, before, 1).await {
        Ok(page) => page.into_iter().next(),
        Err(error) => return warn!(%error, "no snapshot: its record cannot be read"),
    };
    let Some(last) = last.filter(|last| last.lsn == head) else { return };
    let snapshot = Snapshot {
        lsn: head,
        chain: last.chain,
        version: SNAPSHOT_VERSION,
        bytes: engine.snapshot().into_bytes().into(),
    };
    if let Err(error) = log.save_snapshot(Partition::ZERO, snapshot).await {
        warn!(%error, "no snapshot: it cannot be written");
    }
}
