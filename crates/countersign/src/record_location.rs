//! Place of a record: a file, or a database.
//!
//! It must not know what is read or written there.

use std::{fmt, path::PathBuf};

use countersign_config::DatabaseSettings;
use countersign_store::{AnyLog, LogOpenError, LogOptions, PostgresLog, PostgresOptions, SqliteLog};

/// The newest form of events that this program reads.
pub(crate) const EVENT_FORMAT: u32 = 1;

/// Where a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordLocation {
    /// In a SQLite file.
    File(PathBuf),
    /// In a PostgreSQL database.
    Database(DatabaseSettings),
}

impl RecordLocation {
    /// Opens the record for writing, which fails while a gateway writes it.
    pub(crate) fn open_to_write(&self) -> Result<AnyLog, LogOpenError> {
        match self {
            Self::File(path) => Ok(SqliteLog::open(path, LogOptions::default())?.into()),
            Self::Database(settings) => Ok(PostgresLog::open(database_options(settings))?.into()),
        }
    }
}

/// As messages name it: the path, or the key that has the address.
impl fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Database(_) => f.write_str("the database of storage.url"),
        }
    }
}

/// Returns the options of a record in a database for this program.
pub(crate) fn database_options(settings: &DatabaseSettings) -> PostgresOptions {
    PostgresOptions { event_format: EVENT_FORMAT, ..settings.to_options() }
}
