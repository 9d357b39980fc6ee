//! A log in memory: for sessions that must leave nothing on disk, and for simulations.
//!
//! It must not know the time, the dice or the disk: salts are drawn from positions, so that the same run gives the same
//! log, and every failure is a planted one.
//!
//! A simulation plants a [`LogFault`] with [`MemoryLog::fail_next`] or [`MemoryLog::fail_after`], or changes the [`DiskState`]
//! until it is changed again. A crash is a fault too: from then on no call on this handle or its clones ever comes back, as in a process
//! that is gone; [`MemoryLog::wait_for_crash`] returns then in the simulation, which drops its owner and continues with
//! [`MemoryLog::restart`].

mod storage;
mod views;

use std::{
    fmt,
    future::{pending, ready},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use countersign_core::id::Lsn;
use tokio::sync::watch;

use self::storage::{AppendEnding, MemoryStorage};
use crate::{
    append::PendingAppend,
    error::{AppendError, LogReadError, LogWriteError},
    log::Log,
    record::{
        Batch, Epoch, FactsPage, LogHead, Partition, ReadScope, RecordFacts, Snapshot, StoredContent, StoredRecord,
    },
    verify::VerifyReport,
    view::LogView,
};

/// Outcome of a batch whose append ends uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncertainOutcome {
    /// The batch is there.
    Written,
    /// The batch is not there.
    Lost,
}

/// Fault of one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// [`AppendError::Full`], nothing written.
    Full,
    /// [`AppendError::Io`], nothing written.
    Io,
    /// [`AppendError::Fenced`]: another owner takes the log over, and writes nothing.
    Fenced,
    /// [`AppendError::Uncertain`].
    Uncertain(UncertainOutcome),
    /// The same, and the disk is [broken](DiskState::Broken) from then on, so that it cannot be settled.
    Breaks(UncertainOutcome),
    /// The process dies, and the batch is not there afterwards.
    CrashBefore,
    /// The process dies, and the batch is there afterwards.
    CrashAfter,
}

/// In what state the pretended disk is, until it is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskState {
    /// Everything works.
    #[default]
    Works,
    /// Every write ends as [`AppendError::Full`].
    Full,
    /// Every write ends as [`AppendError::Io`], and an uncertain one cannot be settled.
    Broken,
}

/// A log that is gone with its last handle. A clone is another handle to the same log in the same process.
#[derive(Clone)]
pub struct MemoryLog {
    storage: Arc<Mutex<MemoryStorage>>,
    life: Arc<watch::Sender<LogState>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogState {
    Open,
    Closed,
    Crashed,
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLog").field("head", &self.lock_storage().head()).finish_non_exhaustive()
    }
}

impl MemoryLog {
    /// Returns an empty log.
    pub fn new() -> Self {
        Self { storage: Arc::default(), life: Arc::new(watch::Sender::new(LogState::Open)) }
    }

    /// Returns an empty log with views.
    pub fn with_views(views: Vec<Arc<dyn LogView>>) -> Self {
        Self::new().restart_with(views)
    }

    /// Returns an empty log whose first appends go wrong in this order, one fault each.
    pub fn with_faults(faults: impl IntoIterator<Item = LogFault>) -> Self {
        let log = Self::new();
        for (appends, fault) in faults.into_iter().enumerate() {
            log.fail_after(appends, fault);
        }
        log
    }

    /// Lets the next append go wrong.
    pub fn fail_next(&self, fault: LogFault) {
        self.fail_after(0, fault);
    }

    /// Lets an append go wrong after `appends` others, in place of a fault already planted there.
    pub fn fail_after(&self, appends: usize, fault: LogFault) {
        self.lock_storage().plant_fault(appends, fault);
    }

    /// Changes the state of the pretended disk.
    pub fn set_disk(&self, disk: DiskState) {
        self.lock_storage().set_disk(disk);
    }

    /// Returns the current state of the pretended disk.
    pub fn disk(&self) -> DiskState {
        self.lock_storage().disk()
    }

    /// Waits until a crash happened to this handle.
    pub async fn wait_for_crash(&self) {
        let mut life = self.life.subscribe();
        // The sender is held by `self`: waiting cannot end early.
        let _ = life.wait_for(|life| *life == LogState::Crashed).await;
    }

    /// Crashes now, between two calls.
    pub fn crash(&self) {
        self.life.send_replace(LogState::Crashed);
    }

    /// Opens the same log as a new process would: with all that was written, planted faults not yet met and the same
    /// disk.
    ///
    /// The old handles are left as they are: an owner with one that did not crash lives on, and is fenced by the next
    /// takeover.
    #[must_use]
    pub fn restart(&self) -> Self {
        let views = self.lock_storage().registered_views();
        self.restart_with(views)
    }

