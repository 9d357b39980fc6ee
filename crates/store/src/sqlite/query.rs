//! Queries of a log, and the conversion of a row to a record.
//!
//! It must not write, and must not know which connection it is on.

use std::{borrow::Cow, ops::ControlFlow};

use bytes::Bytes;
use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
    time::Millis,
};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params, types::Type};

use super::schema;
use crate::{
    record::{FactsPage, LogHead, RecordFacts, Snapshot, StoredContent, StoredRecord},
    transfer::{RawContent, RawRecord},
    verify::{ChainWalk, ContentBytes},
};

/// Converts a position to SQLite's integers. Those that it cannot count come after every record.
pub(super) fn sql_position(lsn: Lsn) -> i64 {
    i64::try_from(lsn.0).unwrap_or(i64::MAX)
}

/// Converts a number of rows to SQLite's integers.
pub(super) fn sql_count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn read_lsn(row: &Row<'_>, column: usize) -> rusqlite::Result<Lsn> {
    Ok(Lsn(row.get::<_, i64>(column)?.cast_unsigned()))
}

pub(super) fn read_digest(row: &Row<'_>, column: usize) -> rusqlite::Result<Digest> {
    Ok(Digest::from_bytes(row.get(column)?))
}

/// Reads the columns of `events` in the order of the table. The last one is NULL where a file has no keys.
///
/// The session's name is shared with `before`, since records of one session mostly follow one another.
pub(super) fn read_stored(row: &Row<'_>, before: Option<&StoredRecord>) -> rusqlite::Result<StoredRecord> {
    Ok(StoredRecord {
        lsn: read_lsn(row, 0)?,
        at: Millis(row.get::<_, i64>(1)?.cast_unsigned()),
        session: read_session(row, 2, before.and_then(|before| before.session.as_ref()))?,
        key: row.get(8)?,
        kind: Cow::Owned(row.get(3)?),
        version: row.get(4)?,
        facts: row.get(5)?,
        content_digest: row.get::<_, Option<[u8; 32]>>(6)?.map(Digest::from_bytes),
        chain: read_digest(row, 7)?,
    })
}

fn read_session(row: &Row<'_>, column: usize, before: Option<&SessionId>) -> rusqlite::Result<Option<SessionId>> {
    let value = row.get_ref(column)?;
    let conversion = |error| rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), Box::new(error));
    Ok(value.as_str_or_null().map_err(conversion)?.map(|name| match before {
        Some(before) if before.as_str() == name => before.clone(),
        Some(_) | None => SessionId::new(name),
    }))
}

/// Gathers `rows` into records.
fn collect_page(mut rows: Rows<'_>) -> rusqlite::Result<Vec<StoredRecord>> {
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let record = read_stored(row, page.last())?;
        page.push(record);
    }
    Ok(page)
}

/// Reads `lsn`, `salt` and `bytes` of `contents` from `column` on, of a row that may not be there.
pub(super) fn read_content_bytes<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<ContentBytes<'a>> {
    if row.get::<_, Option<i64>>(column)?.is_none() {
        return Ok(ContentBytes::Nothing);
    }
    let blob = |column| {
        let value = row.get_ref(column)?;
        let conversion = |error| rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), Box::new(error));
        value.as_blob_or_null().map_err(conversion)
    };
    Ok(match (blob(column + 1)?, blob(column + 2)?) {
        (Some(salt), Some(bytes)) => ContentBytes::Bytes { salt, bytes },
        _ => ContentBytes::Redacted,
    })
}

/// Reads the last record.
pub(super) fn read_head(connection: &Connection) -> rusqlite::Result<LogHead> {
    connection
        .prepare_cached("SELECT lsn, chain FROM events ORDER BY lsn DESC LIMIT 1")?
        .query_row([], |row| Ok(LogHead { lsn: read_lsn(row, 0)?, chain: read_digest(row, 1)? }))
        .optional()
        .map(|head| head.unwrap_or(LogHead::EMPTY))
}

