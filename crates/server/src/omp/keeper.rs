//! Keeps a session's file in step with its log: a follower of what is committed.

use std::path::{Path, PathBuf};

use countersign_core::{
    engine::{Command, Event},
    id::SessionId,
    session::{self, Entry},
};
use countersign_runtime::{Contents, Released, Source, Subscriber};
use tracing::error;

use super::entries;
use crate::session_file::{Mark, WriteError, Writer};

/// The one who writes a session's file.
pub(crate) struct Keeper {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

struct Work {
    session: SessionId,
    writer: Writer,
    subscriber: Subscriber,
    contents: Contents,
    source: Source,
    is_dirty: bool,
    marked: Option<Mark>,
}

impl Keeper {
    /// Follows a session from here on. What the writer was given already is written first.
    pub(crate) fn start(
        session: SessionId,
        writer: Writer,
        subscriber: Subscriber,
        contents: Contents,
        source: Source,
    ) -> Self {
        let path = writer.path().to_owned();
        let work = Work { session, writer, subscriber, contents, source, is_dirty: true, marked: None };
        Self { path, task: tokio::spawn(work.follow()) }
    }

    /// Where the file is, whether or not it is there yet.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the end of the log that it follows.
    pub(crate) async fn finish(self) {
        let _ = self.task.await;
    }
}

impl Work {
    async fn follow(mut self) {
        loop {
            if let Some(released) = self.subscriber.try_next() {
                self.take(&released).await;
                continue;
            }
            self.write().await;
            match self.subscriber.next().await {
                Some(released) => self.take(&released).await,
                None => break,
            }
        }
        self.write().await;
    }

    async fn take(&mut self, released: &Released) {
        let Released::Fact(recorded) = released else { return };
        if recorded.meta.session.as_ref() != Some(&self.session) {
            return;
        }
        match &recorded.fact.event {
            Event::Session(session::Event::Entry { id, parent, kind, tokens, made_at, content_at }) => {
                let at = content_at.unwrap_or(recorded.meta.lsn);
                let content = match &recorded.fact.content {
                    Some(content) => Some(content.clone()),
                    None => self.contents.get(&[at]).await.ok().and_then(|mut texts| texts.pop().flatten()),
                };
                let entry = Entry {
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
                if let Some(line) = line {
                    if let Err(failed) = self.writer.push(&line) {
                        error!(error = %failed, "an entry was not added to the session file");
                    }
                    self.is_dirty = true;
                }
            }
            Event::Session(session::Event::Named { name }) => {
                self.write().await;
                match self.writer.set_title(Some(name.clone())) {
                    Ok(marks) => self.marked = marks.last().copied(),
                    Err(failed) => error!(error = %failed, "the session file was not renamed"),
                }
                self.tell().await;
            }
            Event::Run(countersign_core::run::Event::Ended { .. }) => {
                self.write().await;
                self.tell().await;
            }
            _ => {}
        }
    }

    async fn write(&mut self) {
        if !std::mem::take(&mut self.is_dirty) {
            return;
        }
        match self.writer.flush() {
            Ok(marks) => self.marked = marks.last().copied().or(self.marked),
            Err(WriteError::Changed(path)) => {
                error!(path = %path.display(), "somebody else wrote to the session file; it is left alone from now on");
            }
            Err(failed) => {
                error!(error = %failed, "the session file could not be written");
                self.is_dirty = true;
            }
        }
    }

    /// Records what the file is now, so that the next process can tell what others changed.
    async fn tell(&mut self) {
        if let Some(mark) = self.marked.take() {
            let command = session::Command::FileWritten {
                path: self.writer.path().display().to_string(),
                length: mark.length,
                digest: mark.digest.to_string(),
            };
            self.source.tell(Command::Session(self.session.clone(), command)).await;
        }
    }
}
