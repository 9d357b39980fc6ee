//! Checks a chain record by record, and says what does not fit.
//!
//! It must not know where records come from: a store hands them in, in order.

use countersign_core::{digest::Digest, id::Lsn};

use crate::{
    chain::{self, ChainLink},
    record::{LogHead, StoredRecord},
};

/// Result of a walk along the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The last record that fits. Keep it, to be able to detect a cut tail later.
    pub head: LogHead,
    /// Number of records that fit.
    pub records: u64,
    /// Number of them with redacted content.
    pub redacted: u64,
    /// The first thing that does not fit; the walk ends there.
    pub flaw: Option<Corruption>,
}

/// Something in a log that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message names its fields")]
pub enum Corruption {
    /// Later records are there, this one is not.
    #[error("entry {0} is missing")]
    Missing(Lsn),
    /// The record, or one before it, differs from the recorded one.
    #[error("entry {0} does not match the hash chain")]
    Chain(Lsn),
    /// The content is gone without a redaction, differs from the recorded one, or was put where there was none.
    #[error("the content of entry {0} does not match its digest")]
    Content(Lsn),
    /// The log once went further.
    #[error("the end of the record is missing: it ended at {}, now it ends at {}", .expected.lsn, .found.lsn)]
    CutTail { expected: LogHead, found: LogHead },
    /// The chain fits in itself, but is not the one that was once seen.
    #[error("the record was rewritten at or before {}", .expected.lsn)]
    Rewritten { expected: LogHead, found: Digest },
}

/// Stored bytes of a record's content.
pub(crate) enum ContentBytes<'a> {
    /// Nothing at all.
    Nothing,
    /// A mark that there was something.
    Redacted,
    /// The content.
    Bytes { salt: &'a [u8], bytes: &'a [u8] },
}

impl<'a> ContentBytes<'a> {
    /// Returns the text, if there is one and it is that of a record with `content_digest`.
    pub(crate) fn checked_text(&self, content_digest: Option<Digest>) -> Option<&'a str> {
        match self {
            Self::Bytes { bytes, .. } if self.matches_digest(content_digest) => std::str::from_utf8(bytes).ok(),
            Self::Nothing | Self::Redacted | Self::Bytes { .. } => None,
        }
    }

    /// Reports whether a record with `content_digest` may have these bytes.
    pub(crate) fn matches_digest(&self, content_digest: Option<Digest>) -> bool {
        match (self, content_digest) {
            (Self::Nothing, None) | (Self::Redacted, Some(_)) => true,
            (Self::Bytes { salt, bytes }, Some(digest)) => chain::content_digest(salt, bytes) == digest,
            (Self::Nothing, Some(_)) | (Self::Redacted | Self::Bytes { .. }, None) => false,
        }
    }
}

/// A walk along the chain that is under way.
pub(crate) struct ChainWalk {
    expected: Option<LogHead>,
    report: VerifyReport,
}

impl ChainWalk {
    pub(crate) fn new(expected: Option<LogHead>) -> Self {
        let report = VerifyReport { head: LogHead::EMPTY, records: 0, redacted: 0, flaw: None };
        Self { expected, report }
    }

    /// Returns the position after which the walk continues.
    pub(crate) fn last_lsn(&self) -> Lsn {
        self.report.head.lsn
    }

    /// Reports whether the next record is still of interest.
    pub(crate) fn goes_on(&self) -> bool {
        self.report.flaw.is_none()
    }

    /// Takes the next record that the store has. Does nothing once something did not fit.
    pub(crate) fn check_record(&mut self, stored: &StoredRecord, kept: &ContentBytes<'_>) {
        if self.report.flaw.is_some() {
            return;
        }
        self.report.flaw = self.find_corruption(stored, kept);
        if self.report.flaw.is_none() {
            self.report.head = LogHead { lsn: stored.lsn, chain: stored.chain };
            self.report.records += 1;
            self.report.redacted += u64::from(matches!(kept, ContentBytes::Redacted));
        }
    }

    fn find_corruption(&self, stored: &StoredRecord, kept: &ContentBytes<'_>) -> Option<Corruption> {
        let due = self.report.head.lsn.next();
        if stored.lsn != due {
            return Some(Corruption::Missing(due));
        }
        if chain::chain_digest(&self.report.head.chain, &ChainLink::of_stored(stored)) != stored.chain {
            return Some(Corruption::Chain(stored.lsn));
        }
        if !kept.matches_digest(stored.content_digest) {
            return Some(Corruption::Content(stored.lsn));
        }
        match self.expected {
            Some(expected) if expected.lsn == stored.lsn && expected.chain != stored.chain => {
                Some(Corruption::Rewritten { expected, found: stored.chain })
            }
            Some(_) | None => None,
        }
    }

    /// Ends the walk: the store has no more records.
    pub(crate) fn finish(mut self) -> VerifyReport {
        let found = self.report.head;
        if let (None, Some(expected)) = (&self.report.flaw, self.expected) {
            if expected.lsn > found.lsn {
                self.report.flaw = Some(Corruption::CutTail { expected, found });
            } else if expected.lsn == Lsn(0) && expected.chain != chain::GENESIS {
                self.report.flaw = Some(Corruption::Rewritten { expected, found: chain::GENESIS });
            }
        }
        self.report
    }
}
