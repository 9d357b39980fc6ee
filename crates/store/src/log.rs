//! The contract of a log.
//!
//! Nothing here knows where a log is kept.

use bytes::Bytes;
use countersign_core::id::Lsn;

use crate::{
    append::PendingAppend,
    error::{AppendError, LogReadError, LogWriteError},
    record::{
        Batch, Epoch, FactsPage, LogHead, Partition, ReadScope, RecordFacts, Snapshot, StoredContent, StoredRecord,
    },
    verify::VerifyReport,
};

/// An append-only record of everything that was decided, in partitions.
///
/// Implementations are interchangeable: each must pass [`suite`](crate::suite). A partition that does not exist is
/// refused by every method.
///
/// # Ownership
///
/// A partition has one owner at a time, numbered by an [`Epoch`]. [`take_over`](Log::take_over) makes the caller the owner,
/// with a higher epoch than any before, without the consent of the owner before. Each append carries the epoch of its
/// owner. The store compares it with the current one in the transaction that writes. An owner that was stopped or cut off
/// and comes back therefore writes nothing: it gets [`AppendError::Fenced`], stops, and releases nothing that was not
/// acknowledged. An owner takes over first and reads then, so that no other process adds to the records that it read.
///
/// Only appends are fenced. [`load_snapshot`](Log::load_snapshot) rejects a snapshot of another history, and a redaction is
/// valid in every epoch.
///
/// # Pipelining
///
/// Several appends of one owner may be in flight. Each names the position that the one before it will reach: an owner at
/// record 7 submits three records after 7, then one after 10, then one after 11, without waiting. The store writes them in
/// the order of submission, may commit several at once, and answers them in that order. An acknowledged append is durable,
/// and so is every append before it.
///
/// If an append fails, all that were submitted after it and before its answer was taken fail too: the position that they
/// expect is not reached, or not by the batch that they follow. So there is never a gap. The owner drops the decisions that
/// it made since, reads, and decides again. If an append ends uncertain, later ones in flight may end uncertain too. A read
/// then finds none of them, or the first few without a gap.
///
/// # In a database
///
/// One append is one transaction. It locks the row of the partition (`SELECT epoch … FOR UPDATE`), compares the epoch,
/// compares the highest position with `expected`, inserts the records with their chain, and commits. Both comparisons come
/// before the first insert; a primary key of partition and position is the second line of defence. Appends that arrive while
/// one commits can share the next commit, and one connection carries them pipelined.
///
/// If the connection breaks, all appends in flight end as [`AppendError::Uncertain`]. The first read on a new connection
/// locks the row first: it waits for a transaction that the server still has from the old connection, so that its result is
/// final. [`take_over`](Log::take_over) adds 1 to the epoch under the same lock. If a lease decides who owns the partition,
/// it returns the epoch of the lease, and fails without one.
///
/// # Example
///
/// ```
/// use countersign_core::{id::Lsn, time::Millis};
/// use countersign_store::{AppendError, Batch, Log, LogRecord, MemoryLog, Partition};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = MemoryLog::new();
/// let epoch = log.take_over(Partition::ZERO).await?;
/// let batch = Batch(vec![LogRecord {
///     at: Millis(1_000),
///     session: None,
///     key: None,
///     kind: "greeting".into(),
///     version: 1,
///     facts: r#"{"to":"ana"}"#.into(),
///     content: Some("Good morning.".into()),
/// }]);
/// let last = log.append(Partition::ZERO, epoch, Lsn(0), batch.clone()).await?;
/// assert_eq!(last, Lsn(1));
///
/// // Another owner takes over, and the store refuses the appends of the first.
/// log.take_over(Partition::ZERO).await?;
/// let late = log.append(Partition::ZERO, epoch, last, batch).await;
/// assert!(matches!(late, Err(AppendError::Fenced { .. })));
/// # Ok(())
/// # }
/// ```
pub trait Log: Send + Sync + 'static {
    /// Makes the caller the owner of the partition and returns its epoch, higher than all before.
    ///
    /// Appends of older epochs may be written until this is ready, and none afterwards: [`head`](Log::head) is final then
    /// until the new owner appends. This adds no record, and does not make a log that was not made yet.
    ///
    /// # Errors
    /// [`LogWriteError`], with the owner left as it was.
    fn take_over(&self, partition: Partition) -> impl Future<Output = Result<Epoch, LogWriteError>> + Send;

    /// Returns the epoch of the partition's owner, [`Epoch::NONE`] before the first takeover.
    ///
    /// # Errors
    /// As [`Log::head`].
    fn current_epoch(&self, partition: Partition) -> impl Future<Output = Result<Epoch, LogReadError>> + Send;

    /// Submits `batch`, to be written as one unit after `expected`, and returns as soon as its place in the order is fixed.
    ///
    /// The store bounds the number of batches that wait, and this waits for room. A future that is dropped before it is
    /// ready submits nothing.
    ///
    /// Once the returned [`PendingAppend`] is ready with `Ok`, the batch survives a power cut. A batch is never partly
    /// visible. Its records have the positions from `expected + 1` on, without a gap. An empty batch writes nothing and
    /// returns `expected`, with epoch and position checked.
    ///
    /// # Errors
    /// [`PendingAppend`] resolves to an error: [`AppendError::Fenced`] if `epoch` is not the current one, [`AppendError::Position`] if the
    /// head is not `expected`; [`AppendError::TooLarge`], [`AppendError::Full`], [`AppendError::Io`],
    /// [`AppendError::Open`], [`AppendError::ReadOnly`], [`AppendError::Closed`] with nothing written;
    /// [`AppendError::Uncertain`] if it may or may not be there: read before you write again. Errors of a log
    /// that is closed or open for reading only, and of a partition that does not exist, come at once; all others in order.
    fn submit_batch(
        &self,
        partition: Partition,
        epoch: Epoch,
        expected: Lsn,
        batch: Batch,
    ) -> impl Future<Output = PendingAppend> + Send;

    /// Submits `batch` and waits for its answer.
    ///
    /// A future that is dropped leaves the outcome open: the batch may be submitted already.
    ///
    /// # Errors
    /// As [`Log::submit_batch`].
    fn append(
        &self,
        partition: Partition,
        epoch: Epoch,
        expected: Lsn,
        batch: Batch,
    ) -> impl Future<Output = Result<Lsn, AppendError>> + Send {
        async move { self.submit_batch(partition, epoch, expected, batch).await.await }
    }

    /// Returns the last record, or [`LogHead::EMPTY`].
    ///
    /// # Errors
    /// [`LogReadError::Unsettled`] if an append ended uncertain and its outcome is still unknown. Each call tries to settle it.
    fn head(&self, partition: Partition) -> impl Future<Output = Result<LogHead, LogReadError>> + Send;

    /// Returns up to `limit` records after `after`, in order. Fewer than `limit` means that there were no more.
    ///
    /// # Errors
    /// As [`Log::head`]; [`LogReadError::Corrupt`] if the stored bytes are not a record.
    fn read_records(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<StoredRecord>, LogReadError>> + Send;

    /// Converts the facts of up to `limit` records after `after`, in order. Fewer than `limit` means that there were no more.
    ///
    /// For readers of a whole log: `convert` runs where the records are read, and no text is copied.
    ///
    /// # Errors
    /// As [`Log::read_records`].
    fn read_facts<T: Send + 'static>(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
        convert: fn(RecordFacts<'_>) -> T,
    ) -> impl Future<Output = Result<FactsPage<T>, LogReadError>> + Send;

    /// Returns up to `limit` records of `scope` after `after`, in order. Fewer than `limit` means that there were no more.
    ///
    /// # Errors
    /// As [`Log::read_records`].
    fn read_scope(
        &self,
        partition: Partition,
        scope: ReadScope<'_>,
        after: Lsn,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<StoredRecord>, LogReadError>> + Send;

    /// Returns the contents of the named records, in the order of `lsns`; `None` if there is no such record or it has no
    /// content.
    ///
    /// # Errors
    /// [`LogReadError::Content`] for the first whose bytes are gone without a redaction or do not fit the digest in its record:
    /// such bytes are never handed out.
    fn read_contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> impl Future<Output = Result<Vec<Option<StoredContent>>, LogReadError>> + Send;

    /// Returns up to `limit` rows of a [`LogView`](crate::LogView), in the order of the bytes of their keys: those whose keys begin with
    /// `prefix` and come after `after`. They are of all records up to the head, neither more nor less.
    ///
    /// # Errors
    /// As [`Log::read_records`]; [`LogReadError::NoView`] if it was not registered at opening, [`LogReadError::BrokenView`] if it is
    /// out of use until the next.
    fn read_view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(String, Bytes)>, LogReadError>> + Send;

    /// Returns the snapshot that was saved last, if it is of `version` and of this history.
    ///
    /// `None` on any mismatch: another version, a position beyond the head, another chain at its position, damaged
    /// bytes. That is no error: the log rebuilds it.
    ///
    /// # Errors
    /// As [`Log::read_records`].
    fn load_snapshot(
        &self,
        partition: Partition,
        version: u32,
    ) -> impl Future<Output = Result<Option<Snapshot>, LogReadError>> + Send;

    /// Keeps `snapshot` in place of the one before. Does nothing while there is no record.
    ///
    /// # Errors
    /// [`LogWriteError`], with the one before left as it was.
    fn save_snapshot(
        &self,
        partition: Partition,
        snapshot: Snapshot,
    ) -> impl Future<Output = Result<(), LogWriteError>> + Send;

    /// Removes the contents of the named records permanently and returns how many were there to remove. Records, digests
    /// and the chain stay as they are. Views that read contents are folded again, as part of it.
    ///
    /// Doing it again does no harm; records without content are passed over.
    ///
    /// # Errors
    /// [`LogWriteError::Lingers`] if the contents can no longer be read from the log but traces are left on disk: redact again.
    /// Otherwise nothing was removed.
    fn redact_contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> impl Future<Output = Result<usize, LogWriteError>> + Send;

    /// Makes one small durable write that is no record, to find out whether writing works again after an append
    /// failed. Makes the log if it was not made yet.
    ///
    /// # Errors
    /// The error of the write.
    fn probe_write(&self) -> impl Future<Output = Result<(), LogWriteError>> + Send;

    /// Walks the chain from the first record to the head and names the first thing that does not fit.
    ///
    /// The chain alone cannot show that its tail was cut off: hand in a head that was printed, exported or sent at some
    /// time before. Redacted contents are counted and passed over.
    ///
    /// # Errors
    /// As [`Log::read_records`]. A log that can be read but does not fit is no error, it is a [`VerifyReport`].
    fn verify_chain(
        &self,
        partition: Partition,
        expected_head: Option<LogHead>,
    ) -> impl Future<Output = Result<VerifyReport, LogReadError>> + Send;

    /// Waits until everything queued is written, then gives the log up. Later calls answer that it is closed.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
