//! A log of either kind behind one type, for who decides at start where the log is kept.
//!
//! It adds nothing of its own.

use bytes::Bytes;
use countersign_core::id::Lsn;

use crate::{
    append::PendingAppend,
    error::{ReadError, WriteError},
    log::Log,
    memory::MemoryLog,
    record::{Batch, Content, Epoch, Head, Partition, Scope, Snapshot, Stored},
    sqlite::SqliteLog,
    verify::Report,
};

/// A log on disk or in memory. A clone is another handle to the same log.
#[derive(Clone, Debug)]
pub enum AnyLog {
    /// In a SQLite file.
    Sqlite(SqliteLog),
    /// In memory.
    Memory(MemoryLog),
}

impl From<SqliteLog> for AnyLog {
    fn from(log: SqliteLog) -> Self {
        Self::Sqlite(log)
    }
}

impl From<MemoryLog> for AnyLog {
    fn from(log: MemoryLog) -> Self {
        Self::Memory(log)
    }
}

macro_rules! delegate {
    ($self:ident, $log:ident => $call:expr) => {
        match $self {
            AnyLog::Sqlite($log) => $call.await,
            AnyLog::Memory($log) => $call.await,
        }
    };
}

impl Log for AnyLog {
    async fn take_over(&self, partition: Partition) -> Result<Epoch, WriteError> {
        delegate!(self, log => log.take_over(partition))
    }

    async fn epoch(&self, partition: Partition) -> Result<Epoch, ReadError> {
        delegate!(self, log => log.epoch(partition))
    }

    async fn submit(&self, partition: Partition, epoch: Epoch, expected: Lsn, batch: Batch) -> PendingAppend {
        delegate!(self, log => log.submit(partition, epoch, expected, batch))
    }

    async fn head(&self, partition: Partition) -> Result<Head, ReadError> {
        delegate!(self, log => log.head(partition))
    }

    async fn read(&self, partition: Partition, after: Lsn, limit: usize) -> Result<Vec<Stored>, ReadError> {
        delegate!(self, log => log.read(partition, after, limit))
    }

    async fn read_scope(
        &self,
        partition: Partition,
        scope: Scope<'_>,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        delegate!(self, log => log.read_scope(partition, scope, after, limit))
    }

    async fn contents(&self, partition: Partition, lsns: &[Lsn]) -> Result<Vec<Option<Content>>, ReadError> {
        delegate!(self, log => log.contents(partition, lsns))
    }

    async fn view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, ReadError> {
        delegate!(self, log => log.view(partition, name, prefix, after, limit))
    }

    async fn load_snapshot(&self, partition: Partition, version: u32) -> Result<Option<Snapshot>, ReadError> {
        delegate!(self, log => log.load_snapshot(partition, version))
    }

    async fn save_snapshot(&self, partition: Partition, snapshot: Snapshot) -> Result<(), WriteError> {
        delegate!(self, log => log.save_snapshot(partition, snapshot))
    }

    async fn redact(&self, partition: Partition, lsns: &[Lsn]) -> Result<usize, WriteError> {
        delegate!(self, log => log.redact(partition, lsns))
    }

    async fn probe(&self) -> Result<(), WriteError> {
        delegate!(self, log => log.probe())
    }

    async fn verify(&self, partition: Partition, expected_head: Option<Head>) -> Result<Report, ReadError> {
        delegate!(self, log => log.verify(partition, expected_head))
    }

    async fn close(&self) {
        delegate!(self, log => log.close());
    }
}
