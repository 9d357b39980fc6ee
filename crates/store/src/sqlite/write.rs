//! Writes to a log, statement by statement, and the meaning of a failed commit.
//!
//! It must not know threads, queues or who waits.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    digest::Digest,
    id::{Lsn, SessionId},
};
use rusqlite::{Connection, ErrorCode, params};

use super::{
    epoch,
    file::BUSY,
    query,
    views::{self, WrittenRecord},
};
use crate::{
    chain::{self, ChainLink, SALT_SIZE},
    error::AppendError,
    record::{Batch, Epoch, LogHead, LogRecord, Snapshot, StoredRecord},
    transfer::{RawContent, RawRecord},
    view::LogView,
};

/// Time that a redaction waits for readers. Every append waits for it, and the caller can try again.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(250);

/// Progress of a failed write.
#[derive(Debug)]
pub(super) enum TransactionError {
    /// Not to the commit, or the commit itself was refused: nothing was written.
    Before(rusqlite::Error),
    /// Into the commit: nothing can be seen of it, but a restart might find it until something else is written in its
    /// place.
    Commit(rusqlite::Error),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Before(error)
    }
}

/// Writes those of `batches` that are of the current epoch and whose expected position is the head when their turn comes,
/// and folds them into `views`, in one transaction.
pub(super) fn append_batches<'a>(
    connection: &Connection,
    views: &[Arc<dyn LogView>],
    batches: impl IntoIterator<Item = (Epoch, Lsn, &'a Batch)>,
) -> Result<Vec<Result<Lsn, AppendError>>, TransactionError> {
    run_transaction(connection, |connection| {
        let current = epoch::current_epoch(connection)?;
        let before = query::read_head(connection)?;
        let mut head = before;
        let mut answers = Vec::new();
        let mut written = (!views.is_empty()).then(Vec::new);
        for (epoch, expected, batch) in batches {
            let answer = batch.check_turn((epoch, expected), (current, head.lsn));
            if answer.is_ok() {
                head = insert_batch(connection, head, batch, written.as_mut())?;
            }
            answers.push(answer.map(|()| head.lsn));
        }
        views::follow_views(connection, views, before, &written.unwrap_or_default())?;
        Ok(answers)
    })
}

fn insert_batch(
    connection: &Connection,
    mut head: LogHead,
    batch: &Batch,
    mut written: Option<&mut Vec<WrittenRecord>>,
) -> rusqlite::Result<LogHead> {
    for record in &batch.0 {
        let lsn = head.lsn.next();
        let salted = record.content.as_deref().map(salted_digest).transpose()?;
        let content_digest = salted.map(|(_, digest)| digest);
        let chain = chain::chain_digest(&head.chain, &ChainLink::of_record(record, lsn, content_digest));
        insert_record(connection, record, lsn, content_digest, chain)?;
        if let (Some(text), Some((salt, _))) = (record.content.as_deref(), salted) {
            connection
                .prepare_cached("INSERT INTO contents (lsn, salt, bytes) VALUES (?1, ?2, ?3)")?
                .execute(params![query::sql_position(lsn), salt, text.as_bytes()])?;
        }
        if let Some(written) = &mut written {
            let stored = StoredRecord::new(record, lsn, content_digest, chain);
            written.push(WrittenRecord { stored, content: record.content.clone() });
        }
        head = LogHead { lsn, chain };
    }
    Ok(head)
}

fn insert_record(
    connection: &Connection,
    record: &LogRecord,
    lsn: Lsn,
    content_digest: Option<Digest>,
    chain: Digest,
) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO events (lsn, at, session, kind, version, facts, content_digest, chain, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            query::sql_position(lsn),
            // SQLite's numbers are signed; the bits are the same and come back as they were.
            record.at.0.cast_signed(),
            record.session.as_ref().map(SessionId::as_str),
            record.kind,
            record.version,
            &*record.facts,
            content_digest.as_ref().map(Digest::as_bytes),
            chain.as_bytes(),
            record.key,
        ])
}

