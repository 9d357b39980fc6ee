//! A log in a PostgreSQL database: one writer thread that commits in groups, and a pool of connections that only read.
//!
//! It must not know what a record means. The process that opens the database for writing holds a lock of its session until
//! the last handle is gone. Several owners are distinguished by their epoch, as in every log.
//!
//! The tables are in `postgres/schema/`, in the schema `countersign` of the database; the chain is described in
//! [`crate::chain`]. One statement writes a group of appends (`postgres/append.sql`): it locks the row of the partition,
//! compares epoch, connection and head, and inserts records, contents and rows of views, or nothing.

mod command;
mod connect;
mod group;
mod import;
mod known_head;
mod leases;
mod options;
mod query;
mod schema;
mod session;
mod statements;
mod tls;
mod trial;
mod view_rows;
mod views;
mod writer;

use std::{
    fmt,
    future::ready,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use countersign_core::id::Lsn;
use deadpool_postgres::{Object, Pool, PoolError};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot},
    time::{error::Elapsed, timeout},
};

use self::{
    command::WriterCommand,
    connect::{Access, Connector},
    group::AppendRequest,
    statements::silence,
    writer::LogWriter,
};
pub use self::{
    known_head::KnownHead,
    leases::{ClusterRows, ClusterTables, LeaseClaim, LeaseRow, NodeIdentity, NodeRow},
    options::PostgresOptions,
};
use crate::{
    append::PendingAppend,
    database_error::{DatabaseError, ServerError},
    error::{AppendError, ErrorCause, LogReadError, LogWriteError},
    log::Log,
    record::{
        Batch, Epoch, FactsPage, LogHead, Partition, ReadScope, RecordFacts, Snapshot, StoredContent, StoredRecord,
    },
    transfer::{RawLog, RawRecord},
    verify::{ChainWalk, VerifyReport},
};

/// Commands that may wait for the writer; later callers wait for a place.
const QUEUE: usize = 256;

/// Records that are checked in one short statement.
const VERIFY_PAGE: usize = 512;

/// A log in a PostgreSQL database. A clone is another handle to the same log.
///
/// Dropping the last handle waits for the queued batches, as [`Log::close`] does, but blocks the thread meanwhile.
#[derive(Clone)]
pub struct PostgresLog(Arc<PostgresHandle>);

struct PostgresHandle {
    shared: Arc<PostgresState>,
    phase: Mutex<WriterPhase>,
}

/// State that handles, writer and readers share.
struct PostgresState {
    options: PostgresOptions,
    server: String,
    readers: Pool,
    answer_timeout: Duration,
    /// True if it is not known what became of an append.
    unsettled: AtomicBool,
}

enum WriterPhase {
    Running { commands: mpsc::Sender<WriterCommand>, thread: JoinHandle<()> },
    ReadOnly,
    Closed,
}

/// Why there is no writer to ask.
enum NoWriter {
    ReadOnly,
    Closed,
}

/// Runs a query on a connection that only reads, with a limit of time.
macro_rules! run_query {
    ($self:ident, $partition:expr, $client:ident => $query:expr) => {{
        let connection = $self.reader($partition).await?;
        let $client = &connection;
        let answer = timeout($self.0.shared.answer_timeout, $query).await;
        $self.0.shared.finish_read(connection, answer)
    }};
}

