//! A log in a SQLite file: one writer thread that commits in groups, and a few connections that only read.
//!
//! It must not know what a record means. The process that opens the file for writing holds its lock until the last handle is gone.
//! Several owners within that process are distinguished by their epoch, as in every log.
//!
//! The file is made by the first append: a log that never recorded anything leaves nothing on disk. Its tables are in
//! `sqlite/schema/`, its chain is described in [`crate::chain`].
//!
//! | name | purpose |
//! |---|---|
//! | `log.db` | the log; `log.db-wal` and `log.db-shm` are SQLite's own and belong to it while it is open |
//! | `log.db.lock` | names the owner; never removed, empty when the log has no owner |

mod ballast;
mod copy;
mod epoch;
mod file;
mod lock;
mod options;
mod query;
mod read_connection;
mod readers;
mod schema;
mod views;
mod write;
mod writer;

use std::{
    fmt,
    future::ready,
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use countersign_core::id::Lsn;
use tokio::sync::{mpsc, oneshot};

pub use self::{ballast::BALLAST_SIZE, copy::copy_log, options::LogOptions};
use self::{
    ballast::Ballast,
    file::SqliteLogFile,
    readers::ReaderPool,
    writer::{AppendRequest, LogWriter, WriterCommand},
};
use crate::{
    append::PendingAppend,
    error::{AppendError, ErrorCause, LogOpenError, LogReadError, LogWriteError},
    log::Log,
    record::{
        Batch, Epoch, FactsPage, LogHead, Partition, ReadScope, RecordFacts, Snapshot, StoredContent, StoredRecord,
    },
    transfer::{RawLog, RawRecord},
    verify::{ChainWalk, VerifyReport},
};

/// Commands that may wait for the writer; later callers wait for a place.
const QUEUE: usize = 256;

/// Records that are checked in one short transaction.
const VERIFY_PAGE: usize = 512;

/// A log in a SQLite file. A clone is another handle to the same log.
///
/// Dropping the last handle waits for the queued batches, as [`Log::close`] does, but blocks the thread meanwhile.
#[derive(Clone)]
pub struct SqliteLog(Arc<SqliteHandle>);

struct SqliteHandle {
    shared: Arc<SqliteState>,
    phase: Mutex<WriterPhase>,
}

/// State that handles, writer and readers share.
struct SqliteState {
    path: PathBuf,
    options: LogOptions,
    readers: ReaderPool,
    /// True if there is a file to read.
    made: AtomicBool,
    /// The epoch of the owner while there is no file; 0 if there is none.
    claimed: AtomicU64,
    /// True if a commit failed in a way that a restart might still find it.
    unsettled: AtomicBool,
    /// Identity of the file that is written, once there is one.
    place: OnceLock<file::FileIdentity>,
}

enum WriterPhase {
    /// No file was there at open, and nothing was written since.
    Absent,
    Running {
        commands: mpsc::Sender<WriterCommand>,
        thread: JoinHandle<()>,
    },
    ReadOnly,
    Closed,
}

/// Why there is no writer to ask.
enum NoWriter {
    ReadOnly,
    Closed,
    Machine(ErrorCause),
}

impl SqliteLog {
    /// Opens the log at `path` for writing. If there is no file yet, nothing on disk is touched until the first
    /// append.
    ///
    /// Nothing is verified except that the file is a log. An older file is brought to today's tables, and
    /// views that lack records are folded, which blocks as long as that takes.
    ///
    /// # Errors
    /// [`LogOpenError`], with the file left as it was.
    pub fn open(path: impl AsRef<Path>, options: LogOptions) -> Result<Self, LogOpenError> {
        let path = path.as_ref();
        let io = |error: io::Error| LogOpenError::Io { path: path.to_owned(), cause: ErrorCause::at_path(path, error) };
        let size = match path.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(io(error)),
        };
        if size == 0 {
            file::check_not_parted(path)?;
            let shared = SqliteState::new(std::path::absolute(path).map_err(io)?, options, false);
            return Ok(Self::with_phase(shared, WriterPhase::Absent));
        }
        let path = path.canonicalize().map_err(io)?;
        let file = SqliteLogFile::open(&path, &options).or_else(|error| match error {
            // A disk without space for SQLite's index fails in many ways.
            LogOpenError::Io { .. } if Ballast::new(options.ballast.clone()).release_space() => {
                SqliteLogFile::open(&path, &options)
            }
            error => Err(error),
        })?;
        let shared = SqliteState::new(path.clone(), options, true);
        shared.writes_to(file.identity);
        let phase = WriterPhase::run(&shared, Some(file))
            .map_err(|error| LogOpenError::Io { path: path.clone(), cause: ErrorCause::at_path(&path, error) })?;
        Ok(Self::with_phase(shared, phase))
    }

    /// Opens the log at `path` for reading only, whether or not it has an owner. Takes no lock, and knows no views.
    ///
    /// # Errors
    /// [`LogOpenError`]; [`LogOpenError::Missing`] if there is no log, [`LogOpenError::Parted`] if only a part of one is left.
    pub fn open_read_only(path: impl AsRef<Path>, event_format: u32) -> Result<Self, LogOpenError> {
        let path = path.as_ref();
        let missing = || LogOpenError::Missing { path: path.to_owned() };
        let absolute = match path.canonicalize() {
            Ok(absolute) => absolute,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                file::check_not_parted(path)?;
                return Err(missing());
            }
            Err(error) => {
                return Err(LogOpenError::Io { path: path.to_owned(), cause: ErrorCause::at_path(path, error) });
            }
        };
        if absolute.metadata().is_ok_and(|file| file.len() == 0) {
            file::check_not_parted(&absolute)?;
        }
        let connection = file::open_to_read(&absolute, event_format)?.ok_or_else(missing)?;
        let shared = SqliteState::new(absolute, LogOptions { event_format, ..LogOptions::default() }, true);
        shared.readers.put_back(connection);
        Ok(Self::with_phase(shared, WriterPhase::ReadOnly))
    }

    /// Returns the path of the log, which may not exist yet.
    pub fn path(&self) -> &Path {
        &self.0.shared.path
    }

    fn with_phase(shared: Arc<SqliteState>, phase: WriterPhase) -> Self {
        Self(Arc::new(SqliteHandle { shared, phase: Mutex::new(phase) }))
    }

    /// Queues a command for the writer, whose answer comes later.
    async fn send_command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> WriterCommand + Send,
    ) -> Result<oneshot::Receiver<T>, NoWriter> {
        let commands = self.0.command_sender()?;
        let (reply, replied) = oneshot::channel();
        commands.send(command(reply)).await.map_err(|_| NoWriter::Closed)?;
        Ok(replied)
    }

    async fn request_reply<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> WriterCommand + Send,
    ) -> Result<Option<T>, NoWriter> {
        Ok(self.send_command(command).await?.await.ok())
    }

    async fn send_write<T>(
        &self,
        partition: Partition,
        command: impl FnOnce(oneshot::Sender<Result<T, LogWriteError>>) -> WriterCommand + Send,
    ) -> Result<T, LogWriteError> {
        if partition != Partition::ZERO {
            return Err(LogWriteError::NoPartition(partition));
        }
        match self.request_reply(command).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(LogWriteError::Io(self.0.shared.writer_gone())),
            Err(NoWriter::ReadOnly) => Err(LogWriteError::ReadOnly),
            Err(NoWriter::Closed) => Err(LogWriteError::Closed),
            Err(NoWriter::Machine(cause)) => Err(LogWriteError::from(cause)),
        }
    }

    /// Runs `query` on a connection that only reads, once it is known where the log ends. `None` if there is no file
    /// yet.
    async fn run_query<T: Send + 'static>(
        &self,
        partition: Partition,
        query: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Option<T>, LogReadError> {
        if partition != Partition::ZERO {
            return Err(LogReadError::NoPartition(partition));
        }
        if matches!(*self.0.lock_phase(), WriterPhase::Closed) {
            return Err(LogReadError::Closed);
        }
        let shared = &self.0.shared;
        if shared.unsettled.load(Ordering::Acquire) {
            match self.request_reply(|reply| WriterCommand::Settle { reply }).await {
                Ok(Some(Ok(()))) => {}
                Ok(Some(Err(cause))) | Err(NoWriter::Machine(cause)) => return Err(LogReadError::Unsettled(cause)),
                Ok(None) => return Err(LogReadError::Unsettled(shared.writer_gone())),
                Err(NoWriter::ReadOnly | NoWriter::Closed) => return Err(LogReadError::Closed),
            }
        }
        if !shared.made.load(Ordering::Acquire) {
            return Ok(None);
        }
        shared.readers.run(shared, query).await.map(Some)
    }
}

