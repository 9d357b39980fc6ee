//! The one thread that writes a log: takes the queued commands, commits them in groups, answers each on its own.
//!
//! It must not know the written data, statement by statement.

use std::{
    slice,
    sync::{Arc, atomic::Ordering},
};

use countersign_core::id::Lsn;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::{
    SqliteState,
    ballast::Ballast,
    epoch::EpochClaim,
    file::SqliteLogFile,
    write::{self, TransactionError},
};
use crate::{
    error::{AppendError, ErrorCause, LogOpenError, LogWriteError},
    record::{Batch, Epoch, LogHead, Snapshot},
    transfer::RawRecord,
};

/// Appends that share one commit, at most.
const GROUP: usize = 256;

/// Bytes of facts and content after which no further append is taken into a commit.
const GROUP_BYTES: usize = 1024 * 1024;

/// Something to be written. Its sender may be gone; it is written all the same.
pub(super) enum WriterCommand {
    Append(AppendRequest),
    TakeOver { reply: oneshot::Sender<Result<Epoch, LogWriteError>> },
    Redact { lsns: Vec<Lsn>, reply: oneshot::Sender<Result<usize, LogWriteError>> },
    SaveSnapshot { snapshot: Snapshot, reply: oneshot::Sender<Result<(), LogWriteError>> },
    Probe { reply: oneshot::Sender<Result<(), LogWriteError>> },
    Import { expected: LogHead, records: Vec<RawRecord>, reply: oneshot::Sender<Result<(), LogWriteError>> },
    Settle { reply: oneshot::Sender<Result<(), ErrorCause>> },
}

/// One batch, and who waits for it.
pub(super) struct AppendRequest {
    pub(super) epoch: Epoch,
    pub(super) expected: Lsn,
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<Lsn, AppendError>>,
}

/// The owner of the file.
pub(super) struct LogWriter {
    shared: Arc<SqliteState>,
    /// Absent until something has to be written.
    file: Option<SqliteLogFile>,
    ballast: Ballast,
    /// True if redacted bytes may be left in the write-ahead file. Leftovers of an earlier process are not known.
    lingers: bool,
    /// Epoch of the last try to make the file, which may be in it though the try failed.
    last_claim: Option<Epoch>,
}

impl LogWriter {
    pub(super) fn new(shared: Arc<SqliteState>, file: Option<SqliteLogFile>) -> Self {
        let ballast = Ballast::new(shared.options.ballast.clone());
        Self { shared, file, ballast, lingers: true, last_claim: None }
    }

