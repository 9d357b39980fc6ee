//! Makes batches durable.

use std::{sync::Arc, time::Duration};

use countersign_core::{engine::RecordedFact, id::Lsn};
use countersign_store::{AnyLog, AppendError, Batch, Epoch, Log as _, LogHead, LogReadError, LogRecord, Partition};
use tokio::time::Instant;
use tracing::warn;

use super::{LogOwner, PROBE_EVERY, PendingRelease};
use crate::{
    inbox::{InboxItem, NotRecorded, OwnerError},
    owner::record::encode_record,
};

/// Time that a sender waits for the outcome if the log cannot give it.
const UNSURE_AFTER: Duration = Duration::from_secs(3);

impl LogOwner {
    /// Makes a batch durable. Facts not worth a file wait until one is.
    ///
    /// Senders in `releases` get an error if it stays unknown for long whether the batch is durable.
    pub(super) async fn append_batch(
        &mut self,
        recorded: Vec<RecordedFact>,
        releases: &mut Vec<PendingRelease>,
    ) -> Result<(), AppendError> {
        if recorded.is_empty() {
            return Ok(());
        }
        let is_worth = self.durable > Lsn(0)
            || self.inbox.records_all()
            || recorded.iter().any(|recorded| recorded.fact.is_worth_a_file());
        if !is_worth {
            self.deferred.extend(recorded);
            self.engine.mark_durable(self.engine.state().head_lsn());
            return Ok(());
        }
        let batch: Vec<LogRecord> = self.deferred.iter().chain(&recorded).map(encode_record).collect();
        let end = Lsn(self.durable.0 + batch.len() as u64);
        let begun = Instant::now();
        match self.log.append(Partition::ZERO, self.epoch, self.durable, Batch(batch)).await {
            Ok(head) => {
                self.meters.commits.record_duration(begun.elapsed());
                self.is_durable(head);
                Ok(())
            }
            Err(AppendError::Uncertain(cause)) => {
                // No reply is sent before its outcome is known, or known to take too long.
                let patience = Instant::now() + UNSURE_AFTER;
                loop {
                    match head_and_epoch(&self.log).await {
                        // The batch may be there: the next owner knows.
                        Ok((_, current)) if current != self.epoch => {
                            let fenced = AppendError::Fenced { epoch: self.epoch, current };
                            self.is_unsure(&fenced.to_string().into(), releases);
                            return Err(fenced);
                        }
                        Ok((head, _)) if head.lsn == end => {
                            self.is_durable(end);
                            return Ok(());
                        }
                        Ok(_) => return Err(AppendError::Io(cause)),
                        Err(_) if self.inbox.is_closed() => return Err(AppendError::Closed),
                        Err(failed) => {
                            warn!(error = %failed, "cannot read whether the last batch was recorded; retrying");
                            if Instant::now() >= patience {
                                self.is_unsure(&failed.to_string().into(), releases);
                            }
                            tokio::time::sleep(PROBE_EVERY).await;
                        }
                    }
                }
            }
            Err(failed) => Err(failed),
        }
    }

    /// Answers everybody as far as it can be. Reads wait on: the log alone could say what to show.
    fn is_unsure(&self, why: &Arc<str>, releases: &mut Vec<PendingRelease>) {
        for release in std::mem::take(releases) {
            match release {
                PendingRelease::Reply(reply, Ok(_)) => {
                    let _ = reply.send(Err(OwnerError::Unsure(Arc::clone(why))));
                }
                // It may rest on an unknown outcome.
                PendingRelease::Reply(reply, Err(_)) => {
                    let _ = reply.send(Err(NotRecorded(Arc::clone(why)).into()));
                }
                other => releases.push(other),
            }
        }
        for waiting in self.inbox.take_expecting_reply() {
            if let InboxItem::Command(_, Some(reply)) = waiting.item {
                let _ = reply.send(Err(NotRecorded(Arc::clone(why)).into()));
            }
        }
    }

    fn is_durable(&mut self, head: Lsn) {
        self.durable = head;
        self.deferred.clear();
        self.engine.mark_durable(head);
    }
}

/// Reads the head and the epoch of the log. The epoch is read after the head: if it is still the caller's, no other owner
/// wrote the record at that head.
async fn head_and_epoch(log: &AnyLog) -> Result<(LogHead, Epoch), LogReadError> {
    let head = log.head(Partition::ZERO).await?;
    Ok((head, log.current_epoch(Partition::ZERO).await?))
}
