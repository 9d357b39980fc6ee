//! The one thread that writes a log: takes what is queued, commits it in groups, answers each on its own.
//!
//! It must not know what is written, statement by statement.

use std::{
    slice,
    sync::{Arc, atomic::Ordering},
};

use countersign_core::id::Lsn;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::{
    Shared,
    ballast::Ballast,
    epoch::Claim,
    file::LogFile,
    write::{self, Failure},
};
use crate::{
    error::{AppendError, Cause, OpenError, WriteError},
    record::{Batch, Epoch, Snapshot},
};

/// Appends that share one commit, at most.
const GROUP: usize = 256;

/// Bytes of facts and content behind which no further append is taken into a commit.
const GROUP_BYTES: usize = 1024 * 1024;

/// Something to be written. Whoever sent it may be gone; it is written all the same.
pub(super) enum Command {
    Append(Append),
    TakeOver { reply: oneshot::Sender<Result<Epoch, WriteError>> },
    Redact { lsns: Vec<Lsn>, reply: oneshot::Sender<Result<usize, WriteError>> },
    SaveSnapshot { snapshot: Snapshot, reply: oneshot::Sender<Result<(), WriteError>> },
    Probe { reply: oneshot::Sender<Result<(), WriteError>> },
    Settle { reply: oneshot::Sender<Result<(), Cause>> },
}

/// One batch, and who waits for it.
pub(super) struct Append {
    pub(super) epoch: Epoch,
    pub(super) expected: Lsn,
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<Lsn, AppendError>>,
}

