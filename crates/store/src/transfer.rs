//! Copies a log from one place to another, record by record, with its chain as it is.
//!
//! It must not know how either is kept.

use countersign_core::id::Lsn;

use crate::{
    error::{LogReadError, LogWriteError},
    log::Log,
    record::{LogHead, Partition, StoredRecord},
    verify::{Corruption, VerifyReport},
};

/// Records that are copied in one transaction.
const PAGE: usize = 256;

/// Stored content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawContent {
    /// The record has none.
    Absent,
    /// Removed content.
    Redacted,
    /// Content that is there.
    Bytes {
        /// Salt of its digest.
        salt: Vec<u8>,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// A record as it is stored, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// The record.
    pub stored: StoredRecord,
    /// Its content.
    pub content: RawContent,
}

/// A log whose stored bytes can be copied to another one.
pub trait RawLog: Log {
    /// Returns up to `limit` records after `after` with their contents as they are stored. Fewer than `limit` means that there
    /// were no more.
    ///
    /// # Errors
    /// As [`Log::read_records`].
    fn read_raw(&self, after: Lsn, limit: usize) -> impl Future<Output = Result<Vec<RawRecord>, LogReadError>> + Send;

    /// Writes records of another log as they are, after `expected`, all or none. Their chain is not checked. Views are brought up
    /// at the next opening.
    ///
    /// # Errors
    /// [`LogWriteError`], with nothing written.
    fn import_raw(
        &self,
        expected: LogHead,
        records: Vec<RawRecord>,
    ) -> impl Future<Output = Result<(), LogWriteError>> + Send;
}

/// Why a log was not copied, or not all of it.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message names its fields")]
pub enum TransferError {
    /// The source cannot be read.
    #[error("the record cannot be read")]
    Read(#[source] LogReadError),
    /// The target cannot be read.
    #[error("the copy cannot be read")]
    ReadCopy(#[source] LogReadError),
    /// The target cannot be written.
    #[error("the copy cannot be written")]
    Write(#[from] LogWriteError),
    /// The source is damaged. The copy has everything before.
    #[error("the record is damaged: {0}")]
    Corrupt(Corruption),
    /// The copy does not fit.
    #[error("the copy does not match the record: {0}")]
    CorruptCopy(Corruption),
    /// The target holds the records of another log.
    #[error("the target holds another record: its entry {at} differs; choose an empty target")]
    OtherLog { at: Lsn },
    /// The target holds more than the source.
    #[error("the target has {found} entries, the record only {source_end}: choose an empty target")]
    Longer { found: Lsn, source_end: Lsn },
}

/// Result of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferReport {
    /// The common head, verified at both ends.
    pub head: LogHead,
    /// Number of records that were there before.
    pub resumed: u64,
    /// Number of records that were copied.
    pub copied: u64,
    /// Number of records with redacted content.
    pub redacted: u64,
}

/// Copies all records that `from` has now and `to` lacks, and verifies both chains. Nobody may write `to` meanwhile.
///
/// A copy that was interrupted goes on where it ended. Contents that were redacted since are redacted in the copy too. `progress`
/// gets the position of the last record that was copied.
///
/// # Errors
/// [`TransferError`]. What was copied until then stays.
pub async fn copy_records(
    from: &impl RawLog,
    to: &impl RawLog,
    mut progress: impl FnMut(Lsn) + Send,
) -> Result<TransferReport, TransferError> {
    let zero = Partition::ZERO;
    let source = from.head(zero).await.map_err(TransferError::Read)?;
    let mut head = to.head(zero).await.map_err(TransferError::ReadCopy)?;
    if head.lsn > source.lsn {
        return Err(TransferError::Longer { found: head.lsn, source_end: source.lsn });
    }
    let resumed = head.lsn.0;
    check_common_part(from, to, head).await?;
    while head.lsn < source.lsn {
        let limit = usize::try_from(source.lsn.0 - head.lsn.0).unwrap_or(usize::MAX).min(PAGE);
        let page = from.read_raw(head.lsn, limit).await.map_err(TransferError::Read)?;
        let Some(last) = page.last() else { break };
        let reached = LogHead { lsn: last.stored.lsn, chain: last.stored.chain };
        to.import_raw(head, page).await?;
        head = reached;
        progress(head.lsn);
    }
    verify(from, source).await.map_err(TransferError::Read)?.map_err(TransferError::Corrupt)?;
    let copy = verify(to, source).await.map_err(TransferError::ReadCopy)?.map_err(TransferError::CorruptCopy)?;
    Ok(TransferReport { head: copy.head, resumed, copied: copy.records - resumed, redacted: copy.redacted })
}

async fn verify(log: &impl RawLog, expected: LogHead) -> Result<Result<VerifyReport, Corruption>, LogReadError> {
    let report = log.verify_chain(Partition::ZERO, Some(expected)).await?;
    Ok(match report.flaw {
        Some(flaw) => Err(flaw),
        None => Ok(report),
    })
}

/// Compares what was copied before, and redacts what was redacted since.
async fn check_common_part(from: &impl RawLog, to: &impl RawLog, head: LogHead) -> Result<(), TransferError> {
    let mut after = Lsn(0);
    while after < head.lsn {
        let limit = usize::try_from(head.lsn.0 - after.0).unwrap_or(usize::MAX).min(PAGE);
        let page = from.read_raw(after, limit).await.map_err(TransferError::Read)?;
        let copied = to.read_raw(after, limit).await.map_err(TransferError::ReadCopy)?;
        let mut redacted = Vec::new();
        for (source, copy) in page.iter().zip(&copied) {
            if source.stored != copy.stored {
                return Err(TransferError::OtherLog { at: source.stored.lsn });
            }
            if source.content == RawContent::Redacted && copy.content != RawContent::Redacted {
                redacted.push(source.stored.lsn);
            }
        }
        if !redacted.is_empty() {
            to.redact_contents(Partition::ZERO, &redacted).await?;
        }
        match copied.last() {
            Some(last) if page.len() == copied.len() => after = last.stored.lsn,
            Some(_) | None => return Err(TransferError::OtherLog { at: after.next() }),
        }
    }
    Ok(())
}