/// Reads up to `limit` records after `after`.
pub(super) fn read_page(connection: &Connection, after: Lsn, limit: usize) -> rusqlite::Result<Vec<StoredRecord>> {
    let sql = if schema::has_keys(connection)? {
        "SELECT lsn, at, session, kind, version, facts, content_digest, chain, key FROM events
         WHERE lsn > ?1 ORDER BY lsn LIMIT ?2"
    } else {
        "SELECT lsn, at, session, kind, version, facts, content_digest, chain, NULL FROM events
         WHERE lsn > ?1 ORDER BY lsn LIMIT ?2"
    };
    collect_page(connection.prepare_cached(sql)?.query([sql_position(after), sql_count(limit)])?)
}

/// Reads up to `limit` records after `after` with their contents as they are stored.
pub(super) fn read_raw(connection: &Connection, after: Lsn, limit: usize) -> rusqlite::Result<Vec<RawRecord>> {
    let key = if schema::has_keys(connection)? { "key" } else { "NULL" };
    let mut statement = connection.prepare(&format!(
        "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, {key}, c.lsn, salt, bytes
         FROM events AS e LEFT JOIN contents AS c ON c.lsn = e.lsn WHERE e.lsn > ?1 ORDER BY e.lsn LIMIT ?2"
    ))?;
    let mut rows = statement.query([sql_position(after), sql_count(limit)])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let content = match read_content_bytes(row, 9)? {
            ContentBytes::Nothing => RawContent::Absent,
            ContentBytes::Redacted => RawContent::Redacted,
            ContentBytes::Bytes { salt, bytes } => RawContent::Bytes { salt: salt.to_vec(), bytes: bytes.to_vec() },
        };
        page.push(RawRecord { stored: read_stored(row, None)?, content });
    }
    Ok(page)
}

/// Converts the facts of up to `limit` records after `after`.
pub(super) fn read_facts<T>(
    connection: &Connection,
    after: Lsn,
    limit: usize,
    convert: fn(RecordFacts<'_>) -> T,
) -> rusqlite::Result<FactsPage<T>> {
    let mut statement = connection.prepare_cached(
        "SELECT lsn, at, session, kind, version, facts FROM events WHERE lsn > ?1 ORDER BY lsn LIMIT ?2",
    )?;
    let mut rows = statement.query([sql_position(after), sql_count(limit)])?;
    let mut page = FactsPage { converted: Vec::new(), last: after };
    let mut before = None;
    while let Some(row) = rows.next()? {
        let session = read_session(row, 2, before.as_ref())?;
        if session.is_some() {
            before.clone_from(&session);
        }
        page.last = read_lsn(row, 0)?;
        page.converted.push(convert(RecordFacts {
            lsn: page.last,
            at: Millis(row.get::<_, i64>(1)?.cast_unsigned()),
            session,
            kind: read_text(row, 3)?,
            version: row.get(4)?,
            facts: read_text(row, 5)?,
        }));
    }
    Ok(page)
}

fn read_text<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a str> {
    let value = row.get_ref(column)?;
    let conversion = |error| rusqlite::Error::FromSqlConversionFailure(column, value.data_type(), Box::new(error));
    value.as_str().map_err(conversion)
}

/// Indexes of records other than their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeIndex {
    Session,
    Key,
}

/// Reads up to `limit` records after `after` that have `value` in `index`.
pub(super) fn read_scoped(
    connection: &Connection,
    index: ScopeIndex,
    value: &str,
    after: Lsn,
    limit: usize,
) -> rusqlite::Result<Vec<StoredRecord>> {
    let Some(sql) = scope_sql(index, schema::has_keys(connection)?) else { return Ok(Vec::new()) };
    collect_page(connection.prepare_cached(sql)?.query(params![sql_position(after), sql_count(limit), value])?)
}

