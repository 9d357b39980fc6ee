//! Handling of a batch that could not be recorded, and rebuilding of the state.

use std::{sync::Arc, time::Duration};

use countersign_core::engine::RecordedFact;
use countersign_store::{AppendError, Log as _, Partition};
use tokio::time::Instant;
use tracing::error;

use super::{LogOwner, PROBE_EVERY, PendingRelease, StepOutcome};
use crate::{
    deliver::ReleasedItem,
    inbox::{InboxItem, NotRecorded, QueuedItem},
    owner::open::{self, OwnerOpenError},
};

/// Time for which a log that cannot be read is waited for, when the state has to be made from it again.
const REBUILD_TIMEOUT: Duration = Duration::from_secs(30);

impl LogOwner {
    /// Makes the state again from the log and from the facts that are decided but not written. A log that does not end
    /// where it was written to is an error ([`OwnerOpenError::Other`]): from an older one, finished work would run again.
    pub(super) async fn rebuild_engine(&mut self, batch: &[RecordedFact]) -> Result<(), OwnerOpenError> {
        // Not the engine's own: it takes rules before the record that they are in force.
        let rules = self.coming.as_ref().unwrap_or(&self.rules).clone();
        let mut engine = open::replay_log(&self.log, rules).await?.in_place_of(&self.engine);
        let (found, written) = (engine.state().head_lsn(), self.durable);
        if found != written {
            let current = self.log.current_epoch(Partition::ZERO).await?;
            if current != self.epoch {
                return Err(OwnerOpenError::Fenced { epoch: self.epoch, current });
            }
            return Err(OwnerOpenError::Other { found, written });
        }
        for recorded in self.deferred.iter().chain(batch) {
            engine.replay_fact(&recorded.fact.event, &recorded.meta);
        }
        open::admit_contents(&mut engine, &self.contents).await?;
        self.engine = engine;
        Ok(())
    }

    /// Takes everything of a batch back that could not be recorded.
    pub(super) async fn roll_back(
        &mut self,
        failed: AppendError,
        taken: Vec<QueuedItem>,
        releases: Vec<PendingRelease>,
    ) -> StepOutcome {
        let why: Arc<str> = match std::error::Error::source(&failed) {
            Some(source) => format!("{failed}: {source}").into(),
            None => failed.to_string().into(),
        };
        self.meters.failed_commits.add(1);
        error!(error = %why, "a batch was not recorded");
        if matches!(failed, AppendError::Fenced { .. }) {
            stop_fenced(&why, releases);
            return StepOutcome::End;
        }
        let fatal = matches!(failed, AppendError::Position { .. } | AppendError::Closed | AppendError::ReadOnly);
        self.coming = None;
        // Replies come first: to make the state again may take a while, and may fail. A decision that followed a lost fact
        // may now rest on it.
        let mut is_behind = false;
        for release in releases {
            match release {
                PendingRelease::Reply(reply, replied) if is_behind || replied.is_ok() => {
                    let _ = reply.send(Err(NotRecorded(Arc::clone(&why)).into()));
                }
                PendingRelease::Reply(reply, refused) => {
                    let _ = reply.send(refused);
                }
                PendingRelease::Live(live) => self.ring.push(ReleasedItem::Live(Arc::new(live))),
                PendingRelease::Facts(facts) => is_behind |= !facts.is_empty(),
                // Reads come before the batch's first fact: they show recorded state.
                PendingRelease::Read(send) => send(self.ring.pushed_count()),
            }
        }
        self.ring.publish();
        let rebuilt = if fatal { self.rebuild_engine(&[]).await } else { self.rebuild_patiently(&why).await };
        if let Err(failed) = rebuilt {
            error!(error = %failed, "cannot rebuild the state from the log");
            return StepOutcome::End;
        }
        self.contents.forget_after(self.engine.state().head_lsn());
        // In each line, held items come after those taken before them.
        self.inbox.put_back(taken.into_iter().chain(std::mem::take(&mut self.held)).collect());
        if fatal {
            return StepOutcome::End;
        }
        self.degrade(&why);
        StepOutcome::Work
    }

    /// Does the same as [`Self::rebuild_engine`] with no facts after the log, tried again for a while if the log is unreadable: it may have
    /// been moved away, and be put back. Meanwhile a request gets the error that it is not recorded, and a close of the owner waits a
    /// second at most.
    async fn rebuild_patiently(&mut self, why: &Arc<str>) -> Result<(), OwnerOpenError> {
        let until = Instant::now() + REBUILD_TIMEOUT;
        loop {
            match self.rebuild_engine(&[]).await {
                Err(failed @ (OwnerOpenError::Read(_) | OwnerOpenError::Other { .. }))
                    if Instant::now() < until && !self.inbox.is_closed() =>
                {
                    error!(error = %failed, "cannot rebuild the state from the log; retrying");
                    for waiting in self.inbox.take_expecting_reply() {
                        if let InboxItem::Command(_, Some(reply)) = waiting.item {
                            let _ = reply.send(Err(NotRecorded(Arc::clone(why)).into()));
                        }
                    }
                    tokio::time::sleep(PROBE_EVERY).await;
                }
                done => return done,
            }
        }
    }

    pub(super) fn degrade(&mut self, why: &str) {
        self.meters.refusing.set(1);
        self.degraded = Some((why.into(), Instant::now() + PROBE_EVERY));
        self.owes_time = true;
    }

    /// Tries whether the log can be written again.
    pub(super) async fn probe_log(&mut self) {
        match self.log.probe_write().await {
            Ok(()) => {
                self.degraded = None;
                self.meters.refusing.set(0);
            }
            Err(failed) => self.degrade(&failed.to_string()),
        }
    }
}

/// Releases nothing of a batch whose owner is fenced. All requests are answered "not recorded", refused ones too, because the
/// state of a refusal may be out of date. Reads break off. Live frames are dropped: their runs belong to the next owner.
fn stop_fenced(why: &Arc<str>, releases: Vec<PendingRelease>) {
    for release in releases {
        match release {
            PendingRelease::Reply(reply, _) => {
                let _ = reply.send(Err(NotRecorded(Arc::clone(why)).into()));
            }
            PendingRelease::Facts(_) | PendingRelease::Live(_) | PendingRelease::Read(_) => {}
        }
    }
}
