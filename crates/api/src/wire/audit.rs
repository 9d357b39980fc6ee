//! Entries of the record, and its chain.

use countersign_core::digest::Digest;
use countersign_view::record::RecordEntry;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::cursor::RecordCursor;

/// One page of the record.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entries")]
pub(crate) struct EntryList {
    /// Oldest first.
    pub(crate) entries: Vec<EntryBody>,
    /// What the next page takes as after; null at the end. A page may be empty and not the last.
    pub(crate) next: Option<RecordCursor>,
    pub(crate) cursor: RecordCursor,
}

/// One entry, with the place behind it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entry")]
pub(crate) struct EntryBody {
    #[serde(flatten)]
    pub(crate) entry: RecordEntry,
    pub(crate) cursor: RecordCursor,
}

/// One record with its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Record")]
pub(crate) struct RecordBody {
    #[serde(flatten)]
    pub(crate) entry: RecordEntry,
    /// The version of the form in which its facts are written.
    pub(crate) version: u16,
    /// The fact as the chain covers it.
    pub(crate) facts: Value,
    pub(crate) content: Option<RecordContent>,
    /// The digest of everything up to and including this record.
    #[schemars(with = "String")]
    pub(crate) chain: Digest,
    pub(crate) cursor: RecordCursor,
}

/// The text that belongs to a record, or where that can be had.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Content")]
pub(crate) struct RecordContent {
    /// The salted digest of the text.
    #[schemars(with = "Option<String>")]
    pub(crate) digest: Option<Digest>,
    /// Where it can be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) href: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) text: Option<String>,
    /// True where the text was taken out of the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(crate) redacted: Option<bool>,
}

impl RecordContent {
    /// Builds content that can be had at `href`.
    pub(crate) const fn with_href(digest: Option<Digest>, href: String) -> Self {
        Self { digest, href: Some(href), text: None, redacted: None }
    }

    /// Builds content with its text.
    pub(crate) const fn with_text(digest: Option<Digest>, text: String) -> Self {
        Self { digest, href: None, text: Some(text), redacted: None }
    }

    /// Builds content that was taken out of the record.
    pub(crate) const fn redacted(digest: Option<Digest>) -> Self {
        Self { digest, href: None, text: None, redacted: Some(true) }
    }
}

/// The last record, and the digest of everything up to it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Head")]
pub(crate) struct RecordHead {
    /// Its position.
    pub(crate) lsn: u64,
    /// The digest.
    #[schemars(with = "String")]
    pub(crate) chain: Digest,
    /// Both, as verify takes them as head.
    pub(crate) head: String,
    pub(crate) cursor: RecordCursor,
}

/// What was found along the chain.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Verified")]
pub(crate) struct ChainReport {
    /// Whether all of it fits.
    pub(crate) ok: bool,
    /// How many records fit.
    pub(crate) records: u64,
    /// How many of them had their text taken out.
    pub(crate) redacted: u64,
    /// The last record that fits.
    pub(crate) head: String,
    /// The first thing that does not fit.
    pub(crate) flaw: Option<String>,
}