/// Returns the SQL of a scope; `None` if nothing can be found.
pub(super) fn scope_sql(index: ScopeIndex, has_keys: bool) -> Option<&'static str> {
    match (index, has_keys) {
        (ScopeIndex::Session, true) => Some(
            "SELECT lsn, at, session, kind, version, facts, content_digest, chain, key FROM events
             WHERE session = ?3 AND lsn > ?1 ORDER BY lsn LIMIT ?2",
        ),
        (ScopeIndex::Session, false) => Some(
            "SELECT lsn, at, session, kind, version, facts, content_digest, chain, NULL FROM events
             WHERE session = ?3 AND lsn > ?1 ORDER BY lsn LIMIT ?2",
        ),
        (ScopeIndex::Key, true) => Some(
            "SELECT lsn, at, session, kind, version, facts, content_digest, chain, key FROM events
             WHERE key = ?3 AND lsn > ?1 ORDER BY lsn LIMIT ?2",
        ),
        (ScopeIndex::Key, false) => None,
    }
}

/// Reads the contents of `lsns`, or the first of them whose content does not fit its digest.
pub(super) fn read_contents(
    connection: &Connection,
    lsns: &[Lsn],
) -> rusqlite::Result<Result<Vec<Option<StoredContent>>, Lsn>> {
    let mut statement = connection.prepare_cached(
        "SELECT e.content_digest, c.lsn, c.salt, c.bytes FROM events AS e LEFT JOIN contents AS c ON c.lsn = e.lsn
         WHERE e.lsn = ?1",
    )?;
    let mut contents = Vec::with_capacity(lsns.len());
    for lsn in lsns {
        let mut rows = statement.query([sql_position(*lsn)])?;
        let Some(row) = rows.next()? else {
            contents.push(None);
            continue;
        };
        let digest = row.get::<_, Option<[u8; 32]>>(0)?.map(Digest::from_bytes);
        let kept = read_content_bytes(row, 1)?;
        if !kept.matches_digest(digest) {
            return Ok(Err(*lsn));
        }
        contents.push(match kept {
            ContentBytes::Nothing => None,
            ContentBytes::Redacted => Some(StoredContent::Redacted),
            ContentBytes::Bytes { bytes, .. } => match std::str::from_utf8(bytes) {
                Ok(text) => Some(StoredContent::Text(text.into())),
                Err(error) => {
                    return Err(rusqlite::Error::FromSqlConversionFailure(3, Type::Blob, Box::new(error)));
                }
            },
        });
    }
    Ok(Ok(contents))
}

/// Reads the saved snapshot, if it is of `version`, undamaged and of this history.
pub(super) fn read_snapshot(connection: &Connection, version: u32) -> rusqlite::Result<Option<Snapshot>> {
    let found = connection
        .prepare_cached(
            "SELECT s.lsn, s.chain, s.digest, s.bytes FROM snapshots AS s JOIN events AS e ON e.lsn = s.lsn AND e.chain = s.chain
             WHERE s.version = ?1",
        )?
        .query_row([version], |row| {
            let snapshot =
                Snapshot { lsn: read_lsn(row, 0)?, chain: read_digest(row, 1)?, version, bytes: Bytes::from(row.get::<_, Vec<u8>>(3)?) };
            Ok((read_digest(row, 2)? == Digest::hash_bytes(&snapshot.bytes)).then_some(snapshot))
        })
        .optional()?;
    Ok(found.flatten())
}

/// Takes `walk` over the next `limit` records. Breaks when there are no more, or no need of more.
pub(super) fn walk_chain(
    connection: &Connection,
    mut walk: ChainWalk,
    limit: usize,
) -> rusqlite::Result<ControlFlow<ChainWalk, ChainWalk>> {
    let mut statement = connection.prepare_cached(
        "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, NULL, c.lsn, salt, bytes
         FROM events AS e LEFT JOIN contents AS c ON c.lsn = e.lsn WHERE e.lsn > ?1 ORDER BY e.lsn LIMIT ?2",
    )?;
    let mut rows = statement.query([sql_position(walk.last_lsn()), sql_count(limit)])?;
    let mut taken = 0;
    while let Some(row) = rows.next()? {
        walk.check_record(&read_stored(row, None)?, &read_content_bytes(row, 9)?);
        taken += 1;
        if !walk.goes_on() {
            return Ok(ControlFlow::Break(walk));
        }
    }
    Ok(if taken < limit { ControlFlow::Break(walk) } else { ControlFlow::Continue(walk) })
}
