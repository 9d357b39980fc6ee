//! Queries of a log, and the conversion of a row to a record.
//!
//! It must not write, and must not know which connection it is on.

use std::{borrow::Cow, collections::HashMap, ops::ControlFlow, pin::pin};

use bytes::Bytes;
use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
    time::Millis,
};
use deadpool_postgres::ClientWrapper;
use futures_util::TryStreamExt as _;
use tokio_postgres::{Error, Row, types::ToSql};

use super::{
    session::{PARTITION, head_of},
    view_rows::end_of_prefix,
};
use crate::{
    record::{Epoch, FactsPage, LogHead, ReadScope, RecordFacts, Snapshot, StoredContent, StoredRecord},
    transfer::{RawContent, RawRecord},
    verify::{ChainWalk, ContentBytes},
};

/// Converts a position to the database's integers. Those that it cannot count come after every record.
pub(super) fn sql_position(lsn: Lsn) -> i64 {
    i64::try_from(lsn.0).unwrap_or(i64::MAX)
}

/// Converts a number of rows to the database's integers.
fn sql_count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn digest(bytes: &[u8]) -> Digest {
    // The table has no other lengths.
    bytes.try_into().map_or(crate::chain::GENESIS, Digest::from_bytes)
}

/// Reads the columns of `events`: position, time, session, kind, version, facts, digest, chain and key.
///
/// The session's name is shared with `before`, since records of one session mostly follow one another.
pub(super) fn stored_record(row: &Row, before: Option<&StoredRecord>) -> Result<StoredRecord, Error> {
    Ok(StoredRecord {
        lsn: Lsn(row.try_get::<_, i64>(0)?.cast_unsigned()),
        at: Millis(row.try_get::<_, i64>(1)?.cast_unsigned()),
        session: session(row, 2, before.and_then(|before| before.session.as_ref()))?,
        kind: Cow::Owned(row.try_get(3)?),
        version: version(row, 4)?,
        facts: row.try_get::<_, &str>(5)?.into(),
        content_digest: row.try_get::<_, Option<&[u8]>>(6)?.map(digest),
        chain: digest(row.try_get(7)?),
        key: row.try_get::<_, Option<&[u8]>>(8)?.map(|key| String::from_utf8_lossy(key).into()),
    })
}

fn session(row: &Row, column: usize, before: Option<&SessionId>) -> Result<Option<SessionId>, Error> {
    Ok(row.try_get::<_, Option<&[u8]>>(column)?.map(|name| match before {
        Some(before) if before.as_str().as_bytes() == name => before.clone(),
        Some(_) | None => SessionId::new(&*String::from_utf8_lossy(name)),
    }))
}

fn version(row: &Row, column: usize) -> Result<u16, Error> {
    row.try_get::<_, i32>(column).map(|version| u16::try_from(version).unwrap_or(u16::MAX))
}

/// Reads `lsn`, `salt` and `bytes` of `contents` from `column` on, of a row that may not be there.
pub(super) fn content_bytes(row: &Row, column: usize) -> Result<ContentBytes<'_>, Error> {
    if row.try_get::<_, Option<i64>>(column)?.is_none() {
        return Ok(ContentBytes::Nothing);
    }
    Ok(match (row.try_get(column + 1)?, row.try_get(column + 2)?) {
        (Some(salt), Some(bytes)) => ContentBytes::Bytes { salt, bytes },
        (_, _) => ContentBytes::Redacted,
    })
}

/// Reads the epoch of the partition's owner.
pub(super) async fn current_epoch(client: &ClientWrapper) -> Result<Epoch, Error> {
    let statement = client.prepare_cached("SELECT epoch FROM countersign.partitions WHERE partition = $1").await?;
    let row = client.query_one(&statement, &[&PARTITION]).await?;
    Ok(Epoch(row.try_get::<_, i64>(0)?.cast_unsigned()))
}

/// Reads the last record.
pub(super) async fn read_head(client: &ClientWrapper) -> Result<LogHead, Error> {
    let statement = client
        .prepare_cached("SELECT lsn, chain FROM countersign.events WHERE partition = $1 ORDER BY lsn DESC LIMIT 1")
        .await?;
    let row = client.query_opt(&statement, &[&PARTITION]).await?;
    row.map_or(Ok(LogHead::EMPTY), |row| head_of(&row, 0))
}

/// Reads up to `limit` records after `after`.
pub(super) async fn read_page(client: &ClientWrapper, after: Lsn, limit: usize) -> Result<Vec<StoredRecord>, Error> {
    let statement = client
        .prepare_cached(
            "SELECT lsn, at, session, kind, version, facts, content_digest, chain, key FROM countersign.events
             WHERE partition = $1 AND lsn > $2 ORDER BY lsn LIMIT $3",
        )
        .await?;
    collect_records(client.query(&statement, &[&PARTITION, &sql_position(after), &sql_count(limit)]).await?)
}

fn collect_records(rows: Vec<Row>) -> Result<Vec<StoredRecord>, Error> {
    let mut page: Vec<StoredRecord> = Vec::with_capacity(rows.len());
    for row in rows {
        let record = stored_record(&row, page.last())?;
        page.push(record);
    }
    Ok(page)
}

