//! Chaining of records, byte by byte, so that a log can be checked without this program.
//!
//! It must not know where a record is kept.
//!
//! The **chain** of a record is the SHA-256 of this text, without line breaks:
//!
//! 1. the chain of the record before it as 64 lower-case hex digits; for the first record 64 zeros;
//! 2. `lsn`, `at`, `session`, `kind`, `version`, `facts`, `content_digest`, in this order, each written as its length in
//!    bytes in decimal, `:`, its bytes, `,`. Numbers are decimal without leading zeros, text is UTF-8, the digest is 64 lower-case hex
//!    digits. A `session` or `content_digest` that is absent is written as `-` and nothing else.
//!
//! The **content digest** is the SHA-256 of the 16 bytes of salt and then the bytes of the content. A redaction removes
//! salt and bytes and leaves the digest.
//!
//! With the `sqlite3` shell, the text of record 7 and the chain that it must have:
//!
//! ```sql
#![doc = include_str!("chain.sql")]
//! ```
//!
//! The first column, given to `sha256sum` without a line break at its end, must give the second. Of its content,
//! `SELECT hex(salt) || hex(bytes) FROM contents WHERE lsn = 7`, through `xxd -r -p | sha256sum`, must give
//! `SELECT lower(hex(content_digest)) FROM events WHERE lsn = 7`.

use countersign_core::{digest::Digest, id::Lsn, time::Millis};
use sha2::{Digest as _, Sha256};

use crate::record::{LogHead, LogRecord, StoredRecord};

/// Chain value before the first record.
pub const GENESIS: Digest = Digest::from_bytes([0; 32]);

impl LogHead {
    /// The head of a log without records.
    pub const EMPTY: Self = Self { lsn: Lsn(0), chain: GENESIS };
}

/// Bytes of salt in a content digest.
pub const SALT_SIZE: usize = 16;

/// The fields of a record that the chain covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink<'a> {
    /// Position of the record.
    pub lsn: Lsn,
    /// When it was decided.
    pub at: Millis,
    /// The session that it belongs to.
    pub session: Option<&'a str>,
    /// Kind of the event.
    pub kind: &'a str,
    /// The version of its form.
    pub version: u16,
    /// JSON text.
    pub facts: &'a str,
    /// The digest of its content.
    pub content_digest: Option<Digest>,
}

impl<'a> ChainLink<'a> {
    /// Returns the link that `record` becomes at `lsn`.
    pub(crate) fn of_record(record: &'a LogRecord, lsn: Lsn, content_digest: Option<Digest>) -> Self {
        Self {
            lsn,
            at: record.at,
            session: record.session.as_ref().map(|session| session.as_str()),
            kind: &record.kind,
            version: record.version,
            facts: &record.facts,
            content_digest,
        }
    }

    /// Returns the link that `stored` claims to be.
    pub(crate) fn of_stored(stored: &'a StoredRecord) -> Self {
        Self {
            lsn: stored.lsn,
            at: stored.at,
            session: stored.session.as_ref().map(|session| session.as_str()),
            kind: &stored.kind,
            version: stored.version,
            facts: &stored.facts,
            content_digest: stored.content_digest,
        }
    }
}

/// Computes the chain of a record from the chain before it.
pub fn chain_digest(previous: &Digest, link: &ChainLink<'_>) -> Digest {
    Digest::hash_bytes(&preimage(previous, link))
}

/// Returns the text that [`chain_digest`] is the digest of. Different inputs give different texts.
pub fn preimage(previous: &Digest, link: &ChainLink<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(256 + link.facts.len());
    text.extend_from_slice(hex::encode(previous.as_bytes()).as_bytes());
    write_field(&mut text, &link.lsn.0.to_string());
    write_field(&mut text, &link.at.0.to_string());
    write_optional(&mut text, link.session);
    write_field(&mut text, link.kind);
    write_field(&mut text, &link.version.to_string());
    write_field(&mut text, link.facts);
    write_optional(&mut text, link.content_digest.map(|digest| digest.to_string()).as_deref());
    text
}

/// Computes the digest of a content.
pub fn content_digest(salt: &[u8], bytes: &[u8]) -> Digest {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update(bytes);
    Digest::from_bytes(hash.finalize().into())
}

fn write_field(text: &mut Vec<u8>, value: &str) {
    text.extend_from_slice(value.len().to_string().as_bytes());
    text.push(b':');
    text.extend_from_slice(value.as_bytes());
    text.push(b',');
}