impl fmt::Debug for SqliteLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLog").field("path", &self.0.shared.path).finish_non_exhaustive()
    }
}

impl SqliteState {
    fn new(path: PathBuf, options: LogOptions, made: bool) -> Arc<Self> {
        let readers = ReaderPool::new(options.readers);
        Arc::new(Self {
            path,
            options,
            readers,
            made: AtomicBool::new(made),
            claimed: AtomicU64::new(Epoch::NONE.0),
            unsettled: AtomicBool::new(false),
            place: OnceLock::new(),
        })
    }

    fn error_cause(&self, error: impl std::error::Error + Send + Sync + 'static) -> ErrorCause {
        ErrorCause::at_path(&self.path, error)
    }

    /// Takes note of the file that is written.
    fn writes_to(&self, place: file::FileIdentity) {
        let _ = self.place.set(place);
    }

    /// Fails if a connection that was opened now may be to another file than the one that is written.
    fn check_place(&self) -> io::Result<()> {
        self.place.get().map_or(Ok(()), |place| place.check_path(&self.path))
    }

    fn writer_gone(&self) -> ErrorCause {
        self.error_cause(io::Error::other("the writer of the log ended without an answer"))
    }
}

impl WriterPhase {
    fn run(shared: &Arc<SqliteState>, file: Option<SqliteLogFile>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel(QUEUE);
        let writer = LogWriter::new(Arc::clone(shared), file);
        let thread = thread::Builder::new().name("log-writer".to_owned()).spawn(move || writer.run(inbox))?;
        Ok(Self::Running { commands, thread })
    }
}

