//! Keeps a session's file in step with its log: a follower of what is committed.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::{Command, Event},
    id::{Lsn, SessionId},
    session::{self, SessionEntry},
    time::Millis,
};
use countersign_runtime::{CommandSource, ContentCache, ReleasedItem, Subscriber};
use tokio::sync::{
    mpsc::{self, UnboundedReceiver, UnboundedSender},
    watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::error;

use super::entries;
use crate::session_file::{EntryWriter, FileMark, SessionFileWriteError};

/// Maximum number of released items after a name before the name is in the file: the file is written as a whole for one, and only the last
/// of many has to be there.
const BEHIND_A_NAME: usize = 1024;

/// The one who writes a session's file.
pub struct SessionFileWriter {
    path: PathBuf,
    task: tokio::task::JoinHandle<Result<(), UnwrittenError>>,
    /// Ends it before the log ends; so does dropping it.
    ends: DropGuard,
    notices: UnboundedReceiver<String>,
    names: watch::Receiver<u64>,
}

struct FileWriterTask {
    ends: CancellationToken,
    session: SessionId,
    writer: EntryWriter,
    subscriber: Subscriber,
    /// The entries up to here are in the file already, or on their way.
    head: Lsn,
    contents: ContentCache,
    source: CommandSource,
    is_dirty: bool,
    /// The name that is not in the file yet, and since when the session has it.
    due: Option<(String, Millis)>,
    /// Number of items since a name that was not tried to be written.
    behind: Option<usize>,
    marked: Option<FileMark>,
    notices: UnboundedSender<String>,
    names: watch::Sender<u64>,
    /// True if it was reported that the file cannot be written.
    is_stuck: bool,
    /// True if the file belongs to another program now.
    is_lost: bool,
}

impl SessionFileWriter {
    /// Follows a session from after `head` on. Entries that the writer has already are written first: all entries up to there, and the name
    /// that is `due`.
    pub fn start(
        session: SessionId,
        writer: EntryWriter,
        due: Option<(String, Millis)>,
        subscriber: Subscriber,
        head: Lsn,
        contents: ContentCache,
        source: CommandSource,
    ) -> Self {
        let path = writer.path().to_owned();
        let (sender, notices) = mpsc::unbounded_channel();
        let (up_to, names) = watch::channel(0);
        let ends = CancellationToken::new();
        let work = FileWriterTask {
            ends: ends.clone(),
            session,
            writer,
            subscriber,
            head,
            contents,
            source,
            is_dirty: true,
            due,
            behind: None,
            marked: None,
            notices: sender,
            names: up_to,
            is_stuck: false,
            is_lost: false,
        };
        Self { path, task: tokio::spawn(work.follow_log()), ends: ends.drop_guard(), notices, names }
    }

    /// Returns the path of the file, whether or not it exists yet.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the frame before which every name of the session is in the file, as far as it can be written.
    pub fn name_positions(&self) -> watch::Receiver<u64> {
        self.names.clone()
    }

    /// Returns the next notice about the file for users.
    ///
    /// *Cancellation*: nothing is lost.
    pub async fn next_notice(&mut self) -> String {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => std::future::pending().await,
        }
    }

    /// Waits for the end of the log that it follows.
    ///
    /// # Errors
    /// `Unwritten`: the log has what the file has not.
    pub async fn finish(self) -> Result<(), UnwrittenError> {
        // One that panicked has written what it could.
        self.task.await.unwrap_or(Ok(()))
    }

    /// Brings the file up to what was released, records what it is, and ends.
    pub async fn stop(self) {
        drop(self.ends);
        let _ = self.task.await;
    }
}

/// The session's file is not whole.
#[derive(Debug, thiserror::Error)]
#[error("{path}: the session file could not be written to its end; what is missing is in the log of this session", path = .0.display())]
pub struct UnwrittenError(PathBuf);

impl FileWriterTask {
    async fn follow_log(mut self) -> Result<(), UnwrittenError> {
        loop {
            if let Some(released) = self.subscriber.try_next() {
                self.handle_released(&released).await;
                // Events may come without end, and the requester of a name must not wait.
                if self.behind.is_some_and(|behind| behind >= BEHIND_A_NAME) {
                    self.write_name().await;
                }
                if self.behind.is_none() {
                    self.names.send_replace(self.subscriber.position());
                }
                continue;
            }
            self.write_name().await;
            self.write_file();
            self.names.send_replace(self.subscriber.position());
            let next = tokio::select! {
                biased;
                () = self.ends.cancelled() => None,
                next = self.subscriber.next() => next,
            };
            match next {
                Some(released) => self.handle_released(&released).await,
                None => break,
            }
        }
        while let Some(released) = self.subscriber.try_next() {
            self.handle_released(&released).await;
        }
        self.write_file();
        if self.writer.close() {
            self.is_dirty = true;
            self.write_file();
        }
        if self.ends.is_cancelled() {
            self.record_mark().await;
        }
        if self.is_stuck && self.is_dirty { Err(UnwrittenError(self.writer.path().to_owned())) } else { Ok(()) }
    }

