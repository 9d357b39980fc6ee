//! What an owner does when a batch could not be recorded, or its state has to be made again.

use std::{sync::Arc, time::Duration};

use countersign_core::engine::RecordedFact;
use countersign_store::{AppendError, Log as _, Partition};
use tokio::time::Instant;
use tracing::error;

use super::{Next, Owner, PROBE_EVERY, Release};
use crate::{
    deliver::Released,
    inbox::{Item, NotRecorded, Waiting},
    owner::open::{self, OpenError},
};

/// How long a log that cannot be read is waited for, when the state has to be made from it again.
const PATIENCE: Duration = Duration::from_secs(30);

impl Owner {
    /// Makes the state again from the log and from what is decided but not written. A log that ends elsewhere than where it was written to
    /// says nothing of it: an older one would have done again what was done.
    pub(super) async fn rebuild(&mut self, batch: &[RecordedFact]) -> Result<(), OpenError> {
        // Not the engine's own: it takes rules before anybody has recorded that they are in force.
        let rules = self.coming.as_ref().unwrap_or(&self.rules).clone();
        let mut engine = open::replay(&self.log, rules).await?.in_place_of(&self.engine);
        let (found, written) = (engine.state().head_lsn(), self.durable);
        if found != written {
            let current = self.log.epoch(Partition::ZERO).await?;
            if current != self.epoch {
                return Err(OpenError::Fenced { epoch: self.epoch, current });
            }
            return Err(OpenError::Other { found, written });
        }
        for recorded in self.deferred.iter().chain(batch) {
            engine.replay_fact(&recorded.fact.event, &recorded.meta);
        }
        open::admit(&mut engine, &self.contents).await?;
        self.engine = engine;
        Ok(())
    }

    /// Takes everything of a batch back that could not be recorded.
    pub(super) async fn roll_back(&mut self, failed: AppendError, taken: Vec<Waiting>, releases: Vec<Release>) -> Next {
        let why: Arc<str> = match std::error::Error::source(&failed) {
            Some(source) => format!("{failed}: {source}").into(),
            None => failed.to_string().into(),
        };
        self.meters.failed_commits.add(1);
        error!(error = %why, "a batch was not recorded");
        if matches!(failed, AppendError::Fenced { .. }) {
            stop_fenced(&why, releases);
            return Next::End;
        }
        let fatal = matches!(failed, AppendError::Position { .. } | AppendError::Closed | AppendError::ReadOnly);
        self.coming = None;
        // Whoever waits is told first: to make the state again may take a while, and may fail. What was decided behind a fact that is gone
        // now may rest on it.
        let mut is_behind = false;
        for release in releases {
            match release {
                Release::Reply(reply, replied) if is_behind || replied.is_ok() => {
                    let _ = reply.send(Err(NotRecorded(Arc::clone(&why)).into()));
                }
                Release::Reply(reply, refused) => {
                    let _ = reply.send(refused);
                }
                Release::Live(live) => self.ring.push(Released::Live(Arc::new(live))),
                Release::Facts(facts) => is_behind |= !facts.is_empty(),
                // Reads stand before the batch's first fact: what they show is so.
                Release::Read(send) => send(self.ring.pushed()),
            }
        }
        self.ring.publish();
        let rebuilt = if fatal { self.rebuild(&[]).await } else { self.rebuild_patiently(&why).await };
        if let Err(failed) = rebuilt {
            error!(error = %failed, "the state could not be rebuilt");
            return Next::End;
        }
        self.contents.forget_after(self.engine.state().head_lsn());
        // In each line, what was held stands behind what was taken before it.
        self.inbox.put_back(taken.into_iter().chain(std::mem::take(&mut self.held)).collect());
        if fatal {
            return Next::End;
        }
        self.degrade(&why);
        Next::Work
    }

    /// The same as [`Self::rebuild`] with nothing behind the log, tried again for a while where the log cannot be read: it may have been
    /// moved away, and be put back. Whoever asks for something meanwhile is told that it is not recorded, and whoever closes the owner waits a
    /// second at most.
    async fn rebuild_patiently(&mut self, why: &Arc<str>) -> Result<(), OpenError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.rebuild(&[]).await {
                Err(failed @ (OpenError::Read(_) | OpenError::Other { .. }))
                    if Instant::now() < until && !self.inbox.is_closed() =>
                {
                    error!(error = %failed, "the state cannot be rebuilt; it is tried again");
                    for waiting in self.inbox.take_asked() {
                        if let Item::Command(_, Some(reply)) = waiting.item {
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
        self.degraded = Some((why.into(), Instant::now() + PROBE_EVERY));
        self.owes_time = true;
    }
}

/// Releases nothing of a batch whose owner is fenced. All requests are answered "not recorded", refused ones too, because the
/// state behind a refusal may be out of date. Reads break off. Live frames are dropped: their runs belong to the next owner.
fn stop_fenced(why: &Arc<str>, releases: Vec<Release>) {
    for release in releases {
        match release {
            Release::Reply(reply, _) => {
                let _ = reply.send(Err(NotRecorded(Arc::clone(why)).into()));
            }
            Release::Facts(_) | Release::Live(_) | Release::Read(_) => {}
        }
    }
}
