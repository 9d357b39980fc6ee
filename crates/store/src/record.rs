//! Input and output records of a log.
//!
//! Nothing here knows where a log is kept, nor how its records are chained.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
    time::Millis,
};

/// The most bytes that the facts of one record may have.
pub const FACTS_LIMIT: usize = 64 * 1024;

/// Names one independent sequence of records within a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u32);

impl Partition {
    /// The only partition that exists now.
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// Number of an ownership of a partition. Each [`Log::take_over`](crate::Log::take_over) returns a higher one, and appends of
/// lower ones are fenced from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Epoch of a partition before its first owner. No append is valid in it.
    pub const NONE: Self = Self(0);

    /// Returns the epoch of the next owner.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// One fact to be recorded, and the content that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// When it was decided.
    pub at: Millis,
    /// The session that it belongs to, if any.
    pub session: Option<SessionId>,
    /// Key by which its writer can find it again with [`ReadScope::Key`]: a gate's id, an idempotency key. Any number
    /// of records may have the same.
    ///
    /// An index and no part of the record: the chain does not cover it and no redaction removes it. A reader by key
    /// must see from the facts that they are meant, and a writer may not put a secret there.
    pub key: Option<Arc<str>>,
    /// Kind of the event, as its owner names it.
    pub kind: Cow<'static, str>,
    /// The version of the form in which its facts are written.
    pub version: u16,
    /// JSON text of at most [`FACTS_LIMIT`] bytes. Never redacted.
    pub facts: Arc<str>,
    /// Plain text that can be redacted later: the chain holds its digest only.
    pub content: Option<Arc<str>>,
}

/// Records that are written together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch(pub Vec<LogRecord>);

impl Batch {
    /// Bytes of facts, contents and keys.
    pub(crate) fn byte_size(&self) -> usize {
        let length = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        self.0.iter().map(|record| record.facts.len() + length(&record.content) + length(&record.key)).sum()
    }
}

/// One record as it lies in the log. Its content is fetched on its own, with [`Log::read_contents`](crate::Log::read_contents).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Position of the record.
    pub lsn: Lsn,
    /// When it was decided.
    pub at: Millis,
    /// The session that it belongs to, if any.
    pub session: Option<SessionId>,
    /// Key to find it by, see [`LogRecord::key`]. Absent too if the store could not keep keys yet.
    pub key: Option<Arc<str>>,
    /// Kind of the event.
    pub kind: Cow<'static, str>,
    /// The version of the form in which its facts are written.
    pub version: u16,
    /// JSON text.
    pub facts: Arc<str>,
    /// The salted digest of its content; absent if it never had any. Stays when the content is redacted.
    pub content_digest: Option<Digest>,
    /// The digest of everything up to and including this record, see [`chain`](crate::chain).
    pub chain: Digest,
}

impl StoredRecord {
    /// Makes the stored form of `record`.
    pub(crate) fn new(record: &LogRecord, lsn: Lsn, content_digest: Option<Digest>, chain: Digest) -> Self {
        Self {
            lsn,
            at: record.at,
            session: record.session.clone(),
            key: record.key.clone(),
            kind: record.kind.clone(),
            version: record.version,
            facts: Arc::clone(&record.facts),
            content_digest,
            chain,
        }
    }
}

/// The facts of one record, borrowed where they are read. What only finds or checks a record is left out.
#[derive(Clone, Debug)]
pub struct RecordFacts<'a> {
    /// Position of the record.
    pub lsn: Lsn,
    /// When it was decided.
    pub at: Millis,
    /// The session that it belongs to, if any.
    pub session: Option<SessionId>,
    /// Kind of the event.
    pub kind: &'a str,
    /// The version of the form in which its facts are written.
    pub version: u16,
    /// JSON text.
    pub facts: &'a str,
}

impl<'a> RecordFacts<'a> {
    /// Borrows those of `stored`.
    pub(crate) fn of_stored(stored: &'a StoredRecord) -> Self {
        Self {
            lsn: stored.lsn,
            at: stored.at,
            session: stored.session.clone(),
            kind: &stored.kind,
            version: stored.version,
            facts: &stored.facts,
        }
    }
}

/// The converted facts of records that follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsPage<T> {
    /// One for each record, in order.
    pub converted: Vec<T>,
    /// Position of the last record; the one before the page if there are none.
    pub last: Lsn,
}

/// Records of a partition to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope<'a> {
    /// Records of one session.
    Session(&'a SessionId),
    /// Records that were written with this key, in any session.
    Key(&'a str),
}

impl ReadScope<'_> {
    /// Reports whether `stored` is one of them.
    pub(crate) fn covers(self, stored: &StoredRecord) -> bool {
        match self {
            Self::Session(session) => stored.session.as_ref() == Some(session),
            Self::Key(key) => stored.key.as_deref() == Some(key),
        }
    }
}

/// The last record of a partition: where it is, and the digest of everything up to it.
///
/// # Example
///
/// ```
/// # use countersign_core::{id::Lsn, time::Millis};
/// # use countersign_store::{Batch, LogOptions, LogRecord};
/// use countersign_store::{Corruption, Log, LogHead, Partition, SqliteLog};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("log.db");
/// # let (at, session, key, content, version) = (Millis(1_000), None, None, None, 1);
/// # let record = LogRecord { at, session, key, kind: "boot".into(), version, facts: "{}".into(), content };
/// let log = SqliteLog::open(&path, LogOptions::default())?;
/// assert_eq!(log.head(Partition::ZERO).await?, LogHead::EMPTY);
/// let epoch = log.take_over(Partition::ZERO).await?;
/// log.append(Partition::ZERO, epoch, Lsn(0), Batch(vec![record])).await?;
///
/// // Keep the head elsewhere: with it, a check notices that the end of the log was cut off.
/// let head = log.head(Partition::ZERO).await?;
/// assert_eq!(log.verify_chain(Partition::ZERO, Some(head)).await?.flaw, None);
///
/// let longer = LogHead { lsn: Lsn(2), ..head };
/// let report = log.verify_chain(Partition::ZERO, Some(longer)).await?;
/// assert_eq!(report.flaw, Some(Corruption::CutTail { expected: longer, found: head }));
/// # log.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Position of the last record, 0 when there is none.
    pub lsn: Lsn,
    /// Its chain, [`GENESIS`](crate::chain::GENESIS) when there is none.
    pub chain: Digest,
}

/// State of a record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredContent {
    /// The text, which fits the digest in its record.
    Text(Arc<str>),
    /// Removed content; only the digest is left.
    Redacted,
}

/// A state folded from the log up to a position. A cache: the log can always rebuild it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record in it.
    pub lsn: Lsn,
    /// The chain at that record; it reveals a snapshot of another history.
    pub chain: Digest,
    /// The version of the state's own form.
    pub version: u32,
    /// The state, in any form that its owner chose.
    pub bytes: Bytes,
}
