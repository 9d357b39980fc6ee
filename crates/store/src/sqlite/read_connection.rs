//! A connection that only reads, to a log that may have an owner, or that is in a folder where nothing can be written.
//!
//! It must not know records. SQLite needs an index next to a log to share it with its owner. Where it cannot create that index, a
//! log without an owner is read without locks, and each read checks that it stayed so.

use std::{
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::file::{connect, io_error, open_error, path_beside};
use crate::error::LogOpenError;

/// Files of SQLite next to a log whose content is part of it: the write-ahead file, and what an interrupted change left.
const PARTS: [&str; 2] = ["-wal", "-journal"];

/// A connection that only reads.
pub(super) struct ReadConnection {
    pub(super) connection: Connection,
    /// The file as it was before a connection without locks read it. None for one with locks.
    unlocked: Option<FileStamp>,
}

impl ReadConnection {
    /// Opens a connection to the log at `path`, which exists.
    pub(super) fn open(path: &Path) -> Result<Self, LogOpenError> {
        let refused = match connect_shared(path) {
            Ok(connection) => return Ok(Self { connection, unlocked: None }),
            Err(error) => error,
        };
        // Taken before its parts are looked for: what an owner does after this changes it.
        let stamp = FileStamp::read(path).map_err(|error| io_error(path, error))?;
        let part = filled_part(path).map_err(|error| io_error(path, error))?;
        match plan_retry(&refused, part) {
            RetryPlan::Unlocked => {
                let connection = connect_unlocked(path).map_err(|error| open_error(path, error))?;
                Ok(Self { connection, unlocked: Some(stamp) })
            }
            RetryPlan::Refuse { beside } => Err(LogOpenError::Unindexed { path: path.to_owned(), beside }),
            RetryPlan::Fail => Err(open_error(path, refused)),
        }
    }

    /// Fails if a process wrote to the file at `path` since this connection was opened without locks: what it read since may be
    /// a mixture.
    pub(super) fn check_unchanged(&self, path: &Path) -> io::Result<()> {
        let Some(stamp) = &self.unlocked else { return Ok(()) };
        if FileStamp::read(path)? == *stamp && filled_part(path)?.is_none() {
            Ok(())
        } else {
            Err(io::Error::other("another process wrote to the file while it was read; read it again"))
        }
    }
}

/// What is done about a connection that was refused.
#[derive(Debug, PartialEq, Eq)]
enum RetryPlan {
    /// The log is whole in its own file: it is read without locks.
    Unlocked,
    /// Its last records are in another file, which SQLite cannot index where nothing can be written.
    Refuse { beside: PathBuf },
    /// The error has another cause.
    Fail,
}

/// Decides what is done after `refused`. `part` is a file next to the log that is part of it.
fn plan_retry(refused: &rusqlite::Error, part: Option<PathBuf>) -> RetryPlan {
    let extended = refused.sqlite_error().map(|error| error.extended_code);
    let is_no_index = refused.sqlite_error_code() == Some(ErrorCode::CannotOpen)
        || extended == Some(ffi::SQLITE_READONLY_DIRECTORY)
        || extended == Some(ffi::SQLITE_READONLY_ROLLBACK);
    match part {
        _ if !is_no_index => RetryPlan::Fail,
        Some(beside) => RetryPlan::Refuse { beside },
        None => RetryPlan::Unlocked,
    }
}

/// Identity, length and times of a file. A checkpoint of an owner changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    identity: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn read(path: &Path) -> io::Result<Self> {
        let found = path.metadata()?;
        Ok(Self {
            identity: (found.dev(), found.ino()),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Returns the file next to the log at `path` that has a part of its records.
fn filled_part(path: &Path) -> io::Result<Option<PathBuf>> {
    for suffix in PARTS {
        let beside = path_beside(path, suffix);
        match beside.metadata() {
            Ok(found) if found.len() > 0 => return Ok(Some(beside)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn connect_shared(path: &Path) -> rusqlite::Result<Connection> {
    prepare(connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?)
}

/// Opens a file that SQLite takes for one that nobody changes: it creates nothing, and takes no lock.
fn connect_unlocked(path: &Path) -> rusqlite::Result<Connection> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    prepare(connect(Path::new(&immutable_uri(&path)), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)?)
}

/// Reads once: SQLite opens the files of a connection when it first reads.
fn prepare(connection: Connection) -> rusqlite::Result<Connection> {
    connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?;
    connection.set_prepared_statement_cache_capacity(8);
    Ok(connection)
}

/// Returns the name of an absolute path for SQLite, as a file that nobody changes.
fn immutable_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri.push_str("?immutable=1");
    uri
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use rusqlite::{Connection, ffi};

    use super::{FileStamp, ReadConnection, RetryPlan, connect_unlocked, immutable_uri, plan_retry};

    fn refusal(extended: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(extended), None)
    }

    /// Makes a file with one row. Its owner leaves it alone in its folder when it is dropped.
    fn make_file(path: &Path) -> Connection {
        let owner = Connection::open(path).unwrap();
        owner.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
        owner
    }

    fn unlocked(path: &Path) -> ReadConnection {
        let stamp = FileStamp::read(path).unwrap();
        ReadConnection { connection: connect_unlocked(path).unwrap(), unlocked: Some(stamp) }
    }

    #[test]
    fn only_a_log_without_parts_that_cannot_be_shared_is_read_without_locks() {
        let wal = || Some(PathBuf::from("log.db-wal"));
        let refuse = || RetryPlan::Refuse { beside: PathBuf::from("log.db-wal") };
        for (case, code, part, want) in [
            ("read-only mount", ffi::SQLITE_CANTOPEN, None, RetryPlan::Unlocked),
            ("folder of another user", ffi::SQLITE_READONLY_DIRECTORY, None, RetryPlan::Unlocked),
            ("records in the write-ahead file", ffi::SQLITE_CANTOPEN, wal(), refuse()),
            ("the same in the folder of another user", ffi::SQLITE_READONLY_DIRECTORY, wal(), refuse()),
            ("an interrupted change", ffi::SQLITE_READONLY_ROLLBACK, wal(), refuse()),
            ("a lock", ffi::SQLITE_BUSY, None, RetryPlan::Fail),
            ("a damaged file", ffi::SQLITE_NOTADB, None, RetryPlan::Fail),
            ("a broken disk", ffi::SQLITE_IOERR, wal(), RetryPlan::Fail),
        ] {
            assert_eq!(plan_retry(&refusal(code), part), want, "{case}");
        }
    }

    #[test]
    fn a_path_with_any_bytes_is_a_name_for_sqlite() {
        assert_eq!(immutable_uri(Path::new("/a b/50%?#é.db")), "file:///a%20b/50%25%3F%23%C3%A9.db?immutable=1");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("50%?immutable=0#é.db");
        drop(make_file(&path));
        assert!(connect_unlocked(&path).is_ok());
    }

    #[test]
    fn reading_without_locks_creates_no_file_and_is_valid_while_nobody_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        drop(make_file(&path));
        let reader = unlocked(&path);
        let rows: i64 = reader.connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1);
        assert!(reader.check_unchanged(&path).is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        // An owner has written and not merged, or is gone by now.
        let owner = Connection::open(&path).unwrap();
        owner.execute_batch("INSERT INTO t VALUES (zeroblob(100000))").unwrap();
        assert!(reader.check_unchanged(&path).is_err());
        drop(owner);
        assert!(reader.check_unchanged(&path).is_err());
        assert!(unlocked(&path).check_unchanged(&path).is_ok());
    }

    #[test]
    fn a_connection_with_locks_is_valid_whoever_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.db");
        let owner = make_file(&path);
        let reader = ReadConnection::open(&path).unwrap();
        owner.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        assert!(reader.check_unchanged(&path).is_ok());
    }
}