/// Writes records of another log as they are. False if the log does not end at `expected`.
pub(super) fn import_raw(
    connection: &Connection,
    expected: LogHead,
    records: &[RawRecord],
) -> Result<bool, TransactionError> {
    run_transaction(connection, |connection| {
        if query::read_head(connection)? != expected {
            return Ok(false);
        }
        for RawRecord { stored, content } in records {
            connection
                .prepare_cached(
                    "INSERT INTO events (lsn, at, session, kind, version, facts, content_digest, chain, key)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                )?
                .execute(params![
                    query::sql_position(stored.lsn),
                    stored.at.0.cast_signed(),
                    stored.session.as_ref().map(SessionId::as_str),
                    stored.kind,
                    stored.version,
                    &*stored.facts,
                    stored.content_digest.as_ref().map(Digest::as_bytes),
                    stored.chain.as_bytes(),
                    stored.key,
                ])?;
            let (salt, bytes) = match content {
                RawContent::Absent => continue,
                RawContent::Redacted => (None, None),
                RawContent::Bytes { salt, bytes } => (Some(salt), Some(bytes)),
            };
            connection
                .prepare_cached("INSERT INTO contents (lsn, salt, bytes) VALUES (?1, ?2, ?3)")?
                .execute(params![query::sql_position(stored.lsn), salt, bytes])?;
        }
        Ok(true)
    })
}

fn salted_digest(text: &str) -> rusqlite::Result<([u8; SALT_SIZE], Digest)> {
    let mut salt = [0; SALT_SIZE];
    getrandom::fill(&mut salt).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.to_string().into()))?;
    Ok((salt, chain::content_digest(&salt, text.as_bytes())))
}

/// Keeps `snapshot` in place of the one before.
pub(super) fn save_snapshot(connection: &Connection, snapshot: &Snapshot) -> Result<(), TransactionError> {
    run_transaction(connection, |connection| {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO snapshots (slot, lsn, chain, version, digest, bytes) VALUES (0, ?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                query::sql_position(snapshot.lsn),
                snapshot.chain.as_bytes(),
                snapshot.version,
                Digest::hash_bytes(&snapshot.bytes).as_bytes(),
                &*snapshot.bytes,
            ])?;
        Ok(())
    })
}

/// Empties the contents of `lsns`, also where `views` kept them, and says how many there were.
pub(super) fn redact_contents(
    connection: &Connection,
    views: &[Arc<dyn LogView>],
    lsns: &[Lsn],
) -> Result<usize, TransactionError> {
    run_transaction(connection, |connection| {
        let mut statement = connection
            .prepare_cached("UPDATE contents SET salt = NULL, bytes = NULL WHERE lsn = ?1 AND bytes IS NOT NULL")?;
        let removed =
            lsns.iter().map(|lsn| statement.execute([query::sql_position(*lsn)])).sum::<Result<usize, _>>()?;
        if removed > 0 {
            views::forget_contents(connection, views)?;
        }
        Ok(removed)
    })
}

/// Begins the next epoch.
pub(super) fn take_over(connection: &Connection) -> Result<Epoch, TransactionError> {
    run_transaction(connection, epoch::advance_epoch)
}

/// Writes bytes that are no record. Anything left by an unsettled commit is overwritten by it.
pub(super) fn probe_write(connection: &Connection) -> Result<(), TransactionError> {
    run_transaction(connection, |connection| {
        connection.prepare_cached("UPDATE meta SET value = value + 1 WHERE key = 'probes'")?.execute([])?;
        Ok(())
    })
}

/// Moves everything from the write-ahead file into the log and empties it. False if a reader was in the way for longer
/// than [`CHECKPOINT_TIMEOUT`].
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(CHECKPOINT_TIMEOUT)?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(BUSY)?;
    busy.map(|busy| busy == 0)
}

/// Does `work` in one transaction.
pub(super) fn run_transaction<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, TransactionError> {
    roll_back(connection)?;
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let done = match work(connection) {
        Ok(done) => done,
        Err(error) => {
            // The first error is the one to report; an open transaction is rolled back before the next write.
            let _ = roll_back(connection);
            return Err(TransactionError::Before(error));
        }
    };
    match connection.prepare_cached("COMMIT")?.execute([]) {
        Ok(_) => Ok(done),
        Err(error) => Err(judge_commit(connection, error)),
    }
}

/// Judges a failed commit. One that SQLite refused is still open. One that found no space stopped before its last page, without which
/// the others do not count. The outcome of any other is unknown.
fn judge_commit(connection: &Connection, error: rusqlite::Error) -> TransactionError {
    let open = !connection.is_autocommit();
    let full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    if open {
        let _ = roll_back(connection);
    }
    if open || full { TransactionError::Before(error) } else { TransactionError::Commit(error) }
}

fn roll_back(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() { Ok(()) } else { connection.execute_batch("ROLLBACK") }
}