/// The owner of the file.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// Absent until something has to be written.
    file: Option<LogFile>,
    ballast: Ballast,
    /// Whether redacted bytes may be left in the write-ahead file. What an earlier process left is not known.
    lingers: bool,
    /// Epoch of the last try to make the file, which may be in it though the try failed.
    last_claim: Option<Epoch>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, file: Option<LogFile>) -> Self {
        let ballast = Ballast::new(shared.options.ballast.clone());
        Self { shared, file, ballast, lingers: true, last_claim: None }
    }

    /// Writes until nobody can send any more, then closes the file and gives its lock back.
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let mut next = None;
        while let Some(command) = next.take().or_else(|| inbox.blocking_recv()) {
            // Whoever does not wait for the answer any more needs none.
            match command {
                Command::Append(first) => {
                    let (group, rest) = gather(first, &mut inbox);
                    next = rest;
                    self.append(group);
                }
                Command::TakeOver { reply } => drop(reply.send(self.take_over())),
                Command::Redact { lsns, reply } => drop(reply.send(self.redact(&lsns))),
                Command::SaveSnapshot { snapshot, reply } => drop(reply.send(self.save(&snapshot))),
                Command::Probe { reply } => drop(reply.send(self.probe())),
                Command::Settle { reply } => drop(reply.send(self.settle())),
            }
        }
    }

    fn append(&mut self, group: Vec<Append>) {
        let told = match self.open() {
            Ok(()) => self.record(&group),
            Err(error) => vec![Err(error); group.len()],
        };
        let recorded = told.iter().any(Result::is_ok);
        for (append, told) in group.into_iter().zip(told) {
            drop(append.reply.send(told));
        }
        if recorded {
            self.ballast.make();
        }
    }

    /// Makes the file if need be, sees that it is still in its place, and clears away what an unsettled commit left.
    fn open(&mut self) -> Result<(), AppendError> {
        if self.file.is_none() {
            self.make().map_err(|error| if error.is_full() { AppendError::Full } else { AppendError::Open(error) })?;
        }
        if let Some(file) = &self.file {
            file.check(&self.shared.path).map_err(|error| AppendError::Io(self.shared.cause(error)))?;
        }
        self.settle().map_err(AppendError::from)
    }

    fn make(&mut self) -> Result<(), OpenError> {
        let epoch = Epoch(self.shared.claimed.load(Ordering::Acquire));
        let is_repeated = self.last_claim == Some(epoch);
        let claim = (epoch != Epoch::NONE).then_some(Claim { epoch, is_repeated });
        self.last_claim = Some(epoch);
        let made = LogFile::make(&self.shared.path, &self.shared.options, claim);
        if made.as_ref().is_err_and(OpenError::is_full) {
            self.ballast.free();
        }
        let made = made?;
        self.shared.writes_to(made.place);
        self.file = Some(made);
        self.shared.made.store(true, Ordering::Release);
        info!(path = %self.shared.path.display(), "log made");
        Ok(())
    }

    /// Records a group in one commit. Where that fails each is tried alone, since one that is too large must not take
    /// the others with it.
    fn record(&mut self, group: &[Append]) -> Vec<Result<Lsn, AppendError>> {
        let Some(file) = &self.file else { return vec![Err(AppendError::Closed); group.len()] };
        let batches = group.iter().map(|append| (append.epoch, append.expected, &append.batch));
        match write::append(&file.connection, &self.shared.options.views, batches) {
            Ok(answers) => answers,
            Err(Failure::Before(_)) if group.len() > 1 => {
                group.iter().flat_map(|append| self.record(slice::from_ref(append))).collect()
            }
            Err(failure) => {
                let error = match self.failed(failure) {
                    Ok(cause) => AppendError::from(cause),
                    Err(cause) => AppendError::Uncertain(cause),
                };
                vec![Err(error); group.len()]
            }
        }
    }

    /// What failed, once it is certain that nothing of it was written; else an error.
    fn failed(&mut self, failure: Failure) -> Result<Cause, Cause> {
        match failure {
            Failure::Before(error) => {
                let cause = self.shared.cause(error);
                if cause.is_full() {
                    self.ballast.free();
                }
                Ok(cause)
            }
            Failure::Commit(error) => {
                let cause = self.shared.cause(error);
                self.shared.unsettled.store(true, Ordering::Release);
                let settled = self.settle().or_else(|_| {
                    // SQLite does not say so when it was a quota that was used up.
                    self.ballast.free();
                    self.settle()
                });
                match settled {
                    Ok(()) => {
                        warn!(error = %cause, "a commit failed and was undone");
                        Ok(cause)
                    }
                    Err(again) => {
                        error!(error = %cause, %again, "a commit failed, and what became of it cannot be told");
                        Err(cause)
                    }
                }
            }
        }
    }

    /// Makes certain that a commit which failed half-way is not there, by a durable write in its place.
    fn settle(&mut self) -> Result<(), Cause> {
        if !self.shared.unsettled.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(file) = &self.file else { return Ok(()) };
        match write::probe(&file.connection) {
            Ok(()) => {
                self.shared.unsettled.store(false, Ordering::Release);
                Ok(())
            }
            Err(Failure::Before(error) | Failure::Commit(error)) => {
                let cause = self.shared.cause(error);
                if cause.is_full() {
                    self.ballast.free();
                }
                Err(cause)
            }
        }
    }

    /// Begins the next epoch, in memory as long as there is no file: a log that records nothing leaves nothing on disk.
    fn take_over(&mut self) -> Result<Epoch, WriteError> {
        let is_made = self.file.is_some() || self.shared.path.metadata().is_ok_and(|file| file.len() > 0);
        if !is_made {
            let next = Epoch(self.shared.claimed.load(Ordering::Acquire)).next();
            self.shared.claimed.store(next.0, Ordering::Release);
            return Ok(next);
        }
        if self.file.is_none() {
            self.make_to_write()?;
        }
        self.settle()?;
        let Some(file) = &self.file else { return Err(WriteError::Closed) };
        file.check(&self.shared.path).map_err(|error| WriteError::Io(self.shared.cause(error)))?;
        write::take_over(&file.connection).map_err(|failure| self.refused(failure))
    }

    fn make_to_write(&mut self) -> Result<(), WriteError> {
        self.make().map_err(|error| if error.is_full() { WriteError::Full } else { WriteError::Open(error) })
    }

    fn redact(&mut self, lsns: &[Lsn]) -> Result<usize, WriteError> {
        self.settle()?;
        let Some(file) = &self.file else { return Ok(0) };
        let removed = match write::redact(&file.connection, &self.shared.options.views, lsns) {
            Ok(removed) => removed,
            Err(failure) => return Err(self.refused(failure)),
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
                let busy = std::io::Error::other("a reader kept the write-ahead file from being emptied");
                Err(WriteError::Lingers(self.shared.cause(busy)))
            }
            Err(error) => Err(WriteError::Lingers(self.shared.cause(error))),
        }
    }

    fn save(&mut self, snapshot: &Snapshot) -> Result<(), WriteError> {
        self.settle()?;
        let Some(file) = &self.file else { return Ok(()) };
        write::save(&file.connection, snapshot).map_err(|failure| self.refused(failure))
    }

    fn probe(&mut self) -> Result<(), WriteError> {
        if self.file.is_none() {
            self.make_to_write()?;
        }
        let Some(file) = &self.file else { return Err(WriteError::Closed) };
        file.check(&self.shared.path).map_err(|error| WriteError::Io(self.shared.cause(error)))?;
        write::probe(&file.connection).map_err(|failure| self.refused(failure))?;
        self.shared.unsettled.store(false, Ordering::Release);
        self.ballast.reconsider();
        self.ballast.make();
        Ok(())
    }

    fn refused(&mut self, failure: Failure) -> WriteError {
        match self.failed(failure) {
            Ok(cause) | Err(cause) => WriteError::from(cause),
        }
    }
}

/// Takes what is queued behind `first` as long as it is appends and a commit has room; gives back the first command
/// that is none.
fn gather(first: Append, inbox: &mut mpsc::Receiver<Command>) -> (Vec<Append>, Option<Command>) {
    let mut bytes = first.batch.size();
    let mut group = vec![first];
    while group.len() < GROUP && bytes < GROUP_BYTES {
        match inbox.try_recv() {
            Ok(Command::Append(append)) => {
                bytes += append.batch.size();
                group.push(append);
            }
            Ok(other) => return (group, Some(other)),
            Err(_) => break,
        }
    }
    (group, None)
}
