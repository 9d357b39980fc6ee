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
    /// Value of after for the next page; null at the end. A page may be empty without being the last.
    pub(crate) next: Option<RecordCursor>,
    pub(crate) cursor: RecordCursor,
}

/// Entry of the record, with the cursor after it.
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
    /// Version of the format of its facts.
    pub(crate) version: u16,
    /// Fact as the chain covers it.
    pub(crate) facts: Value,
    pub(crate) content: Option<RecordContent>,
    /// The digest of everything up to and including this record.
    #[schemars(with = "String")]
    pub(crate) chain: Digest,
    pub(crate) cursor: RecordCursor,
}

/// Text of a record, or its URL.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Content")]
pub(crate) struct RecordContent {
    /// The salted digest of the text.
    #[schemars(with = "Option<String>")]
    pub(crate) digest: Option<Digest>,
    /// URL of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) href: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) text: Option<String>,
    /// True if the text was removed from the record.
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
    /// Position and digest, as the parameter head of verify.
    pub(crate) head: String,
    pub(crate) cursor: RecordCursor,
}

/// Result of verifying the chain.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Verified")]
pub(crate) struct ChainReport {
    /// True if the whole chain is valid.
    pub(crate) ok: bool,
    /// Number of valid records.
    pub(crate) records: u64,
    /// Number of these records whose text was removed.
    pub(crate) redacted: u64,
    /// Last valid record.
    pub(crate) head: String,
    /// First flaw in the chain.
    pub(crate) flaw: Option<String>,
}
