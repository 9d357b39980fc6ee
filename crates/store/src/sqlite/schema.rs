//! The tables of a log, and the identification of a file and its version.
//!
//! It must not know the rows of the tables.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::{
    LogOptions,
    epoch::{self, EpochClaim},
    file::open_error,
    views,
};
use crate::error::LogOpenError;

/// Marks a SQLite file as one of ours: "CSGN".
const APPLICATION: i64 = 0x4353_474e;

/// Statements that bring a file from each version to the next.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];

/// The version that this program reads and writes.
const VERSION: i64 = MIGRATIONS.len() as i64;

/// The first version whose records have keys.
const KEYS: i64 = 2;

/// Bytes that the write-ahead file keeps when it is empty.
const WAL_LIMIT: i64 = 64 * 1024 * 1024;

/// Identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseIdentity {
    /// A file in which nothing was made yet.
    Blank,
    /// A log, of a version that this program knows.
    Log { version: i64, event_format: u32 },
}

/// Identifies the file of `connection`, without changing it.
///
/// # Errors
/// [`LogOpenError`] for any file that is not a log known to this program.
pub(super) fn identify_database(
    connection: &Connection,
    path: &Path,
    event_format: u32,
) -> Result<DatabaseIdentity, LogOpenError> {
    let refused = |error| open_error(path, error);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id").map_err(refused)?;
    let version = number("PRAGMA user_version").map_err(refused)?;
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(refused)?;
    match (application, version, tables) {
        (0, 0, 0) => return Ok(DatabaseIdentity::Blank),
        (APPLICATION, 1.., 1..) => {}
        _ => return Err(LogOpenError::Foreign { path: path.to_owned() }),
    }
    if version > VERSION {
        return Err(LogOpenError::NewerSchema { path: path.to_owned(), found: version, known: VERSION });
    }
    let found = number("SELECT value FROM meta WHERE key = 'event_format'").map_err(refused)?;
    match u32::try_from(found) {
        Ok(found) if found <= event_format => Ok(DatabaseIdentity::Log { version, event_format: found }),
        Ok(_) | Err(_) => Err(LogOpenError::NewerEvents { path: path.to_owned(), found, known: event_format }),
    }
}

/// Reports whether the records of the file of `connection` have keys. A file that is only read stays of the version that it
/// has, and its owner may bring it to the next meanwhile: ask in each transaction.
pub(super) fn has_keys(connection: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    Ok(version >= KEYS)
}

/// Makes the file of `connection` ready to be written: durable commits, the tables of today, views that lack nothing,
/// and the epoch that its owner took while there was no file.
pub(super) fn prepare_connection(
    connection: &mut Connection,
    identity: DatabaseIdentity,
    options: &LogOptions,
    claim: Option<EpochClaim>,
) -> rusqlite::Result<()> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        let reason = format!("the file system offers no write-ahead log, only {mode}");
        return Err(rusqlite::Error::ToSqlConversionFailure(reason.into()));
    }
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_LIMIT, |_| Ok(()))?;
    if let Some(pages) = options.max_pages {
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    match identity {
        // The first record's commit syncs the tables with it. Without that record, losing them loses nothing.
        DatabaseIdentity::Blank => {
            connection.pragma_update(None, "synchronous", "normal")?;
            migrate_schema(connection, 0, options.event_format)?;
        }
        DatabaseIdentity::Log { version, event_format } => {
            connection.pragma_update(None, "synchronous", "full")?;
            if version < VERSION || event_format < options.event_format {
                migrate_schema(connection, version, options.event_format)?;
            }
        }
    }
    // A lost part is folded again.
    connection.pragma_update(None, "synchronous", "normal")?;
    views::catch_up(connection, &options.views);
    // The first record of its owner syncs it; without one, it is not needed.
    if let Some(claim) = claim {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        epoch::claim_epoch(&transaction, claim)?;
        transaction.commit()?;
    }
    connection.pragma_update(None, "synchronous", "full")
}

/// Brings the tables from `version` to today's and marks them with the format of the events to come.
fn migrate_schema(connection: &mut Connection, version: i64, event_format: u32) -> rusqlite::Result<()> {
    let due = usize::try_from(version).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, version))?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in &MIGRATIONS[due..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('event_format', ?1)", [event_format])?;
    transaction.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('probes', 0)", [])?;
    transaction.commit()
}
