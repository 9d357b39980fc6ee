//! A log in a SQLite file: one writer thread that commits in groups, and a few connections that only read.
//!
//! It must not know what a record means. Who opens the file for writing holds its lock until the last handle is gone.
//! Several owners within that process are told apart by their epoch, as in every log.
//!
//! The file is made by the first append: a log that never recorded anything leaves nothing on disk. Its tables are in
//! `sqlite/schema/`, its chain is described in [`crate::chain`].
//!
//! | name | what for |
//! |---|---|
//! | `log.db` | the log; `log.db-wal` and `log.db-shm` are SQLite's own and belong to it while it is open |
//! | `log.db.lock` | names the owner; never removed, empty when nobody owns the log |

mod ballast;
mod copy;
mod epoch;
mod file;
mod lock;
mod query;
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

pub use self::{ballast::BALLAST_SIZE, copy::copy};
use self::{
    ballast::Ballast,
    file::LogFile,
    readers::Readers,
    writer::{Append, Command, Writer},
};
use crate::{
    append::PendingAppend,
    error::{AppendError, Cause, OpenError, ReadError, WriteError},
    log::Log,
    record::{Batch, Content, Epoch, Head, Partition, Scope, Snapshot, Stored},
    verify::{Report, Walk},
    view::View,
};

/// Commands that may wait for the writer; whoever comes later waits for a place.
const QUEUE: usize = 256;

/// Records that are checked in one short transaction.
const VERIFY_PAGE: usize = 512;

/// How a log in a file is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// The newest format of events that the caller can read. A log in a newer one is refused, an older one is marked
    /// with this.
    pub event_format: u32,
    /// Where a file of [`BALLAST_SIZE`] is kept that is given up when the disk is full. None by default.
    pub ballast: Option<PathBuf>,
    /// The most pages of 4 KiB that the file may have. As many as the disk holds by default.
    pub max_pages: Option<u32>,
    /// How many reads may run at the same time.
    pub readers: usize,
    /// What is folded from the records as they are written. Their names differ.
    pub views: Vec<Arc<dyn View>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { event_format: 1, ballast: None, max_pages: None, readers: 4, views: Vec::new() }
    }
}

/// A log in a SQLite file. A clone is another handle to the same log.
///
/// Dropping the last handle waits for what is queued, as [`Log::close`] does, but blocks the thread meanwhile.
#[derive(Clone)]
pub struct SqliteLog(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    phase: Mutex<Phase>,
}

/// What handles, writer and readers all look at.
struct Shared {
    path: PathBuf,
    options: Options,
    readers: Readers,
    /// Whether there is a file to read.
    made: AtomicBool,
    /// The epoch of the owner while there is no file; 0 if there is none.
    claimed: AtomicU64,
    /// Whether a commit failed in a way that a restart might still find it.
    unsettled: AtomicBool,
    /// Which file is written, once there is one.
    place: OnceLock<file::Place>,
}

enum Phase {
    /// No file was there at open, and nothing was written since.
    Absent,
    Running {
        commands: mpsc::Sender<Command>,
        thread: JoinHandle<()>,
    },
    ReadOnly,
    Closed,
}

/// Why there is no writer to ask.
enum NoWriter {
    ReadOnly,
    Closed,
    Machine(Cause),
}

