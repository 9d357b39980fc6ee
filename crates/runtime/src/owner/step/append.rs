//! Makes batches durable.

use countersign_core::{engine::Recorded, id::Lsn};
use countersign_store::{AppendError, Batch, Log as _, Partition, Record};
use tracing::warn;

use super::{Owner, PROBE_EVERY};
use crate::owner::record::record;

impl Owner {
    /// Makes a batch durable. What is not worth a file waits until something is.
    pub(super) async fn append(&mut self, recorded: Vec<Recorded>) -> Result<(), AppendError> {
        if recorded.is_empty() {
            return Ok(());
        }
        let is_worth = self.durable > Lsn(0) || recorded.iter().any(|recorded| recorded.fact.is_worth_a_file());
        if !is_worth {
            self.deferred.extend(recorded);
            self.engine.committed(self.engine.state().head());
            return Ok(());
        }
        let batch: Vec<Record> = self.deferred.iter().chain(&recorded).map(record).collect();
        let end = Lsn(self.durable.0 + batch.len() as u64);
        match self.log.append(Partition::ZERO, self.durable, Batch(batch)).await {
            Ok(head) => {
                self.is_durable(head);
                Ok(())
            }
            Err(AppendError::Uncertain(cause)) => {
                // Nothing is answered before it is known what became of it.
                loop {
                    match self.log.head(Partition::ZERO).await {
                        Ok(head) if head.lsn == end => {
                            self.is_durable(end);
                            return Ok(());
                        }
                        Ok(_) => return Err(AppendError::Io(cause)),
                        Err(_) if self.inbox.is_closed() => return Err(AppendError::Closed),
                        Err(failed) => {
                            warn!(error = %failed, "it is not known whether the last batch was recorded");
                            tokio::time::sleep(PROBE_EVERY).await;
                        }
                    }
                }
            }
            Err(failed) => Err(failed),
        }
    }

    fn is_durable(&mut self, head: Lsn) {
        self.durable = head;
        self.deferred.clear();
        self.engine.committed(head);
    }
}