    async fn handle_released(&mut self, released: &ReleasedItem) {
        if let Some(behind) = &mut self.behind {
            *behind += 1;
        }
        let ReleasedItem::Fact(recorded) = released else { return };
        if recorded.meta.session.as_ref() != Some(&self.session) {
            return;
        }
        match &recorded.fact.event {
            Event::Session(session::Event::Entry { .. }) if recorded.meta.lsn <= self.head => {}
            Event::Session(session::Event::Entry { id, parent, kind, tokens, made_at, content_at }) => {
                let at = content_at.unwrap_or(recorded.meta.lsn);
                let content = match &recorded.fact.content {
                    Some(content) => Some(content.clone()),
                    None => match self.contents.get(&[at]).await {
                        Ok(mut texts) => texts.pop().flatten(),
                        Err(failed) => return self.lose_file(&failed),
                    },
                };
                let entry = SessionEntry {
                    id: id.clone(),
                    parent: parent.clone(),
                    kind: kind.clone(),
                    lsn: recorded.meta.lsn,
                    content: at,
                    at: made_at.unwrap_or(recorded.meta.at),
                    tokens: *tokens,
                    shown: true,
                    pruned: None,
                };
                let line = content.and_then(|content| entries::to_file(&entry, &content));
                if let Some(line) = line.filter(|_| !self.is_lost) {
                    if let Err(failed) = self.writer.push(&line) {
                        self.handle_failure(failed);
                    }
                    self.is_dirty = true;
                }
            }
            Event::Session(session::Event::Named { name }) if !self.is_lost => {
                self.due = Some((name.clone(), recorded.meta.at));
                self.is_dirty = true;
                self.behind.get_or_insert(0);
            }
            Event::Run(countersign_core::run::Event::Ended { .. }) => {
                self.write_file();
                self.record_mark().await;
            }
            _ => {}
        }
    }

    /// Brings a name that came into the file, with what came before it, and records what the file is with it.
    async fn write_name(&mut self) {
        if self.behind.is_some() {
            self.write_file();
            self.record_mark().await;
        }
    }

    fn write_file(&mut self) {
        self.behind = None;
        if self.is_lost || !std::mem::take(&mut self.is_dirty) {
            return;
        }
        match self.flush() {
            Ok(is_written) => {
                // If there was nothing to write, there is no proof that it can be written.
                if is_written && std::mem::take(&mut self.is_stuck) {
                    self.send_notice(format!("{}: the session file is written again", self.writer.path().display()));
                }
            }
            Err(failed) => self.handle_failure(failed),
        }
    }

    /// Writes the name that is due, and what waits. True if there was something to write.
    fn flush(&mut self) -> Result<bool, SessionFileWriteError> {
        let named = match self.due.take() {
            Some((name, at)) => {
                self.writer.set_title(Some(name.clone()), at).inspect_err(|_| self.due = Some((name, at)))
            }
            None => Ok(Vec::new()),
        };
        // The file must be written as a whole for a name. What waits needs less room.
        let named = match named {
            Ok(marks) => Ok(self.note_marks(&marks)),
            Err(failed @ SessionFileWriteError::Io { .. }) => Err(failed),
            Err(failed) => return Err(failed),
        };
        let marks = self.writer.flush()?;
        let is_written = self.note_marks(&marks);
        Ok(named? || is_written)
    }

    /// Keeps the last of these for when it is recorded what the file is. True if there is one.
    fn note_marks(&mut self, marks: &[FileMark]) -> bool {
        self.marked = marks.last().copied().or(self.marked);
        !marks.is_empty()
    }

    /// Tries a failed write again, unless the file belongs to another program now.
    fn handle_failure(&mut self, failed: SessionFileWriteError) {
        match failed {
            SessionFileWriteError::Changed(path) | SessionFileWriteError::Exists(path) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    error!(path = %path.display(), "another program changed or removed the session file; it is not written any more");
                    self.send_notice(format!(
                        "{}: another program changed or removed the session file. It is not written any more; what is said from now on is in the log of \
                         this session alone",
                        path.display()
                    ));
                }
            }
            SessionFileWriteError::Io { .. } => {
                error!(error = %failed, "the session file could not be written");
                self.is_dirty = true;
                if !std::mem::replace(&mut self.is_stuck, true) {
                    self.send_notice(format!("the session file could not be written: {failed}"));
                }
            }
        }
    }

    /// Leaves the file as it is: without this entry, those after it would look as if it had been removed. The next process adds the missing
    /// entries at the end.
    fn lose_file(&mut self, failed: &impl std::fmt::Display) {
        if !std::mem::replace(&mut self.is_lost, true) {
            let path = self.writer.path().display();
            error!(%path, error = %failed, "an entry cannot be read; the session file is not written any more");
            self.send_notice(format!(
                "{path}: what was said cannot be read from the log of this session ({failed}): the session file is not written any \
                 more until the session is opened again"
            ));
        }
    }

    /// Tells people something, who may have gone.
    fn send_notice(&self, notice: String) {
        let _ = self.notices.send(notice);
    }

    /// Records what the file is now, so that the next process can tell what others changed.
    async fn record_mark(&mut self) {
        if let Some(mark) = self.marked.take() {
            let command = session::Command::FileWritten {
                path: self.writer.path().display().to_string(),
                length: mark.length,
                digest: mark.digest.to_string(),
            };
            self.source.post_command(Command::Session(self.session.clone(), command)).await;
        }
    }
}
