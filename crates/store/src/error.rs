//! Errors of opening, writing or reading a log.
//!
//! No error here knows the wire that it will be sent on.

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_core::id::Lsn;

use crate::{
    database_error::{DatabaseError, ServerError},
    record::{Epoch, FACTS_LIMIT, Partition},
};

/// The system's error, and its file. Cheap to clone, since one failed commit may answer several appends.
#[derive(Clone, Debug)]
pub struct ErrorCause {
    path: Option<Arc<Path>>,
    error: Arc<dyn Error + Send + Sync>,
}

impl ErrorCause {
    /// Wraps an error that is about no file.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self { path: None, error: Arc::new(error) }
    }

    /// Wraps an error about the file at `path`.
    pub fn at_path(path: &Path, error: impl Error + Send + Sync + 'static) -> Self {
        Self { path: Some(path.into()), error: Arc::new(error) }
    }

    /// Reports whether the disk, the quota or the file's own limit is used up.
    pub(crate) fn is_full(&self) -> bool {
        let mut next: Option<&(dyn Error + 'static)> = Some(&*self.error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<rusqlite::Error>()
                && error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            {
                return true;
            }
            if let Some(error) = error.downcast_ref::<io::Error>()
                && matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            {
                return true;
            }
            if error.downcast_ref::<ServerError>().is_some_and(|error| error.full)
                || error.downcast_ref::<DatabaseError>().is_some_and(DatabaseError::is_full)
            {
                return true;
            }
            next = error.source();
        }
        false
    }

    /// Reports whether a database cannot be reached or does not answer.
    fn is_of_silent_database(&self) -> bool {
        let error: &(dyn Error + 'static) = &*self.error;
        error.is::<ServerError>() || matches!(error.downcast_ref(), Some(DatabaseError::Unreachable { .. }))
    }
}

impl fmt::Display for ErrorCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.error),
            None => self.error.fmt(f),
        }
    }
}

impl Error for ErrorCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Why a log was not opened. Nothing in its file was changed.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message names its fields")]
pub enum LogOpenError {
    /// Another process holds it open for writing. The pid is absent in the instant in which its owner has not written it
    /// yet.
    #[error("{} is owned by {}", .path.display(), owner(*.pid))]
    Owned { path: PathBuf, pid: Option<u32> },
    /// A later version of the program laid out its tables.
    #[error("{} has schema version {found}, this program knows {known} and older", .path.display())]
    NewerSchema { path: PathBuf, found: i64, known: i64 },
    /// A later version of the program wrote its events.
    #[error("{} has event format {found}, this program knows {known} and older", .path.display())]
    NewerEvents { path: PathBuf, found: i64, known: u32 },
    /// A SQLite database that some other program made.
    #[error("{} is a database, but not a log", .path.display())]
    Foreign { path: PathBuf },
    /// Not a SQLite database, or a damaged one.
    #[error("{} is damaged or not a log", .path.display())]
    Corrupt {
        path: PathBuf,
        #[source]
        cause: ErrorCause,
    },
    /// No log to read.
    #[error("{} does not exist", .path.display())]
    Missing { path: PathBuf },
    /// The file is gone, or empty, and the latest records are in the file next to it: a new log would take its place.
    #[error(
        "{} is not there, but what was recorded last is in {}: put the file back where it was, or move that one away", .path.display(),
        .beside.display()
    )]
    Parted { path: PathBuf, beside: PathBuf },
    /// It is in a folder where nothing can be written, and SQLite would have to write there to read its latest records.
    #[error(
        "{} cannot be read in its folder: what was recorded last is in {}, which SQLite cannot index where it cannot create files: \
         copy both files to a folder that you can write to, and read the copy; of a running gateway, read the record as its user", .path.display(),
        .beside.display()
    )]
    Unindexed { path: PathBuf, beside: PathBuf },
    /// The machine refused.
    #[error("{} could not be opened", .path.display())]
    Io {
        path: PathBuf,
        #[source]
        cause: ErrorCause,
    },
    /// The database cannot hold the log, or cannot be reached.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl LogOpenError {
    /// Reports whether only space was missing.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Corrupt { cause, .. } | Self::Io { cause, .. } => cause.is_full(),
            Self::Database(error) => error.is_full(),
            Self::Owned { .. }
            | Self::NewerSchema { .. }
            | Self::NewerEvents { .. }
            | Self::Foreign { .. }
            | Self::Missing { .. }
            | Self::Parted { .. }
            | Self::Unindexed { .. } => false,
        }
    }
}