/// Reads up to `limit` records after `after` with their contents as they are stored.
pub(super) async fn read_raw(client: &ClientWrapper, after: Lsn, limit: usize) -> Result<Vec<RawRecord>, Error> {
    let statement = client
        .prepare_cached(
            "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, key, c.lsn, salt, bytes
             FROM countersign.events AS e
             LEFT JOIN countersign.contents AS c ON c.partition = e.partition AND c.lsn = e.lsn
             WHERE e.partition = $1 AND e.lsn > $2 ORDER BY e.lsn LIMIT $3",
        )
        .await?;
    let rows = client.query(&statement, &[&PARTITION, &sql_position(after), &sql_count(limit)]).await?;
    let record = |row: &Row| {
        let content = match content_bytes(row, 9)? {
            ContentBytes::Nothing => RawContent::Absent,
            ContentBytes::Redacted => RawContent::Redacted,
            ContentBytes::Bytes { salt, bytes } => RawContent::Bytes { salt: salt.to_vec(), bytes: bytes.to_vec() },
        };
        Ok(RawRecord { stored: stored_record(row, None)?, content })
    };
    rows.iter().map(record).collect()
}

/// Converts the facts of up to `limit` records after `after`.
pub(super) async fn read_facts<T>(
    client: &ClientWrapper,
    after: Lsn,
    limit: usize,
    convert: fn(RecordFacts<'_>) -> T,
) -> Result<FactsPage<T>, Error> {
    let statement = client
        .prepare_cached(
            "SELECT lsn, at, session, kind, version, facts FROM countersign.events
             WHERE partition = $1 AND lsn > $2 ORDER BY lsn LIMIT $3",
        )
        .await?;
    let rows = client.query(&statement, &[&PARTITION, &sql_position(after), &sql_count(limit)]).await?;
    let mut page = FactsPage { converted: Vec::with_capacity(rows.len()), last: after };
    let mut before = None;
    for row in rows {
        let session = session(&row, 2, before.as_ref())?;
        if session.is_some() {
            before.clone_from(&session);
        }
        page.last = Lsn(row.try_get::<_, i64>(0)?.cast_unsigned());
        page.converted.push(convert(RecordFacts {
            lsn: page.last,
            at: Millis(row.try_get::<_, i64>(1)?.cast_unsigned()),
            session,
            kind: row.try_get(3)?,
            version: version(&row, 4)?,
            facts: row.try_get(5)?,
        }));
    }
    Ok(page)
}

/// Reads up to `limit` records of `scope` after `after`.
pub(super) async fn read_scope(
    client: &ClientWrapper,
    scope: ReadScope<'_>,
    after: Lsn,
    limit: usize,
) -> Result<Vec<StoredRecord>, Error> {
    let (sql, value) = match scope {
        ReadScope::Session(session) => (
            "SELECT lsn, at, session, kind, version, facts, content_digest, chain, key FROM countersign.events
             WHERE partition = $1 AND sha256(session) = sha256($4) AND lsn > $2 ORDER BY lsn LIMIT $3",
            session.as_str(),
        ),
        ReadScope::Key(key) => (
            "SELECT lsn, at, session, kind, version, facts, content_digest, chain, key FROM countersign.events
             WHERE partition = $1 AND sha256(key) = sha256($4) AND lsn > $2 ORDER BY lsn LIMIT $3",
            key,
        ),
    };
    let statement = client.prepare_cached(sql).await?;
    let parameters: [&(dyn ToSql + Sync); 4] = [&PARTITION, &sql_position(after), &sql_count(limit), &value.as_bytes()];
    collect_records(client.query(&statement, &parameters).await?)
}

/// Reads the contents of `lsns`, or the first of them whose content does not fit its digest.
pub(super) async fn read_contents(
    client: &ClientWrapper,
    lsns: &[Lsn],
) -> Result<Result<Vec<Option<StoredContent>>, Lsn>, Error> {
    let statement = client
        .prepare_cached(
            "SELECT e.lsn, e.content_digest, c.lsn, c.salt, c.bytes FROM countersign.events AS e
             LEFT JOIN countersign.contents AS c ON c.partition = e.partition AND c.lsn = e.lsn
             WHERE e.partition = $1 AND e.lsn = ANY($2)",
        )
        .await?;
    let positions: Vec<i64> = lsns.iter().map(|lsn| sql_position(*lsn)).collect();
    let rows = client.query(&statement, &[&PARTITION, &positions]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let lsn = Lsn(row.try_get::<_, i64>(0)?.cast_unsigned());
        let kept = content_bytes(row, 2)?;
        let fits = kept.matches_digest(row.try_get::<_, Option<&[u8]>>(1)?.map(digest));
        let content = match kept {
            ContentBytes::Nothing => None,
            ContentBytes::Redacted => Some(StoredContent::Redacted),
            ContentBytes::Bytes { bytes, .. } => Some(StoredContent::Text(String::from_utf8_lossy(bytes).into())),
        };
        found.insert(lsn, fits.then_some(content));
    }
    let content = |lsn: &Lsn| match found.get(lsn) {
        None => Ok(None),
        Some(Some(content)) => Ok(content.clone()),
        Some(None) => Err(*lsn),
    };
    Ok(lsns.iter().map(content).collect())
}

/// Reads the saved snapshot, if it is of `version`, undamaged and of this history.
pub(super) async fn read_snapshot(client: &ClientWrapper, version: u32) -> Result<Option<Snapshot>, Error> {
    let statement = client
        .prepare_cached(
            "SELECT s.lsn, s.chain, s.digest, s.bytes FROM countersign.snapshots AS s
             JOIN countersign.events AS e ON e.partition = s.partition AND e.lsn = s.lsn AND e.chain = s.chain
             WHERE s.partition = $1 AND s.version = $2",
        )
        .await?;
    let Some(row) = client.query_opt(&statement, &[&PARTITION, &i64::from(version)]).await? else { return Ok(None) };
    let LogHead { lsn, chain } = head_of(&row, 0)?;
    let snapshot = Snapshot { lsn, chain, version, bytes: Bytes::copy_from_slice(row.try_get(3)?) };
    Ok((digest(row.try_get(2)?) == Digest::hash_bytes(&snapshot.bytes)).then_some(snapshot))
}

/// Reads up to `limit` rows of a view whose keys begin with `prefix` and come after `after`. `None` if it is not in step.
pub(super) async fn read_view(
    client: &ClientWrapper,
    (name, version): (&str, u32),
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Option<Vec<(String, Bytes)>>, Error> {
    // One statement, so that the rows are of the head that is compared.
    let statement = client
        .prepare_cached(
            "WITH step AS (
                 SELECT EXISTS (
                     SELECT 1 FROM countersign.view_positions AS p
                     LEFT JOIN LATERAL (
                         SELECT lsn, chain FROM countersign.events WHERE partition = p.partition ORDER BY lsn DESC LIMIT 1
                     ) AS e ON true
                     WHERE p.partition = $1 AND p.name = $2 AND p.version = $3
                     AND p.lsn = coalesce(e.lsn, 0) AND p.chain = coalesce(e.chain, p.chain)
                 ) AS taken
             )
             SELECT step.taken, v.key, v.value FROM step LEFT JOIN LATERAL (
                 SELECT key, value FROM countersign.views
                 WHERE partition = $1 AND name = $2
                 AND substring(key from 1 for 512) >= substring($4::bytea from 1 for 512) AND key >= $4
                 AND ($5::bytea IS NULL OR key < $5) AND ($6::bytea IS NULL OR key > $6)
                 ORDER BY substring(key from 1 for 512), key LIMIT $7
             ) AS v ON step.taken
             ORDER BY v.key",
        )
        .await?;
    let start = after.filter(|after| *after >= prefix).unwrap_or(prefix);
    let parameters: [&(dyn ToSql + Sync); 7] = [
        &PARTITION,
        &name,
        &i64::from(version),
        &start.as_bytes(),
        &end_of_prefix(prefix),
        &after.map(str::as_bytes),
        &sql_count(limit),
    ];
    let rows = client.query(&statement, &parameters).await?;
    let mut page = Vec::with_capacity(rows.len());
    for row in &rows {
        if !row.try_get::<_, bool>(0)? {
            return Ok(None);
        }
        if let (Some(key), Some(value)) = (row.try_get::<_, Option<&[u8]>>(1)?, row.try_get::<_, Option<&[u8]>>(2)?) {
            page.push((String::from_utf8_lossy(key).into_owned(), Bytes::copy_from_slice(value)));
        }
    }
    Ok(Some(page))
}

/// Takes `walk` over the next `limit` records. Breaks when there are no more, or no need of more.
pub(super) async fn walk_chain(
    client: &ClientWrapper,
    mut walk: ChainWalk,
    limit: usize,
) -> Result<ControlFlow<ChainWalk, ChainWalk>, Error> {
    let statement = client
        .prepare_cached(
            "SELECT e.lsn, at, session, kind, version, facts, content_digest, chain, NULL::bytea, c.lsn, salt, bytes
             FROM countersign.events AS e
             LEFT JOIN countersign.contents AS c ON c.partition = e.partition AND c.lsn = e.lsn
             WHERE e.partition = $1 AND e.lsn > $2 ORDER BY e.lsn LIMIT $3",
        )
        .await?;
    let parameters: [&(dyn ToSql + Sync); 3] = [&PARTITION, &sql_position(walk.last_lsn()), &sql_count(limit)];
    let mut rows = pin!(client.query_raw(&statement, parameters).await?);
    let mut taken = 0;
    while let Some(row) = rows.try_next().await? {
        walk.check_record(&stored_record(&row, None)?, &content_bytes(&row, 9)?);
        taken += 1;
        if !walk.goes_on() {
            return Ok(ControlFlow::Break(walk));
        }
    }
    Ok(if taken < limit { ControlFlow::Break(walk) } else { ControlFlow::Continue(walk) })
}