    /// Writes until all senders are gone, then closes the file and gives its lock back.
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<WriterCommand>) {
        let mut next = None;
        while let Some(command) = next.take().or_else(|| inbox.blocking_recv()) {
            // A caller that no longer waits for the answer needs none.
            match command {
                WriterCommand::Append(first) => {
                    let (group, rest) = gather_group(first, &mut inbox);
                    next = rest;
                    self.append_group(group);
                }
                WriterCommand::TakeOver { reply } => drop(reply.send(self.take_over())),
                WriterCommand::Redact { lsns, reply } => drop(reply.send(self.redact_contents(&lsns))),
                WriterCommand::SaveSnapshot { snapshot, reply } => drop(reply.send(self.save_snapshot(&snapshot))),
                WriterCommand::Probe { reply } => drop(reply.send(self.probe_write())),
                WriterCommand::Import { expected, records, reply } => {
                    drop(reply.send(self.import_raw(expected, &records)));
                }
                WriterCommand::Settle { reply } => drop(reply.send(self.settle_commit())),
            }
        }
    }

    fn append_group(&mut self, group: Vec<AppendRequest>) {
        let answers = match self.open_file() {
            Ok(()) => self.record_group(&group),
            Err(error) => vec![Err(error); group.len()],
        };
        let recorded = answers.iter().any(Result::is_ok);
        for (append, answer) in group.into_iter().zip(answers) {
            drop(append.reply.send(answer));
        }
        if recorded {
            self.ballast.make_file();
        }
    }

    /// Makes the file if need be, checks that it is still in its place, and clears away the rest of an unsettled commit.
    fn open_file(&mut self) -> Result<(), AppendError> {
        if self.file.is_none() {
            self.make_file()
                .map_err(|error| if error.is_full() { AppendError::Full } else { AppendError::Open(error) })?;
        }
        if let Some(file) = &self.file {
            file.check_identity(&self.shared.path).map_err(|error| AppendError::Io(self.shared.error_cause(error)))?;
        }
        self.settle_commit().map_err(AppendError::from)
    }

    fn make_file(&mut self) -> Result<(), LogOpenError> {
        let epoch = Epoch(self.shared.claimed.load(Ordering::Acquire));
        let is_repeated = self.last_claim == Some(epoch);
        let claim = (epoch != Epoch::NONE).then_some(EpochClaim { epoch, is_repeated });
        self.last_claim = Some(epoch);
        let made = SqliteLogFile::create_file(&self.shared.path, &self.shared.options, claim);
        if made.as_ref().is_err_and(LogOpenError::is_full) {
            self.ballast.release_space();
        }
        let made = made?;
        self.shared.writes_to(made.identity);
        self.file = Some(made);
        self.shared.made.store(true, Ordering::Release);
        info!(path = %self.shared.path.display(), "log created");
        Ok(())
    }

    /// Records a group in one commit. Where that fails each is tried alone, since one that is too large must not take
    /// the others with it.
    fn record_group(&mut self, group: &[AppendRequest]) -> Vec<Result<Lsn, AppendError>> {
        let Some(file) = &self.file else { return vec![Err(AppendError::Closed); group.len()] };
        let batches = group.iter().map(|append| (append.epoch, append.expected, &append.batch));
        match write::append_batches(&file.connection, &self.shared.options.views, batches) {
            Ok(answers) => answers,
            Err(TransactionError::Before(_)) if group.len() > 1 => {
                group.iter().flat_map(|append| self.record_group(slice::from_ref(append))).collect()
            }
            Err(failure) => {
                let error = match self.handle_failure(failure) {
                    Ok(cause) => AppendError::from(cause),
                    Err(cause) => AppendError::Uncertain(cause),
                };
                vec![Err(error); group.len()]
            }
        }
    }

    /// Returns the failure, once it is certain that nothing of it was written; else an error.
    fn handle_failure(&mut self, failure: TransactionError) -> Result<ErrorCause, ErrorCause> {
        match failure {
            TransactionError::Before(error) => {
                let cause = self.shared.error_cause(error);
                if cause.is_full() {
                    self.ballast.release_space();
                }
                Ok(cause)
            }
            TransactionError::Commit(error) => {
                let cause = self.shared.error_cause(error);
                self.shared.unsettled.store(true, Ordering::Release);
                let settled = self.settle_commit().or_else(|_| {
                    // SQLite does not say so when it was a quota that was used up.
                    self.ballast.release_space();
                    self.settle_commit()
                });
                match settled {
                    Ok(()) => {
                        warn!(error = %cause, "a commit failed and was rolled back");
                        Ok(cause)
                    }
                    Err(again) => {
                        error!(error = %cause, %again, "a commit failed; its outcome is unknown");
                        Err(cause)
                    }
                }
            }
        }
    }

    /// Makes certain that a commit which failed half-way is not there, by a durable write in its place.
    fn settle_commit(&mut self) -> Result<(), ErrorCause> {
        if !self.shared.unsettled.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(file) = &self.file else { return Ok(()) };
        match write::probe_write(&file.connection) {
            Ok(()) => {
                self.shared.unsettled.store(false, Ordering::Release);
                Ok(())
            }
            Err(TransactionError::Before(error) | TransactionError::Commit(error)) => {
                let cause = self.shared.error_cause(error);
                if cause.is_full() {
                    self.ballast.release_space();
                }
                Err(cause)
            }
        }
    }

    /// Begins the next epoch, in memory as long as there is no file: a log that records nothing leaves nothing on disk.
    fn take_over(&mut self) -> Result<Epoch, LogWriteError> {
        let is_made = self.file.is_some() || self.shared.path.metadata().is_ok_and(|file| file.len() > 0);
        if !is_made {
            let next = Epoch(self.shared.claimed.load(Ordering::Acquire)).next();
            self.shared.claimed.store(next.0, Ordering::Release);
            return Ok(next);
        }
        if self.file.is_none() {
            self.make_to_write()?;
        }
        self.settle_commit()?;
        let Some(file) = &self.file else { return Err(LogWriteError::Closed) };
        file.check_identity(&self.shared.path).map_err(|error| LogWriteError::Io(self.shared.error_cause(error)))?;
        write::take_over(&file.connection).map_err(|failure| self.write_error(failure))
    }

    fn make_to_write(&mut self) -> Result<(), LogWriteError> {
        self.make_file().map_err(|error| if error.is_full() { LogWriteError::Full } else { LogWriteError::Open(error) })
    }

    fn redact_contents(&mut self, lsns: &[Lsn]) -> Result<usize, LogWriteError> {
        self.settle_commit()?;
        let Some(file) = &self.file else { return Ok(0) };
        let removed = match write::redact_contents(&file.connection, &self.shared.options.views, lsns) {
            Ok(removed) => removed,
            Err(failure) => return Err(self.write_error(failure)),
        };
        self.lingers |= removed > 0;
        if !self.lingers {
            return Ok(removed);
        }
        // Until then the old bytes stand in the write-ahead file.
        match write::checkpoint(&file.connection) {
            Ok(true) => {
                self.lingers = false;
                Ok(removed)
            }
            Ok(false) => {
                let busy = std::io::Error::other("a reader prevented the write-ahead file from being emptied");
                Err(LogWriteError::Lingers(self.shared.error_cause(busy)))
            }
            Err(error) => Err(LogWriteError::Lingers(self.shared.error_cause(error))),
        }
    }

    fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), LogWriteError> {
        self.settle_commit()?;
        let Some(file) = &self.file else { return Ok(()) };
        write::save_snapshot(&file.connection, snapshot).map_err(|failure| self.write_error(failure))
    }

    fn import_raw(&mut self, expected: LogHead, records: &[RawRecord]) -> Result<(), LogWriteError> {
        if self.file.is_none() {
            self.make_to_write()?;
        }
        self.settle_commit()?;
        let Some(file) = &self.file else { return Err(LogWriteError::Closed) };
        match write::import_raw(&file.connection, expected, records) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let moved = std::io::Error::other("the log was written by another process meanwhile");
                Err(LogWriteError::Io(self.shared.error_cause(moved)))
            }
            Err(failure) => Err(self.write_error(failure)),
        }
    }

    fn probe_write(&mut self) -> Result<(), LogWriteError> {
        if self.file.is_none() {
            self.make_to_write()?;
        }
        let Some(file) = &self.file else { return Err(LogWriteError::Closed) };
        file.check_identity(&self.shared.path).map_err(|error| LogWriteError::Io(self.shared.error_cause(error)))?;
        write::probe_write(&file.connection).map_err(|failure| self.write_error(failure))?;
        self.shared.unsettled.store(false, Ordering::Release);
        self.ballast.reconsider();
        self.ballast.make_file();
        Ok(())
    }

    fn write_error(&mut self, failure: TransactionError) -> LogWriteError {
        match self.handle_failure(failure) {
            Ok(cause) | Err(cause) => LogWriteError::from(cause),
        }
    }
}

/// Takes the commands queued after `first` as long as they are appends and a commit has room; returns the first command
/// that is none.
fn gather_group(
    first: AppendRequest,
    inbox: &mut mpsc::Receiver<WriterCommand>,
) -> (Vec<AppendRequest>, Option<WriterCommand>) {
    let mut bytes = first.batch.byte_size();
    let mut group = vec![first];
    while group.len() < GROUP && bytes < GROUP_BYTES {
        match inbox.try_recv() {
            Ok(WriterCommand::Append(append)) => {
                bytes += append.batch.byte_size();
                group.push(append);
            }
            Ok(other) => return (group, Some(other)),
            Err(_) => break,
        }
    }
    (group, None)
}
