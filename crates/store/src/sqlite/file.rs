//! Finds out whether a file is a log that can be opened, opens it, or makes it.
//!
//! It must not know records. A file that is refused is left as it was.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{
    LogOptions,
    epoch::EpochClaim,
    lock::FileLock,
    read_connection::ReadConnection,
    schema::{self, DatabaseIdentity},
};
use crate::error::{ErrorCause, LogOpenError};

/// Time that a statement waits for a lock of another process, such as a backup.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// A log that this process owns and may write.
///
/// The lock is given back last: fields are dropped in this order.
pub(super) struct SqliteLogFile {
    pub(super) connection: Connection,
    pub(super) identity: FileIdentity,
    _lock: FileLock,
}

impl SqliteLogFile {
    /// Opens the log at `path`, which exists.
    pub(super) fn open(path: &Path, options: &LogOptions) -> Result<Self, LogOpenError> {
        let lock = FileLock::lock_path(path)?;
        Self::open_owned(path, options, None, lock)
    }

    /// Makes the log at `path`, and the folders that lead to it, for the eyes of this user only, in the epoch that its
    /// owner took while there was no file.
    ///
    /// If another process made it meanwhile and is gone, it is opened.
    pub(super) fn create_file(
        path: &Path,
        options: &LogOptions,
        claim: Option<EpochClaim>,
    ) -> Result<Self, LogOpenError> {
        let refused = |error: io::Error| io_error(path, error);
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refused)?;
        }
        let lock = FileLock::lock_path(path)?;
        if !path.exists() {
            check_not_parted(path)?;
        }
        // Never opened if it exists: closing it would give up the locks that SQLite holds on it elsewhere in this
        // process.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refused(error)),
        }
        Self::open_owned(path, options, claim, lock)
    }

    /// Opens a log. New records, and those that a killed owner had written but perhaps not synced, are synced first: readers will
    /// act on them.
    fn open_owned(
        path: &Path,
        options: &LogOptions,
        claim: Option<EpochClaim>,
        lock: FileLock,
    ) -> Result<Self, LogOpenError> {
        let refused = |error| open_error(path, error);
        let refused_io = |error| io_error(path, error);
        let wal = path_beside(path, "-wal");
        let left_open = wal.metadata().is_ok_and(|left| left.len() > 0);
        if left_open {
            sync_path(&wal).map_err(refused_io)?;
        }
        let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(refused)?;
        // Until it is known that this is a log of ours, closing must not tidy it up.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(refused)?;
        let identity = schema::identify_database(&connection, path, options.event_format)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(refused)?;
        schema::prepare_connection(&mut connection, identity, options, claim).map_err(refused)?;
        if left_open || identity == DatabaseIdentity::Blank {
            sync_folders(path).map_err(refused_io)?;
        }
        let place = FileIdentity::from_path(path).map_err(refused_io)?;
        Ok(Self { connection, identity: place, _lock: lock })
    }

    /// Fails if the file was removed or replaced: writes to it would be gone with this process.
    pub(super) fn check_identity(&self, path: &Path) -> io::Result<()> {
        self.identity.check_path(path)
    }
}

/// Device and number, which distinguish a file from another one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity(u64, u64);

impl FileIdentity {
    fn from_path(path: &Path) -> io::Result<Self> {
        path.metadata().map(|metadata| Self(metadata.dev(), metadata.ino()))
    }

    /// Fails if there is another file at `path` now, or none.
    pub(super) fn check_path(self, path: &Path) -> io::Result<()> {
        if Self::from_path(path)? == self {
            Ok(())
        } else {
            Err(io::Error::other("the file was replaced while it was in use"))
        }
    }
}

/// Fails if there is the end of a log next to `path`, which does not exist: SQLite would write over it. A new log has its
/// file before it has an end.
pub(super) fn check_not_parted(path: &Path) -> Result<(), LogOpenError> {
    let beside = path_beside(path, "-wal");
    if beside.metadata().is_ok_and(|left| left.len() > 0) {
        return Err(LogOpenError::Parted { path: path.to_owned(), beside });
    }
    Ok(())
}

/// Opens the log at `path` for reading. `None` if it holds nothing yet.
pub(super) fn open_to_read(path: &Path, event_format: u32) -> Result<Option<ReadConnection>, LogOpenError> {
    let reader = ReadConnection::open(path)?;
    let identity = schema::identify_database(&reader.connection, path, event_format);
    reader.check_unchanged(path).map_err(|error| io_error(path, error))?;
    match identity? {
        DatabaseIdentity::Blank => Ok(None),
        DatabaseIdentity::Log { .. } => Ok(Some(reader)),
    }
}

pub(super) fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Returns the path of a file that belongs to the log and whose name ends in `suffix`.
pub(super) fn path_beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes sure that the way to a new file survives a power cut. A folder that may not be read was not made by us.
fn sync_folders(path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        match sync_path(folder) {
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {}
            other => other?,
        }
    }
    Ok(())
}

fn sync_path(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(super) fn io_error(path: &Path, error: io::Error) -> LogOpenError {
    LogOpenError::Io { path: path.to_owned(), cause: ErrorCause::at_path(path, error) }
}

/// Tells damage from a machine that refuses.
pub(super) fn open_error(path: &Path, error: rusqlite::Error) -> LogOpenError {
    let damaged = is_damage(&error);
    let (path, cause) = (path.to_owned(), ErrorCause::at_path(path, error));
    if damaged { LogOpenError::Corrupt { path, cause } } else { LogOpenError::Io { path, cause } }
}

/// Reports whether `error` says that the stored bytes are not a log.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::SqlInputError { .. } => true,
        error => matches!(
            error.sqlite_error_code(),
            // The last is "no such table" and the like.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown)
        ),
    }
}