/// Why a batch was not recorded, or may not have been.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message names its fields")]
pub enum AppendError {
    /// Another owner took the partition over, in `current`. Nothing was written, and no append of `epoch` will be.
    #[error("{epoch} may not write any more: the log was taken over in {current}")]
    Fenced { epoch: Epoch, current: Epoch },
    /// The log does not end at `expected`: an append before this one failed, or another one took its place. Nothing was
    /// written.
    #[error("expected the log to end at {expected}, it ends at {found}")]
    Position { expected: Lsn, found: Lsn },
    /// The disk is full. Nothing was written.
    #[error("the disk of the log is full")]
    Full,
    /// The batch may or may not be there, now or after a restart. Reading settles it, or says that the outcome is still unknown.
    #[error("it is not known whether the batch was recorded")]
    Uncertain(#[source] ErrorCause),
    /// The machine refused before anything could be recorded. Nothing was written.
    #[error("the log could not be written")]
    Io(#[source] ErrorCause),
    /// The facts of a record are too large. Nothing was written.
    #[error("facts of record {index} in the batch have {size} bytes, {FACTS_LIMIT} is the limit")]
    TooLarge { index: usize, size: usize },
    /// The log is made by its first append, and that could not be done. Nothing was written.
    #[error(transparent)]
    Open(LogOpenError),
    /// The log was opened for reading only.
    #[error("the log is open for reading only")]
    ReadOnly,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The partition does not exist.
    #[error("{0} does not exist")]
    NoPartition(Partition),
}

/// Why something that is no record was not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogWriteError {
    /// The disk is full.
    #[error("the disk of the log is full")]
    Full,
    /// The machine refused.
    #[error("the log could not be written")]
    Io(#[source] ErrorCause),
    /// Redacted contents can no longer be read from the log, but their bytes are still somewhere in its files.
    #[error("redacted, but traces are left on disk")]
    Lingers(#[source] ErrorCause),
    /// The log had to be made first, and that could not be done.
    #[error(transparent)]
    Open(LogOpenError),
    /// The log was opened for reading only.
    #[error("the log is open for reading only")]
    ReadOnly,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The partition does not exist.
    #[error("{0} does not exist")]
    NoPartition(Partition),
}

/// Why nothing could be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogReadError {
    /// The stored bytes cannot be read as a log.
    #[error("the log is damaged")]
    Corrupt(#[source] ErrorCause),
    /// The content of one record is gone without a redaction, or does not fit its digest.
    #[error("the content of entry {0} does not fit its digest")]
    Content(Lsn),
    /// The machine refused.
    #[error("the log could not be read")]
    Io(#[source] ErrorCause),
    /// An append ended uncertain, and its outcome is still unknown.
    #[error("it is not known where the log ends")]
    Unsettled(#[source] ErrorCause),
    /// No such view was registered when the log was opened.
    #[error("there is no view {0}")]
    NoView(String),
    /// The view panicked, or could not be brought up to the log when it was opened. The next opening tries it again.
    #[error("view {0} is broken until the log is opened again")]
    BrokenView(String),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The partition does not exist.
    #[error("{0} does not exist")]
    NoPartition(Partition),
}

impl LogReadError {
    /// Reports whether the log is in a database that cannot be reached or does not answer.
    pub fn is_of_silent_database(&self) -> bool {
        match self {
            Self::Io(cause) | Self::Unsettled(cause) => cause.is_of_silent_database(),
            Self::Corrupt(_)
            | Self::Content(_)
            | Self::NoView(_)
            | Self::BrokenView(_)
            | Self::Closed
            | Self::NoPartition(_) => false,
        }
    }
}

impl From<ErrorCause> for LogWriteError {
    fn from(cause: ErrorCause) -> Self {
        if cause.is_full() { Self::Full } else { Self::Io(cause) }
    }
}

impl From<ErrorCause> for AppendError {
    /// Converts a failure before the commit: nothing was written.
    fn from(cause: ErrorCause) -> Self {
        if cause.is_full() { Self::Full } else { Self::Io(cause) }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{DatabaseError, ErrorCause, LogReadError, ServerError};

    #[test]
    fn a_database_that_does_not_answer_differs_from_one_that_refuses() {
        let server = || "db".to_owned();
        let problem = || "refused".to_owned();
        let unreachable = DatabaseError::Unreachable { server: server(), problem: problem() };
        let failed = DatabaseError::Failed { server: server(), problem: problem(), full: false };
        for (case, cause, want) in [
            ("unreachable", ErrorCause::new(unreachable), true),
            ("silent", ErrorCause::new(ServerError::new("the database did not answer")), true),
            ("failed", ErrorCause::new(failed), false),
            ("file", ErrorCause::new(io::Error::other("disk")), false),
        ] {
            assert_eq!(LogReadError::Io(cause.clone()).is_of_silent_database(), want, "{case}");
            assert_eq!(LogReadError::Unsettled(cause).is_of_silent_database(), want, "{case}");
        }
        assert!(!LogReadError::Closed.is_of_silent_database());
    }
}
