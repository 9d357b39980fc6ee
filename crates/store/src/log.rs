//! The contract of a log.
//!
//! Nothing here knows where a log is kept.

use bytes::Bytes;
use countersign_core::id::Lsn;

use crate::{
    error::{AppendError, ReadError, WriteError},
    record::{Batch, Content, Head, Partition, Scope, Snapshot, Stored},
    verify::Report,
};

/// An append-only record of everything that was decided, in partitions.
///
/// Implementations are interchangeable: each must pass [`suite`](crate::suite). A partition that does not exist is
/// refused by every method.
pub trait Log: Send + Sync + 'static {
    /// Writes `batch` as one unit behind `expected` and returns the position of its last record.
    ///
    /// When the future is ready with `Ok`, the batch survives a power cut. A batch is never partly visible. Its records
    /// have the positions `expected + 1` and on, without a gap; an empty batch writes nothing and returns `expected`.
    ///
    /// A future that is dropped leaves the outcome open: the batch may already be on its way.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] if the head is not `expected`; [`AppendError::TooLarge`], [`AppendError::Full`], [`AppendError::Io`], [`AppendError::Open`], [`AppendError::ReadOnly`] with nothing written;
    /// [`AppendError::Uncertain`] if it may or may not be there: read before you write again.
    fn append(
        &self,
        partition: Partition,
        expected: Lsn,
        batch: Batch,
    ) -> impl Future<Output = Result<Lsn, AppendError>> + Send;

    /// The last record, or [`Head::EMPTY`].
    ///
    /// # Errors
    /// [`ReadError::Unsettled`] if an append ended uncertain and the store still cannot tell what became of it. Every call tries to settle that first.
    fn head(&self, partition: Partition) -> impl Future<Output = Result<Head, ReadError>> + Send;

    /// Up to `limit` records behind `after`, in order. Fewer than `limit` means that there were no more.
    ///
    /// # Errors
    /// As [`Log::head`]; [`ReadError::Corrupt`] if what is stored is not a record.
    fn read(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Stored>, ReadError>> + Send;

    /// Up to `limit` records of `scope` behind `after`, in order. Fewer than `limit` means that there were no more.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn read_scope(
        &self,
        partition: Partition,
        scope: Scope<'_>,
        after: Lsn,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Stored>, ReadError>> + Send;

    /// The contents of the named records, in the order of `lsns`; `None` where there is no such record or it has no
    /// content.
    ///
    /// # Errors
    /// [`ReadError::Content`] for the first whose bytes are gone without a redaction or do not fit the digest in its record: such bytes are never handed out.
    fn contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> impl Future<Output = Result<Vec<Option<Content>>, ReadError>> + Send;

    /// Up to `limit` rows of a [`View`](crate::View), in the order of the bytes of their keys: those whose keys begin with
    /// `prefix` and lie behind `after`. They are of all records up to the head, neither more nor less.
    ///
    /// # Errors
    /// As [`Log::read`]; [`ReadError::NoView`] if it was not registered at opening, [`ReadError::BrokenView`] if it is
    /// out of use until the next.
    fn view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(String, Bytes)>, ReadError>> + Send;

    /// The snapshot that was saved last, if it is of `version` and of this history.
    ///
    /// `None` on any mismatch: another version, a position beyond the head, another chain at its position, damaged
    /// bytes. That is no error: the log rebuilds it.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn load_snapshot(
        &self,
        partition: Partition,
        version: u32,
    ) -> impl Future<Output = Result<Option<Snapshot>, ReadError>> + Send;

    /// Keeps `snapshot` in place of the one before. Does nothing while there is no record.
    ///
    /// # Errors
    /// [`WriteError`], with the one before left as it was.
    fn save_snapshot(
        &self,
        partition: Partition,
        snapshot: Snapshot,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Removes the contents of the named records for good and returns how many were there to remove. Records, digests
    /// and the chain stay as they are. Views that read contents are folded anew, as part of it.
    ///
    /// Doing it again does no harm; records without content are passed over.
    ///
    /// # Errors
    /// [`WriteError::Lingers`] if the contents can no longer be read from the log but traces are left on disk: redact again. Otherwise nothing was removed.
    fn redact(&self, partition: Partition, lsns: &[Lsn]) -> impl Future<Output = Result<usize, WriteError>> + Send;

    /// Makes one small durable write that is no record, and so tells whether writing works again after an append
    /// failed. Makes the log if it was not made yet.
    ///
    /// # Errors
    /// What the write failed with.
    fn probe(&self) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Walks the chain from the first record to the head and names the first thing that does not fit.
    ///
    /// The chain alone cannot show that its tail was cut off: hand in a head that was printed, exported or sent at some
    /// time before. Redacted contents are counted and passed over.
    ///
    /// # Errors
    /// As [`Log::read`]. A log that can be read but does not fit is no error, it is a [`Report`].
    fn verify(
        &self,
        partition: Partition,
        expected_head: Option<Head>,
    ) -> impl Future<Output = Result<Report, ReadError>> + Send;

    /// Waits until everything queued is written, then gives the log up. Later calls answer that it is closed.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
