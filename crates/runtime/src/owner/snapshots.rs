//! Keeps the log's snapshot near its head, so that a restart reads little. It is a cache: nothing depends on it.

use std::time::Duration;

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
    /// How long a session rests before it is left to the log.
    idle: Option<Duration>,
    /// The position of the last one; 0 if there is none.
    last: Lsn,
    writing: Option<JoinHandle<()>>,
}

impl Snapshots {
    pub(super) fn new(log: AnyLog, idle: Option<Duration>, last: Lsn) -> Self {
        Self { log, idle, last, writing: None }
    }

    /// Writes one if enough was recorded since the last, beside the owner.
    pub(super) fn follow(&mut self, engine: &Engine, durable: Lsn) {
        let is_writing = self.writing.as_ref().is_some_and(|task| !task.is_finished());
        if durable.0 < self.last.0 + EVERY || is_writing {
            return;
        }
        self.last = durable;
        let (log, rules, idle) = (self.log.clone(), engine.rules().clone(), self.idle);
        self.writing = Some(tokio::spawn(async move { write_behind(log, rules, idle).await }));
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
async fn write_behind(log: AnyLog, rules: Rules, idle: Option<Duration>) {
    let runtime = tokio::runtime::Handle::current();
    let written = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            match open::replay(&log, rules).await {
                Ok(mut engine) => {
                    // A replay lets go of nothing, and everything that ever was would be in every snapshot from then on.
                    let now = engine.state().at();
                    engine.evict(now, idle);
                    save(&log, &engine).await;
                }
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

#[cfg(test)]
mod tests {
    use countersign_core::{
        engine::{Command, Context},
        gate::People,
        id::{Fresh, SessionId},
        policy::{Compiled, Posture, Surroundings},
        session::{self, Settings},
        time::Millis,
    };
    use countersign_store::{Batch, MemoryLog};

    use super::*;
    use crate::owner::record;

    fn rules() -> Rules {
        Rules {
            compiled: Compiled::default(),
            posture: Posture::Gateway,
            surroundings: Surroundings::default(),
            people: People::default(),
        }
    }

    #[tokio::test]
    async fn a_snapshot_that_is_written_on_the_way_leaves_sessions_at_rest_to_the_log() {
        let mut engine = Engine::new(rules());
        let mut facts = Vec::new();
        for (session, now) in [("rests", Millis(1)), ("works", Millis(3_600_000))] {
            let settings = Box::new(Settings::default());
            let open = session::Command::Open { cwd: "/".to_owned(), name: None, parent: None, door: None, settings };
            let mut context = Context { now, fresh: Fresh::new([1; 16]) };
            facts.extend(engine.handle(Command::Session(SessionId::new(session), open), &mut context).unwrap().0);
        }
        let log = AnyLog::from(MemoryLog::new());
        log.append(Partition::ZERO, Lsn(0), Batch(facts.iter().map(record).collect())).await.unwrap();
        write_behind(log.clone(), rules(), Some(Duration::from_secs(600))).await;
        let saved = load(&log, &rules()).await.expect("it was saved");
        let sessions: Vec<&str> = saved.state().sessions().map(|session| session.id().as_str()).collect();
        assert_eq!(sessions, ["works"]);
    }
}
