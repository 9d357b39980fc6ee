//! The epoch of a log in a file: a row of `meta`, which files of older programs lack.
//!
//! It must not know the appended records.

use countersign_core::id::Lsn;
use rusqlite::{Connection, OptionalExtension};

use super::query;
use crate::record::Epoch;

/// Reads the current epoch.
pub(super) fn current_epoch(connection: &Connection) -> rusqlite::Result<Epoch> {
    let found = connection
        .prepare_cached("SELECT value FROM meta WHERE key = 'epoch'")?
        .query_row([], |row| row.get::<_, i64>(0))
        .optional()?;
    Ok(found.map_or(Epoch::NONE, |value| Epoch(value.cast_unsigned())))
}

/// Begins the next epoch, within the caller's transaction.
pub(super) fn advance_epoch(connection: &Connection) -> rusqlite::Result<Epoch> {
    let next = current_epoch(connection)?.next();
    set_epoch(connection, next)?;
    Ok(next)
}

/// The epoch that an owner took before there was a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochClaim {
    pub(super) epoch: Epoch,
    /// True if this owner tried to make the file before, so that the epoch in it may be its own.
    pub(super) is_repeated: bool,
}

/// Gives a new file the epoch that its owner took before there was a file. If another process wrote or took over meanwhile,
/// that epoch is fenced by a higher one.
pub(super) fn claim_epoch(
    connection: &Connection,
    EpochClaim { epoch, is_repeated }: EpochClaim,
) -> rusqlite::Result<()> {
    let (found, head) = (current_epoch(connection)?, query::read_head(connection)?.lsn);
    let is_own = found == Epoch::NONE || is_repeated && found == epoch;
    set_epoch(connection, if is_own && head == Lsn(0) { epoch } else { found.max(epoch).next() })
}

fn set_epoch(connection: &Connection, epoch: Epoch) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('epoch', ?1)")?
        .execute([epoch.0.cast_signed()])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::{Epoch, EpochClaim, claim_epoch, current_epoch, set_epoch};
    use crate::sqlite::{LogOptions, SqliteLogFile};

    #[test]
    fn an_owner_knows_its_own_epoch_again_and_no_other() {
        for (case, in_file, is_repeated, want) in [
            ("a new file", None, false, 1),
            ("a try that failed behind the commit", Some(1), true, 1),
            ("a try that failed before it", None, true, 1),
            ("an epoch of another process", Some(1), false, 2),
            ("another process behind a failed try", Some(2), true, 3),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = SqliteLogFile::create_file(&folder.path().join("log.db"), &LogOptions::default(), None).unwrap();
            if let Some(epoch) = in_file {
                set_epoch(&file.connection, Epoch(epoch)).unwrap();
            }
            claim_epoch(&file.connection, EpochClaim { epoch: Epoch(1), is_repeated }).unwrap();
            assert_eq!(current_epoch(&file.connection).unwrap(), Epoch(want), "{case}");
        }
    }
}