impl SqliteHandle {
    fn lock_phase(&self) -> MutexGuard<'_, WriterPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the channel to the writer, which is started if it was not needed before.
    fn command_sender(&self) -> Result<mpsc::Sender<WriterCommand>, NoWriter> {
        let mut phase = self.lock_phase();
        if matches!(*phase, WriterPhase::Absent) {
            *phase = WriterPhase::run(&self.shared, None)
                .map_err(|error| NoWriter::Machine(self.shared.error_cause(error)))?;
        }
        match &*phase {
            WriterPhase::Running { commands, .. } => Ok(commands.clone()),
            WriterPhase::ReadOnly => Err(NoWriter::ReadOnly),
            WriterPhase::Absent | WriterPhase::Closed => Err(NoWriter::Closed),
        }
    }

    /// Takes no more commands; the thread ends after those that are queued.
    fn shut_down(&self) -> Option<JoinHandle<()>> {
        let phase = std::mem::replace(&mut *self.lock_phase(), WriterPhase::Closed);
        self.shared.readers.close();
        match phase {
            WriterPhase::Running { thread, .. } => Some(thread),
            WriterPhase::Absent | WriterPhase::ReadOnly | WriterPhase::Closed => None,
        }
    }
}

impl Drop for SqliteHandle {
    fn drop(&mut self) {
        if let Some(thread) = self.shut_down() {
            // A writer that panicked was reported where it did, and its callers got an error.
            let _ = thread.join();
        }
    }
}

impl RawLog for SqliteLog {
    async fn read_raw(&self, after: Lsn, limit: usize) -> Result<Vec<RawRecord>, LogReadError> {
        let page = self.run_query(Partition::ZERO, move |connection| query::read_raw(connection, after, limit)).await?;
        Ok(page.unwrap_or_default())
    }

    async fn import_raw(&self, expected: LogHead, records: Vec<RawRecord>) -> Result<(), LogWriteError> {
        self.send_write(Partition::ZERO, |reply| WriterCommand::Import { expected, records, reply }).await
    }
}

impl Log for SqliteLog {
    async fn take_over(&self, partition: Partition) -> Result<Epoch, LogWriteError> {
        self.send_write(partition, |reply| WriterCommand::TakeOver { reply }).await
    }

    async fn current_epoch(&self, partition: Partition) -> Result<Epoch, LogReadError> {
        let claimed = || Epoch(self.0.shared.claimed.load(Ordering::Acquire));
        Ok(self.run_query(partition, epoch::current_epoch).await?.unwrap_or_else(claimed))
    }

