//! The contract of a log, and what goes into one and comes out.
//!
//! Nothing here knows where a log is kept.

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
    time::Millis,
};

use crate::{
    chain,
    error::{AppendError, ReadError, WriteError},
    verify::Report,
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

/// One fact to be recorded, and the content that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was decided.
    pub at: Millis,
    /// The session that it belongs to, if any.
    pub session: Option<SessionId>,
    /// What its writer will look for to find it again with [`Scope::Key`]: a gate's id, an idempotency key. Any number
    /// of records may have the same.
    ///
    /// An index and no part of the record: the chain does not cover it and no redaction removes it. Who reads by it
    /// must see from the facts that they are meant, and may not put a secret there.
    pub key: Option<Arc<str>>,
    /// What kind of event it is, in the words of its owner.
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
pub struct Batch(pub Vec<Record>);

impl Batch {
    /// Refuses facts that are too large, before anything is written.
    pub(crate) fn check(&self) -> Result<(), AppendError> {
        match self.0.iter().position(|record| record.facts.len() > FACTS_LIMIT) {
            Some(index) => Err(AppendError::TooLarge { index, size: self.0[index].facts.len() }),
            None => Ok(()),
        }
    }

    /// Bytes of facts, contents and keys.
    pub(crate) fn size(&self) -> usize {
        let length = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        self.0.iter().map(|record| record.facts.len() + length(&record.content) + length(&record.key)).sum()
    }
}

/// One record as it lies in the log. Its content is fetched on its own, with [`Log::contents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it is.
    pub lsn: Lsn,
    /// When it was decided.
    pub at: Millis,
    /// The session that it belongs to, if any.
    pub session: Option<SessionId>,
    /// What it can be found by, see [`Record::key`]. Absent too where the store could not keep keys yet.
    pub key: Option<Arc<str>>,
    /// What kind of event it is.
    pub kind: Cow<'static, str>,
    /// The version of the form in which its facts are written.
    pub version: u16,
    /// JSON text.
    pub facts: Arc<str>,
    /// The salted digest of its content; absent if it never had any. Stays when the content is redacted.
    pub content_digest: Option<Digest>,
    /// The digest of everything up to and including this record, see [`chain`].
    pub chain: Digest,
}

impl Stored {
    /// What `record` becomes in the log.
    pub(crate) fn new(record: &Record, lsn: Lsn, content_digest: Option<Digest>, chain: Digest) -> Self {
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

/// Which records of a partition are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Those of one session.
    Session(&'a SessionId),
    /// Those that were written with this key, in whichever session.
    Key(&'a str),
}

impl Scope<'_> {
    /// Whether `stored` is one of them.
    pub(crate) fn covers(self, stored: &Stored) -> bool {
        match self {
            Self::Session(session) => stored.session.as_ref() == Some(session),
            Self::Key(key) => stored.key.as_deref() == Some(key),
        }
    }
}

/// The last record of a partition: where it is, and the digest of everything up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Position of the last record, 0 when there is none.
    pub lsn: Lsn,
    /// Its chain, [`chain::GENESIS`] when there is none.
    pub chain: Digest,
}

impl Head {
    /// The head of a log without records.
    pub const EMPTY: Self = Self { lsn: Lsn(0), chain: chain::GENESIS };
}

/// What has become of a record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The text, which fits the digest in its record.
    Text(Arc<str>),
    /// It was removed; only the digest is left.
    Redacted,
}

/// A state folded from the log up to a position. A cache: the log can always rebuild it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record in it.
    pub lsn: Lsn,
    /// The chain at that record, by which a snapshot of another history is told.
    pub chain: Digest,
    /// The version of the state's own form.
    pub version: u32,
    /// The state, in whatever form its owner chose.
    pub bytes: Bytes,
}

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