impl PostgresLog {
    /// Opens the log for writing, and makes its tables if they are not there yet.
    ///
    /// Tables of an older version are brought to today's, and views that lack records are folded, which blocks as long as
    /// that takes.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::Owned`] if another process has the log open for writing.
    pub fn open(options: PostgresOptions) -> Result<Self, DatabaseError> {
        let connector = Connector::new(&options, Access::Write)?;
        let shared = PostgresState::new(options, &connector)?;
        let (commands, inbox) = mpsc::channel(QUEUE);
        let (opened, result) = std::sync::mpsc::channel();
        let state = Arc::clone(&shared);
        let server = connector.server.clone();
        let failed = |problem: String| DatabaseError::Failed { server, problem, full: false };
        let run = move || match LogWriter::open(state, connector) {
            Ok(writer) => {
                drop(opened.send(Ok(())));
                writer.run(inbox);
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        let thread = match thread::Builder::new().name("log-writer".to_owned()).spawn(run) {
            Ok(thread) => thread,
            Err(error) => return Err(failed(error.to_string())),
        };
        match result.recv() {
            Ok(Ok(())) => Ok(Self::with_phase(shared, WriterPhase::Running { commands, thread })),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(failed("the writer of the log ended".to_owned())),
        }
    }

    /// Opens the log for reading only, whether or not it has an owner. Takes no lock, and knows no views. Blocks until the
    /// server has answered.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::NoLog`] if there is no log.
    pub fn open_read_only(options: PostgresOptions) -> Result<Self, DatabaseError> {
        let connector = Connector::new(&options, Access::Read)?;
        let shared = PostgresState::new(options, &connector)?;
        let event_format = shared.options.event_format;
        run_apart(connector, async move |connector| {
            let connected = connector.connect().await?;
            schema::check_log(&connected.client, &connector.server, event_format).await
        })?;
        Ok(Self::with_phase(shared, WriterPhase::ReadOnly))
    }

    /// Checks whether the server could hold a log that is written: its version, settings and role, and the space on its disk. Makes
    /// nothing, takes no lock, and blocks until the server has answered.
    ///
    /// # Errors
    /// [`DatabaseError`], as [`PostgresLog::open`] would return it, or for a full disk.
    pub fn check_server(options: &PostgresOptions) -> Result<(), DatabaseError> {
        let event_format = options.event_format;
        run_apart(Connector::new(options, Access::Write)?, async move |connector| {
            let connected = connector.connect().await?;
            schema::check_privileges(&connected.client, &connector.server, event_format).await?;
            trial::check_space(&connected.client, &connector.server).await
        })
    }

    /// Returns hosts, ports and name of the database, without a password.
    pub fn server(&self) -> &str {
        &self.0.shared.server
    }

    fn with_phase(shared: Arc<PostgresState>, phase: WriterPhase) -> Self {
        Self(Arc::new(PostgresHandle { shared, phase: Mutex::new(phase) }))
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

    async fn send_write<T>(
        &self,
        partition: Partition,
        command: impl FnOnce(oneshot::Sender<Result<T, LogWriteError>>) -> WriterCommand + Send,
    ) -> Result<T, LogWriteError> {
        if partition != Partition::ZERO {
            return Err(LogWriteError::NoPartition(partition));
        }
        match self.send_command(command).await {
            Ok(replied) => replied.await.unwrap_or_else(|_| Err(LogWriteError::Io(writer_gone()))),
            Err(NoWriter::ReadOnly) => Err(LogWriteError::ReadOnly),
            Err(NoWriter::Closed) => Err(LogWriteError::Closed),
        }
    }

    /// Returns a connection that only reads, once it is known where the log ends.
    async fn reader(&self, partition: Partition) -> Result<Object, LogReadError> {
        if partition != Partition::ZERO {
            return Err(LogReadError::NoPartition(partition));
        }
        if matches!(*self.0.lock_phase(), WriterPhase::Closed) {
            return Err(LogReadError::Closed);
        }
        let shared = &self.0.shared;
        if shared.unsettled.load(Ordering::Acquire) {
            match self.send_command(|reply| WriterCommand::Settle { reply }).await {
                Ok(replied) => {
                    replied.await.unwrap_or_else(|_| Err(writer_gone())).map_err(LogReadError::Unsettled)?;
                }
                Err(NoWriter::ReadOnly | NoWriter::Closed) => return Err(LogReadError::Closed),
            }
        }
        shared.readers.get().await.map_err(|error| shared.pool_error(&error))
    }
}

impl fmt::Debug for PostgresLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLog").field("server", &self.0.shared.server).finish_non_exhaustive()
    }
}

impl PostgresState {
    fn new(options: PostgresOptions, connector: &Connector) -> Result<Arc<Self>, DatabaseError> {
        Ok(Arc::new(Self {
            readers: connector.pool(options.readers)?,
            server: connector.server.clone(),
            answer_timeout: connector.answer_timeout(),
            unsettled: AtomicBool::new(false),
            options,
        }))
    }

    fn finish_read<T>(
        &self,
        connection: Object,
        answer: Result<Result<T, tokio_postgres::Error>, Elapsed>,
    ) -> Result<T, LogReadError> {
        match answer {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(read_error(&self.server, &error)),
            Err(_) => {
                // The next query on this connection would wait behind this one.
                drop(Object::take(connection));
                Err(LogReadError::Io(ErrorCause::new(silence(self.answer_timeout))))
            }
        }
    }

    fn pool_error(&self, error: &PoolError) -> LogReadError {
        match error {
            PoolError::Closed => LogReadError::Closed,
            PoolError::Backend(error) => {
                LogReadError::Io(ErrorCause::new(DatabaseError::of_connect(&self.server, error)))
            }
            other => LogReadError::Io(ErrorCause::new(ServerError::new(other.to_string()))),
        }
    }
}

/// Tells damage from a server that refuses.
fn read_error(server: &str, error: &tokio_postgres::Error) -> LogReadError {
    let damaged = error.as_db_error().is_none() && !error.is_closed() && error.to_string().contains("deserializing");
    let cause = ErrorCause::new(DatabaseError::of_statement(server, error));
    if damaged { LogReadError::Corrupt(cause) } else { LogReadError::Io(cause) }
}

/// Does `work` on a thread of its own, since the caller's may drive a runtime already.
fn run_apart(
    connector: Connector,
    work: impl AsyncFnOnce(&Connector) -> Result<(), DatabaseError> + Send + 'static,
) -> Result<(), DatabaseError> {
    let server = connector.server.clone();
    let failed = move |problem: String| DatabaseError::Failed { server, problem, full: false };
    let working = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| runtime.block_on(work(&connector)))
    });
    match working.join() {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the thread of the connection panicked".to_owned())),
    }
}