    async fn submit_batch(&self, partition: Partition, epoch: Epoch, expected: Lsn, batch: Batch) -> PendingAppend {
        if partition != Partition::ZERO {
            return PendingAppend::new(ready(Err(AppendError::NoPartition(partition))));
        }
        let refused = match self
            .send_command(|reply| WriterCommand::Append(AppendRequest { epoch, expected, batch, reply }))
            .await
        {
            Ok(replied) => {
                let shared = Arc::clone(&self.0.shared);
                let lost = move |_| Err(AppendError::Uncertain(shared.writer_gone()));
                return PendingAppend::new(async move { replied.await.unwrap_or_else(lost) });
            }
            Err(NoWriter::ReadOnly) => AppendError::ReadOnly,
            Err(NoWriter::Closed) => AppendError::Closed,
            Err(NoWriter::Machine(cause)) => AppendError::from(cause),
        };
        PendingAppend::new(ready(Err(refused)))
    }

    async fn head(&self, partition: Partition) -> Result<LogHead, LogReadError> {
        Ok(self.run_query(partition, query::read_head).await?.unwrap_or(LogHead::EMPTY))
    }

    async fn read_records(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        let page = self.run_query(partition, move |connection| query::read_page(connection, after, limit)).await?;
        Ok(page.unwrap_or_default())
    }

    async fn read_facts<T: Send + 'static>(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
        convert: fn(RecordFacts<'_>) -> T,
    ) -> Result<FactsPage<T>, LogReadError> {
        let page = self.run_query(partition, move |connection| query::read_facts(connection, after, limit, convert));
        Ok(page.await?.unwrap_or(FactsPage { converted: Vec::new(), last: after }))
    }

    async fn read_scope(
        &self,
        partition: Partition,
        scope: ReadScope<'_>,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        let (index, value) = match scope {
            ReadScope::Session(session) => (query::ScopeIndex::Session, session.as_str().to_owned()),
            ReadScope::Key(key) => (query::ScopeIndex::Key, key.to_owned()),
        };
        let page = move |connection: &rusqlite::Connection| query::read_scoped(connection, index, &value, after, limit);
        Ok(self.run_query(partition, page).await?.unwrap_or_default())
    }

    async fn read_contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> Result<Vec<Option<StoredContent>>, LogReadError> {
        let requested = lsns.to_vec();
        match self.run_query(partition, move |connection| query::read_contents(connection, &requested)).await? {
            Some(contents) => contents.map_err(LogReadError::Content),
            None => Ok(vec![None; lsns.len()]),
        }
    }

    async fn read_view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, LogReadError> {
        let Some(view) = self.0.shared.options.views.iter().find(|view| view.name() == name).cloned() else {
            return Err(LogReadError::NoView(name.to_owned()));
        };
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let rows = move |connection: &rusqlite::Connection| {
            views::read_rows(connection, (view.name(), view.version()), &prefix, after.as_deref(), limit)
        };
        match self.run_query(partition, rows).await? {
            Some(Some(rows)) => Ok(rows),
            Some(None) => Err(LogReadError::BrokenView(name.to_owned())),
            None => Ok(Vec::new()),
        }
    }

    async fn load_snapshot(&self, partition: Partition, version: u32) -> Result<Option<Snapshot>, LogReadError> {
        let snapshot = self.run_query(partition, move |connection| query::read_snapshot(connection, version)).await?;
        Ok(snapshot.flatten())
    }

    async fn save_snapshot(&self, partition: Partition, snapshot: Snapshot) -> Result<(), LogWriteError> {
        self.send_write(partition, |reply| WriterCommand::SaveSnapshot { snapshot, reply }).await
    }

    async fn redact_contents(&self, partition: Partition, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
        let lsns = lsns.to_vec();
        self.send_write(partition, |reply| WriterCommand::Redact { lsns, reply }).await
    }

    async fn probe_write(&self) -> Result<(), LogWriteError> {
        self.send_write(Partition::ZERO, |reply| WriterCommand::Probe { reply }).await
    }

    async fn verify_chain(
        &self,
        partition: Partition,
        expected_head: Option<LogHead>,
    ) -> Result<VerifyReport, LogReadError> {
        let mut walk = ChainWalk::new(expected_head);
        loop {
            let page = move |connection: &rusqlite::Connection| query::walk_chain(connection, walk, VERIFY_PAGE);
            match self.run_query(partition, page).await? {
                None => return Ok(ChainWalk::new(expected_head).finish()),
                Some(ControlFlow::Continue(further)) => walk = further,
                Some(ControlFlow::Break(ended)) => return Ok(ended.finish()),
            }
        }
    }

    async fn close(&self) {
        if let Some(thread) = self.0.shut_down() {
            // Waits on a blocking thread; the writer itself reported how it ended.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

#[cfg(test)]
mod tests;
