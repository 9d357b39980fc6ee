//! The epoch of a log in a file: a row of `meta`, which files of older programs lack.
//!
//! It must not know what is appended.

use countersign_core::id::Lsn;
use rusqlite::{Connection, OptionalExtension};

use super::query;
use crate::record::Epoch;

/// Reads the current epoch.
pub(super) fn current(connection: &Connection) -> rusqlite::Result<Epoch> {
    let found = connection
        .prepare_cached("SELECT value FROM meta WHERE key = 'epoch'")?
        .query_row([], |row| row.get::<_, i64>(0))
        .optional()?;
    Ok(found.map_or(Epoch::NONE, |value| Epoch(value.cast_unsigned())))
}

/// Begins the next epoch, within the caller's transaction.
pub(super) fn advance(connection: &Connection) -> rusqlite::Result<Epoch> {
    let next = current(connection)?.next();
    set(connection, next)?;
    Ok(next)
}

/// Gives a new file the epoch that its owner took before there was a file. If another process wrote or took over meanwhile,
/// that epoch is fenced by a higher one.
pub(super) fn claim(connection: &Connection, claimed: Epoch) -> rusqlite::Result<()> {
    let (found, head) = (current(connection)?, query::head(connection)?.lsn);
    let is_untouched = found == Epoch::NONE && head == Lsn(0);
    set(connection, if is_untouched { claimed } else { found.max(claimed).next() })
}

fn set(connection: &Connection, epoch: Epoch) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('epoch', ?1)")?
        .execute([epoch.0.cast_signed()])
        .map(drop)
}