fn writer_gone() -> ErrorCause {
    ErrorCause::new(ServerError::new("the writer of the log ended without an answer"))
}

impl PostgresHandle {
    fn lock_phase(&self) -> MutexGuard<'_, WriterPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command_sender(&self) -> Result<mpsc::Sender<WriterCommand>, NoWriter> {
        match &*self.lock_phase() {
            WriterPhase::Running { commands, .. } => Ok(commands.clone()),
            WriterPhase::ReadOnly => Err(NoWriter::ReadOnly),
            WriterPhase::Closed => Err(NoWriter::Closed),
        }
    }

    /// Takes no more commands; the thread ends after those that are queued.
    fn shut_down(&self) -> Option<JoinHandle<()>> {
        let phase = std::mem::replace(&mut *self.lock_phase(), WriterPhase::Closed);
        self.shared.readers.close();
        match phase {
            WriterPhase::Running { thread, .. } => Some(thread),
            WriterPhase::ReadOnly | WriterPhase::Closed => None,
        }
    }
}

impl Drop for PostgresHandle {
    fn drop(&mut self) {
        if let Some(thread) = self.shut_down() {
            // A writer that panicked was reported where it did, and its callers got an error.
            let _ = thread.join();
        }
    }
}

impl RawLog for PostgresLog {
    async fn read_raw(&self, after: Lsn, limit: usize) -> Result<Vec<RawRecord>, LogReadError> {
        run_query!(self, Partition::ZERO, client => query::read_raw(client, after, limit))
    }

    async fn import_raw(&self, expected: LogHead, records: Vec<RawRecord>) -> Result<(), LogWriteError> {
        self.send_write(Partition::ZERO, |reply| WriterCommand::Import { expected, records, reply }).await
    }
}

impl Log for PostgresLog {
    async fn take_over(&self, partition: Partition) -> Result<Epoch, LogWriteError> {
        self.send_write(partition, |reply| WriterCommand::TakeOver { reply }).await
    }

    async fn current_epoch(&self, partition: Partition) -> Result<Epoch, LogReadError> {
        run_query!(self, partition, client => query::current_epoch(client))
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
                let lost = |_| Err(AppendError::Uncertain(writer_gone()));
                return PendingAppend::new(async move { replied.await.unwrap_or_else(lost) });
            }
            Err(NoWriter::ReadOnly) => AppendError::ReadOnly,
            Err(NoWriter::Closed) => AppendError::Closed,
        };
        PendingAppend::new(ready(Err(refused)))
    }

    async fn head(&self, partition: Partition) -> Result<LogHead, LogReadError> {
        run_query!(self, partition, client => query::read_head(client))
    }

    async fn read_records(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        run_query!(self, partition, client => query::read_page(client, after, limit))
    }

    async fn read_facts<T: Send + 'static>(
        &self,
        partition: Partition,
        after: Lsn,
        limit: usize,
        convert: fn(RecordFacts<'_>) -> T,
    ) -> Result<FactsPage<T>, LogReadError> {
        run_query!(self, partition, client => query::read_facts(client, after, limit, convert))
    }

    async fn read_scope(
        &self,
        partition: Partition,
        scope: ReadScope<'_>,
        after: Lsn,
        limit: usize,
    ) -> Result<Vec<StoredRecord>, LogReadError> {
        run_query!(self, partition, client => query::read_scope(client, scope, after, limit))
    }

    async fn read_contents(
        &self,
        partition: Partition,
        lsns: &[Lsn],
    ) -> Result<Vec<Option<StoredContent>>, LogReadError> {
        let contents = run_query!(self, partition, client => query::read_contents(client, lsns))?;
        contents.map_err(LogReadError::Content)
    }

    async fn read_view(
        &self,
        partition: Partition,
        name: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, Bytes)>, LogReadError> {
        let Some(view) = self.0.shared.options.views.iter().find(|view| view.name() == name) else {
            return Err(LogReadError::NoView(name.to_owned()));
        };
        let view = (view.name(), view.version());
        let rows = run_query!(self, partition, client => query::read_view(client, view, prefix, after, limit))?;
        rows.ok_or_else(|| LogReadError::BrokenView(name.to_owned()))
    }

    async fn load_snapshot(&self, partition: Partition, version: u32) -> Result<Option<Snapshot>, LogReadError> {
        run_query!(self, partition, client => query::read_snapshot(client, version))
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
            let page = run_query!(self, partition, client => query::walk_chain(client, walk, VERIFY_PAGE));
            match page? {
                ControlFlow::Continue(further) => walk = further,
                ControlFlow::Break(ended) => return Ok(ended.finish()),
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