impl SqliteLog {
    /// Opens the log at `path` for writing. Where there is no file yet, nothing on disk is touched until the first
    /// append.
    ///
    /// Nothing is verified beyond what tells a log from something else. An older file is brought to today's tables, and
    /// views that lack records are folded, which blocks as long as that takes.
    ///
    /// # Errors
    /// [`OpenError`], with the file left as it was.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let io = |error: io::Error| OpenError::Io { path: path.to_owned(), cause: Cause::at(path, error) };
        let size = match path.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(io(error)),
        };
        if size == 0 {
            file::whole(path)?;
            let shared = Shared::new(std::path::absolute(path).map_err(io)?, options, false);
            return Ok(Self::with(shared, Phase::Absent));
        }
        let path = path.canonicalize().map_err(io)?;
        let file = LogFile::open(&path, &options).or_else(|error| match error {
            // A disk without space for SQLite's index fails in many ways.
            OpenError::Io { .. } if Ballast::new(options.ballast.clone()).free() => LogFile::open(&path, &options),
            error => Err(error),
        })?;
        let shared = Shared::new(path.clone(), options, true);
        shared.writes_to(file.place);
        let phase = Phase::run(&shared, Some(file))
            .map_err(|error| OpenError::Io { path: path.clone(), cause: Cause::at(&path, error) })?;
        Ok(Self::with(shared, phase))
    }

    /// Opens the log at `path` for reading only, whether or not somebody owns it. Takes no lock, and knows no views.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::Missing`] if there is no log, [`OpenError::Parted`] if only a part of one is left.
    pub fn open_read_only(path: impl AsRef<Path>, event_format: u32) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let missing = || OpenError::Missing { path: path.to_owned() };
        let absolute = match path.canonicalize() {
            Ok(absolute) => absolute,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                file::whole(path)?;
                return Err(missing());
            }
            Err(error) => return Err(OpenError::Io { path: path.to_owned(), cause: Cause::at(path, error) }),
        };
        if absolute.metadata().is_ok_and(|file| file.len() == 0) {
            file::whole(&absolute)?;
        }
        let connection = file::open_to_read(&absolute, event_format)?.ok_or_else(missing)?;
        let shared = Shared::new(absolute, Options { event_format, ..Options::default() }, true);
        shared.readers.put_back(connection);
        Ok(Self::with(shared, Phase::ReadOnly))
    }

    /// Where the log lies, or will lie.
    pub fn path(&self) -> &Path {
        &self.0.shared.path
    }

    fn with(shared: Arc<Shared>, phase: Phase) -> Self {
        Self(Arc::new(Handle { shared, phase: Mutex::new(phase) }))
    }

    /// Queues a command for the writer, whose answer comes later.
    async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command + Send,
    ) -> Result<oneshot::Receiver<T>, NoWriter> {
        let commands = self.0.commands()?;
        let (reply, replied) = oneshot::channel();
        commands.send(command(reply)).await.map_err(|_| NoWriter::Closed)?;
        Ok(replied)
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command + Send) -> Result<Option<T>, NoWriter> {
        Ok(self.send(command).await?.await.ok())
    }

    async fn write<T>(
        &self,
        partition: Partition,
        command: impl FnOnce(oneshot::Sender<Result<T, WriteError>>) -> Command + Send,
    ) -> Result<T, WriteError> {
        if partition != Partition::ZERO {
            return Err(WriteError::NoPartition(partition));
        }
        match self.ask(command).await {
            Ok(Some(told)) => told,
            Ok(None) => Err(WriteError::Io(self.0.shared.writer_gone())),
            Err(NoWriter::ReadOnly) => Err(WriteError::ReadOnly),
            Err(NoWriter::Closed) => Err(WriteError::Closed),
            Err(NoWriter::Machine(cause)) => Err(WriteError::from(cause)),
        }
    }

    /// Runs `query` on a connection that only reads, once it is known where the log ends. `None` if there is no file
    /// yet.
    async fn query<T: Send + 'static>(
        &self,
        partition: Partition,
        query: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Option<T>, ReadError> {
        if partition != Partition::ZERO {
            return Err(ReadError::NoPartition(partition));
        }
        if matches!(*self.0.phase(), Phase::Closed) {
            return Err(ReadError::Closed);
        }
        let shared = &self.0.shared;
        if shared.unsettled.load(Ordering::Acquire) {
            match self.ask(|reply| Command::Settle { reply }).await {
                Ok(Some(Ok(()))) => {}
                Ok(Some(Err(cause))) | Err(NoWriter::Machine(cause)) => return Err(ReadError::Unsettled(cause)),
                Ok(None) => return Err(ReadError::Unsettled(shared.writer_gone())),
                Err(NoWriter::ReadOnly | NoWriter::Closed) => return Err(ReadError::Closed),
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

impl Shared {
    fn new(path: PathBuf, options: Options, made: bool) -> Arc<Self> {
        let readers = Readers::new(options.readers);
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

    fn cause(&self, error: impl std::error::Error + Send + Sync + 'static) -> Cause {
        Cause::at(&self.path, error)
    }

    /// Takes note of the file that is written.
    fn writes_to(&self, place: file::Place) {
        let _ = self.place.set(place);
    }

    /// Fails if a connection that was opened now may be to another file than the one that is written.
    fn check_place(&self) -> io::Result<()> {
        self.place.get().map_or(Ok(()), |place| place.check(&self.path))
    }

    fn writer_gone(&self) -> Cause {
        self.cause(io::Error::other("the writer of the log ended without an answer"))
    }
}

impl Phase {
    fn run(shared: &Arc<Shared>, file: Option<LogFile>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel(QUEUE);
        let writer = Writer::new(Arc::clone(shared), file);
        let thread = thread::Builder::new().name("log-writer".to_owned()).spawn(move || writer.run(inbox))?;
        Ok(Self::Running { commands, thread })
    }
}

impl Handle {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way to the writer, which is started if it was not needed before.
    fn commands(&self) -> Result<mpsc::Sender<Command>, NoWriter> {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Absent) {
            *phase = Phase::run(&self.shared, None).map_err(|error| NoWriter::Machine(self.shared.cause(error)))?;
        }
        match &*phase {
            Phase::Running { commands, .. } => Ok(commands.clone()),
            Phase::ReadOnly => Err(NoWriter::ReadOnly),
            Phase::Absent | Phase::Closed => Err(NoWriter::Closed),
        }
    }

    /// Takes no more commands; the thread ends behind those that are queued.
    fn shut(&self) -> Option<JoinHandle<()>> {
        let phase = std::mem::replace(&mut *self.phase(), Phase::Closed);
        self.shared.readers.close();
        match phase {
            Phase::Running { thread, .. } => Some(thread),
            Phase::Absent | Phase::ReadOnly | Phase::Closed => None,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(thread) = self.shut() {
            // A writer that panicked was reported where it did, and its callers were told.
            let _ = thread.join();
        }
    }
}

impl Log for SqliteLog {
    async fn take_over(&self, partition: Partition) -> Result<Epoch, WriteError> {
        self.write(partition, |reply| Command::TakeOver { reply }).await
    }

    async fn epoch(&self, partition: Partition) -> Result<Epoch, ReadError> {
        let claimed = || Epoch(self.0.shared.claimed.load(Ordering::Acquire));
        Ok(self.query(partition, epoch::current).await?.unwrap_or_else(claimed))
    }

    async fn submit(&self, partition: Partition, epoch: Epoch, expected: Lsn, batch: Batch) -> PendingAppend {
        if partition != Partition::ZERO {
            return PendingAppend::new(ready(Err(AppendError::NoPartition(partition))));
        }
        let refused = match self.send(|reply| Command::Append(Append { epoch, expected, batch, reply })).await {
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

    async fn head(&self, partition: Partition) -> Result<Head, ReadError> {
        Ok(self.query(partition, query::head).await?.unwrap_or(Head::EMPTY))
    }

    async fn read(&self, partition: Partition, after: Lsn, limit: usize) -> Result<Vec<Stored>, ReadError> {
        let page = self.query(partition, move |connection| query::page(connection, after, limit)).await?;
        Ok(page.unwrap_or_default())
    }

    async fn read_scope(
        &self,
        partition: Partition,
        scope: Scope<'_>,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        let (index, value) = match scope {
            Scope::Session(session) => (query::Index::Session, session.as_str().to_owned()),
            Scope::Key(key) => (query::Index::Key, key.to_owned()),
        };
        let page = move |connection: &rusqlite::Connection| query::scoped(connection, index, &value, after, limit);
        Ok(self.query(partition, page).await?.unwrap_or_default())
    }

    async fn contents(&self, partition: Partition, lsns: &[Lsn]) -> Result<Vec<Option<Content>>, ReadError> {
        let asked = lsns.to_vec();
        match self.query(partition, move |connection| query::contents(connection, &asked)).await? {
            Some(contents) => contents.map_err(ReadError::Content),
            None => Ok(vec![None; lsns.len()]),
        }
    }

    async fn view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, ReadError> {
        let Some(view) = self.0.shared.options.views.iter().find(|view| view.name() == name).cloned() else {
            return Err(ReadError::NoView(name.to_owned()));
        };
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        let rows = move |connection: &rusqlite::Connection| {
            views::read(connection, (view.name(), view.version()), &prefix, after.as_deref(), limit)
        };
        match self.query(partition, rows).await? {
            Some(Some(rows)) => Ok(rows),
            Some(None) => Err(ReadError::BrokenView(name.to_owned())),
            None => Ok(Vec::new()),
        }
    }

    async fn load_snapshot(&self, partition: Partition, version: u32) -> Result<Option<Snapshot>, ReadError> {
        let snapshot = self.query(partition, move |connection| query::snapshot(connection, version)).await?;
        Ok(snapshot.flatten())
    }

    async fn save_snapshot(&self, partition: Partition, snapshot: Snapshot) -> Result<(), WriteError> {
        self.write(partition, |reply| Command::SaveSnapshot { snapshot, reply }).await
    }

    async fn redact(&self, partition: Partition, lsns: &[Lsn]) -> Result<usize, WriteError> {
        let lsns = lsns.to_vec();
        self.write(partition, |reply| Command::Redact { lsns, reply }).await
    }

    async fn probe(&self) -> Result<(), WriteError> {
        self.write(Partition::ZERO, |reply| Command::Probe { reply }).await
    }

    async fn verify(&self, partition: Partition, expected_head: Option<Head>) -> Result<Report, ReadError> {
        let mut walk = Walk::new(expected_head);
        loop {
            let page = move |connection: &rusqlite::Connection| query::walk(connection, walk, VERIFY_PAGE);
            match self.query(partition, page).await? {
                None => return Ok(Walk::new(expected_head).finish()),
                Some(ControlFlow::Continue(further)) => walk = further,
                Some(ControlFlow::Break(ended)) => return Ok(ended.finish()),
            }
        }
    }

    async fn close(&self) {
        if let Some(thread) = self.0.shut() {
            // Waits on a blocking thread; the writer itself reported how it ended.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

#[cfg(test)]
mod tests;
