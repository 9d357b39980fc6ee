//! A few connections that only read, used on threads that may block.
//!
//! It must not know the queries. Each query is one short transaction, so that the writer can always tidy up after
//! it.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::Connection;
use tokio::{sync::Semaphore, task};

use super::{SqliteState, file, read_connection::ReadConnection};
use crate::error::{ErrorCause, LogOpenError, LogReadError};

/// Connections at rest, and how many may be at work.
pub(super) struct ReaderPool {
    permits: Arc<Semaphore>,
    idle: Mutex<IdleReaders>,
}

#[derive(Default)]
struct IdleReaders {
    connections: Vec<ReadConnection>,
    closed: bool,
}

impl ReaderPool {
    pub(super) fn new(limit: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(limit.max(1))), idle: Mutex::default() }
    }

    /// Runs `query` in a transaction of its own.
    ///
    /// A future that is dropped leaves the query running to its end; its answer is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        shared: &Arc<SqliteState>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LogReadError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| LogReadError::Closed)?;
        let shared = Arc::clone(shared);
        let work = task::spawn_blocking(move || {
            let answer = shared.readers.query_blocking(&shared, query);
            drop(permit);
            answer
        });
        match work.await {
            Ok(answer) => answer,
            // Only a runtime that shuts down cancels it; a panic in a query continues in the caller.
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(LogReadError::Closed),
            },
        }
    }

    fn query_blocking<T>(
        &self,
        shared: &SqliteState,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, LogReadError> {
        let failed = |error: rusqlite::Error| {
            if file::is_damage(&error) {
                LogReadError::Corrupt(shared.error_cause(error))
            } else {
                LogReadError::Io(shared.error_cause(error))
            }
        };
        let failed_io = |error: io::Error| LogReadError::Io(shared.error_cause(error));
        let idle = self.take_connection()?.filter(|reader| reader.check_unchanged(&shared.path).is_ok());
        let mut reader = match idle {
            Some(reader) => reader,
            None => {
                let reader = ReadConnection::open(&shared.path).map_err(|error| match error {
                    LogOpenError::Corrupt { cause, .. } => LogReadError::Corrupt(cause),
                    LogOpenError::Io { cause, .. } => LogReadError::Io(cause),
                    error => LogReadError::Io(ErrorCause::new(error)),
                })?;
                // Rows of another file were never written here.
                shared.check_place().map_err(failed_io)?;
                reader
            }
        };
        let transaction = reader.connection.transaction().map_err(failed)?;
        let answer = query(&transaction);
        drop(transaction);
        // Before the answer: what was read while the file changed is no damage.
        reader.check_unchanged(&shared.path).map_err(failed_io)?;
        let answer = answer.map_err(failed)?;
        self.put_back(reader);
        Ok(answer)
    }

    fn take_connection(&self) -> Result<Option<ReadConnection>, LogReadError> {
        let mut idle = self.lock_idle();
        if idle.closed { Err(LogReadError::Closed) } else { Ok(idle.connections.pop()) }
    }

    /// Keeps `connection` for the next query.
    pub(super) fn put_back(&self, connection: ReadConnection) {
        let mut idle = self.lock_idle();
        if !idle.closed {
            idle.connections.push(connection);
        }
    }

    /// Closes every connection, those at work when they are done.
    pub(super) fn close(&self) {
        let mut idle = self.lock_idle();
        idle.closed = true;
        idle.connections.clear();
    }

    fn lock_idle(&self) -> MutexGuard<'_, IdleReaders> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
