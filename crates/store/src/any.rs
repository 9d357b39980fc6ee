//! A log of any kind as one type, for callers that decide at start where the log is kept.
//!
//! It adds nothing of its own.

use bytes::Bytes;
use countersign_core::id::Lsn;

use crate::{
    append::PendingAppend,
    error::{LogReadError, LogWriteError},
    log::Log,
    memory::MemoryLog,
    postgres::PostgresLog,
    record::{
        Batch, Epoch, FactsPage, LogHead, Partition, ReadScope, RecordFacts, Snapshot, StoredContent, StoredRecord,
    },
    sqlite::SqliteLog,
    verify::VerifyReport,
};

/// A log on disk, in a database or in memory. A clone is another handle to the same log.
#[derive(Clone, Debug)]
pub enum AnyLog {
    /// In a SQLite file.
    Sqlite(SqliteLog),
    /// In a PostgreSQL database.
    Postgres(PostgresLog),
    /// In memory.
    Memory(MemoryLog),
}

impl From<SqliteLog> for AnyLog {
    fn from(log: SqliteLog) -> Self {
        Self::Sqlite(log)
    }
}

impl From<PostgresLog> for AnyLog {
    fn from(log: PostgresLog) -> Self {
        Self::Postgres(log)
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
            AnyLog::Postgres($log) => $call.await,
            AnyLog::Memory($log) => $call.await,
        }
    };
}

impl Log for AnyLog {
    async fn take_over(&self, partition: Partition) -> Result<Epoch, LogWriteError> {
        delegate!(self, log => log.take_over(partition))
    }

    async fn current_epoch(&self, partition: Partition) -> Result<Epoch, LogReadError> {
        delegate!(self, log => log.current_epoch(partition))
    }

    async fn submit_batch(&self, partition: Partition, epoch: Epoch, expected: Lsn, batch: Batch) -> PendingAppend {
        delegate!(self, log => log.submit_batch(partition, epoch, expected, batch))
    }

    async fn head(&self, partition: Partition) -> Result<LogHead, LogReadError> {
        delegate!(self, log => log.head(partition))
    }

    async fn read_records(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        delegate!(self, log => log.read_records(partition, after, limit))
    }

    async fn read_facts<T: Send + 'static>(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
        convert: fn(RecordFacts<'_>) -> T,
    ) -> Result<FactsPage<T>, LogReadError> {
        delegate!(self, log => log.read_facts(partition, after, limit, convert))
    }

    async fn read_scope(
        &self,
        partition: Partition,
        scope: ReadScope<'_>,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        delegate!(self, log => log.read_scope(partition, scope, after, limit))
    }

    async fn read_contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> Result<Vec<Option<StoredContent>>, LogReadError> {
        delegate!(self, log => log.read_contents(partition, lsns))
    }

    async fn read_view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, LogReadError> {
        delegate!(self, log => log.read_view(partition, name, prefix, after, limit))
    }

    async fn load_snapshot(&self, partition: Partition, version: u32) -> Result<Option<Snapshot>, LogReadError> {
        delegate!(self, log => log.load_snapshot(partition, version))
    }

    async fn save_snapshot(&self, partition: Partition, snapshot: Snapshot) -> Result<(), LogWriteError> {
        delegate!(self, log => log.save_snapshot(partition, snapshot))
    }

    async fn redact_contents(&self, partition: Partition, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
        delegate!(self, log => log.redact_contents(partition, lsns))
    }

    async fn probe_write(&self) -> Result<(), LogWriteError> {
        delegate!(self, log => log.probe_write())
    }

    async fn verify_chain(
        &self,
        partition: Partition,
        expected_head: Option<LogHead>,
    ) -> Result<VerifyReport, LogReadError> {
        delegate!(self, log => log.verify_chain(partition, expected_head))
    }

    async fn close(&self) {
        delegate!(self, log => log.close());
    }
}
