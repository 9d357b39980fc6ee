//! Records of another log, written as they are.
//!
//! It must not know where they come from.

use countersign_core::id::SessionId;

use super::{query::sql_position, session::PARTITION, statements::Statements};
use crate::{
    database_error::StatementError,
    transfer::{RawContent, RawRecord},
};

/// Inserts `records` with their contents, within the caller's transaction.
pub(super) fn insert_records(statements: Statements<'_>, records: &[RawRecord]) -> Result<(), StatementError> {
    let stored = || records.iter().map(|record| &record.stored);
    let lsns: Vec<i64> = stored().map(|stored| sql_position(stored.lsn)).collect();
    let times: Vec<i64> = stored().map(|stored| stored.at.0.cast_signed()).collect();
    let sessions: Vec<Option<&[u8]>> =
        stored().map(|stored| stored.session.as_ref().map(SessionId::as_str).map(str::as_bytes)).collect();
    let kinds: Vec<&str> = stored().map(|stored| &*stored.kind).collect();
    let versions: Vec<i32> = stored().map(|stored| i32::from(stored.version)).collect();
    let facts: Vec<&str> = stored().map(|stored| &*stored.facts).collect();
    let digests: Vec<Option<&[u8]>> =
        stored().map(|stored| stored.content_digest.as_ref().map(|digest| digest.as_bytes().as_slice())).collect();
    let chains: Vec<&[u8]> = stored().map(|stored| stored.chain.as_bytes().as_slice()).collect();
    let keys: Vec<Option<&[u8]>> = stored().map(|stored| stored.key.as_deref().map(str::as_bytes)).collect();
    statements.execute(
        "INSERT INTO countersign.events (partition, lsn, at, session, kind, version, facts, content_digest, chain, key)
         SELECT $1, r.* FROM unnest($2::bigint[], $3::bigint[], $4::bytea[], $5::text[], $6::integer[], $7::text[],
                                    $8::bytea[], $9::bytea[], $10::bytea[]) AS r",
        &[&PARTITION, &lsns, &times, &sessions, &kinds, &versions, &facts, &digests, &chains, &keys],
    )?;
    let with_content = || records.iter().filter(|record| record.content != RawContent::Absent);
    let lsns: Vec<i64> = with_content().map(|record| sql_position(record.stored.lsn)).collect();
    let kept = || {
        with_content().map(|record| match &record.content {
            RawContent::Bytes { salt, bytes } => (Some(salt.as_slice()), Some(bytes.as_slice())),
            RawContent::Redacted | RawContent::Absent => (None, None),
        })
    };
    let salts: Vec<Option<&[u8]>> = kept().map(|(salt, _)| salt).collect();
    let bytes: Vec<Option<&[u8]>> = kept().map(|(_, bytes)| bytes).collect();
    statements
        .execute(
            "INSERT INTO countersign.contents (partition, lsn, salt, bytes)
             SELECT $1, r.* FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS r",
            &[&PARTITION, &lsns, &salts, &bytes],
        )
        .map(drop)
}