fn write_optional(text: &mut Vec<u8>, value: Option<&str>) {
    match value {
        Some(value) => write_field(text, value),
        None => text.push(b'-'),
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{digest::Digest, id::Lsn, time::Millis};
    use proptest::prelude::*;

    use super::{ChainLink, GENESIS, chain_digest, content_digest, preimage};

    fn link<'a>(session: Option<&'a str>, kind: &'a str, facts: &'a str) -> ChainLink<'a> {
        ChainLink { lsn: Lsn(1), at: Millis(1_700_000_000_000), session, kind, version: 1, facts, content_digest: None }
    }

    #[test]
    fn the_text_of_a_link_is_as_documented() {
        let digest = content_digest(&[7; 16], b"hello");
        let link = ChainLink { content_digest: Some(digest), ..link(Some("s1"), "gate.opened", r#"{"ä":1}"#) };
        let want = format!("{}1:1,13:1700000000000,2:s1,11:gate.opened,1:1,8:{{\"ä\":1}},64:{digest},", "0".repeat(64));
        assert_eq!(String::from_utf8(preimage(&GENESIS, &link)).unwrap(), want);
        assert_eq!(chain_digest(&GENESIS, &link), Digest::hash_bytes(want.as_bytes()));
    }

    #[test]
    fn an_absent_field_is_a_dash_and_an_empty_one_is_not() {
        let text = |session| String::from_utf8(preimage(&GENESIS, &link(session, "k", "{}"))).unwrap()[64..].to_owned();
        assert_eq!(text(None), "1:1,13:1700000000000,-1:k,1:1,2:{},-");
        assert_eq!(text(Some("")), "1:1,13:1700000000000,0:,1:k,1:1,2:{},-");
    }

    type LinkFields = (u64, u64, Option<String>, String, u16, String, Option<[u8; 32]>);

    /// Generates texts of few letters, among them those of the encoding itself, so that collisions would be found.
    fn fields() -> impl Strategy<Value = LinkFields> {
        let text = "[0-2:,-]{0,4}";
        (0u64..3, 0u64..12, proptest::option::of(text), text, 0u16..12, text, proptest::option::of(Just([1; 32])))
    }

    fn encode(previous: [u8; 32], fields: &LinkFields) -> Vec<u8> {
        let (lsn, at, session, kind, version, facts, content) = fields;
        let link = ChainLink {
            lsn: Lsn(*lsn),
            at: Millis(*at),
            session: session.as_deref(),
            kind,
            version: *version,
            facts,
            content_digest: content.map(Digest::from_bytes),
        };
        preimage(&Digest::from_bytes(previous), &link)
    }

    /// Reads a text back, which is possible only if no two inputs share one.
    fn decode(text: &[u8]) -> Option<LinkFields> {
        fn field<'a>(text: &mut &'a str) -> Option<&'a str> {
            let (length, rest) = text.split_once(':')?;
            let (value, rest) = rest.split_at_checked(length.parse().ok()?)?;
            *text = rest.strip_prefix(',')?;
            Some(value)
        }
        fn optional<'a>(text: &mut &'a str) -> Option<Option<&'a str>> {
            if let Some(rest) = text.strip_prefix('-') {
                *text = rest;
                return Some(None);
            }
            field(text).map(Some)
        }
        let mut text = &std::str::from_utf8(text).ok()?[64..];
        let lsn = field(&mut text)?.parse().ok()?;
        let at = field(&mut text)?.parse().ok()?;
        let session = optional(&mut text)?.map(str::to_owned);
        let kind = field(&mut text)?.to_owned();
        let version = field(&mut text)?.parse().ok()?;
        let facts = field(&mut text)?.to_owned();
        let digest: Option<Digest> = match optional(&mut text)? {
            Some(digest) => Some(digest.parse().ok()?),
            None => None,
        };
        text.is_empty().then_some((lsn, at, session, kind, version, facts, digest.map(|digest| *digest.as_bytes())))
    }

    proptest! {
        #[test]
        fn every_link_can_be_read_back_from_its_text(fields in fields()) {
            prop_assert_eq!(decode(&encode([3; 32], &fields)), Some(fields));
        }

        #[test]
        fn different_links_have_different_texts(left in fields(), right in fields()) {
            prop_assert_eq!(left == right, encode([3; 32], &left) == encode([3; 32], &right));
        }
    }
}