    /// Does the same as [`MemoryLog::restart`], with other views than before. The old handles have these too.
    #[must_use]
    pub fn restart_with(&self, views: Vec<Arc<dyn LogView>>) -> Self {
        self.lock_storage().settle_by_restart(views);
        Self { storage: Arc::clone(&self.storage), life: Arc::new(watch::Sender::new(LogState::Open)) }
    }

    fn lock_storage(&self) -> MutexGuard<'_, MemoryStorage> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if open, false if closed; never returns after a crash.
    async fn is_open(&self) -> bool {
        let life = *self.life.borrow();
        match life {
            LogState::Open => true,
            LogState::Closed => false,
            LogState::Crashed => pending().await,
        }
    }

    async fn check_readable(&self, partition: Partition) -> Result<(), LogReadError> {
        if partition != Partition::ZERO {
            return Err(LogReadError::NoPartition(partition));
        }
        if self.is_open().await { Ok(()) } else { Err(LogReadError::Closed) }
    }

    async fn check_writable(&self, partition: Partition) -> Result<(), LogWriteError> {
        if partition != Partition::ZERO {
            return Err(LogWriteError::NoPartition(partition));
        }
        if self.is_open().await { Ok(()) } else { Err(LogWriteError::Closed) }
    }
}

impl Log for MemoryLog {
    async fn take_over(&self, partition: Partition) -> Result<Epoch, LogWriteError> {
        self.check_writable(partition).await?;
        Ok(self.lock_storage().take_over())
    }

    async fn current_epoch(&self, partition: Partition) -> Result<Epoch, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        Ok(storage.epoch())
    }

    async fn submit_batch(&self, partition: Partition, epoch: Epoch, expected: Lsn, batch: Batch) -> PendingAppend {
        if partition != Partition::ZERO {
            return PendingAppend::new(ready(Err(AppendError::NoPartition(partition))));
        }
        if !self.is_open().await {
            return PendingAppend::new(ready(Err(AppendError::Closed)));
        }
        let ending = self.lock_storage().append(epoch, expected, &batch);
        match ending {
            AppendEnding::Answer(answer, untaken) => {
                let log = self.clone();
                PendingAppend::new(async move {
                    // Not even an append from before a crash is acknowledged after it.
                    log.is_open().await;
                    drop(untaken);
                    answer
                })
            }
            AppendEnding::Crash => {
                self.crash();
                PendingAppend::new(pending())
            }
        }
    }

    async fn head(&self, partition: Partition) -> Result<LogHead, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        Ok(storage.head())
    }

    async fn read_records(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        Ok(storage.read_page(None, after, limit))
    }

    async fn read_facts<T: Send + 'static>(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
        convert: fn(RecordFacts<'_>) -> T,
    ) -> Result<FactsPage<T>, LogReadError> {
        let page = self.read_records(partition, after, limit).await?;
        let last = page.last().map_or(after, |stored| stored.lsn);
        Ok(FactsPage { converted: page.iter().map(|stored| convert(RecordFacts::of_stored(stored))).collect(), last })
    }

    async fn read_scope(
        &self,
        partition: Partition,
        scope: ReadScope<'_>,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        Ok(storage.read_page(Some(scope), after, limit))
    }

    async fn read_contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> Result<Vec<Option<StoredContent>>, LogReadError> {
        self.check_readable(partition).await?;
        let storage = self.lock_storage();
        lsns.iter().map(|lsn| storage.read_content(*lsn)).collect()
    }

    async fn read_view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        storage.read_view(name, prefix, after, limit)
    }

    async fn load_snapshot(&self, partition: Partition, version: u32) -> Result<Option<Snapshot>, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        Ok(storage.matching_snapshot(version))
    }

    async fn save_snapshot(&self, partition: Partition, snapshot: Snapshot) -> Result<(), LogWriteError> {
        self.check_writable(partition).await?;
        self.lock_storage().save_snapshot(snapshot)
    }

    async fn redact_contents(&self, partition: Partition, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
        self.check_writable(partition).await?;
        self.lock_storage().redact_contents(lsns)
    }

    async fn probe_write(&self) -> Result<(), LogWriteError> {
        self.check_writable(Partition::ZERO).await?;
        self.lock_storage().probe_disk()
    }

    async fn verify_chain(
        &self,
        partition: Partition,
        expected_head: Option<LogHead>,
    ) -> Result<VerifyReport, LogReadError> {
        self.check_readable(partition).await?;
        let mut storage = self.lock_storage();
        storage.settle_uncertain()?;
        Ok(storage.verify_chain(expected_head))
    }

    async fn close(&self) {
        if self.is_open().await {
            self.life.send_replace(LogState::Closed);
        }
    }
}

#[cfg(test)]
mod tests;
