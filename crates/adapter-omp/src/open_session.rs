//! A session that is open: its owner, its file, its tools.

mod logged_session;
mod move_to_gateway;
mod session_copy;
mod session_start;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_core::{
    digest::Digest,
    engine::{Command, CommandError, RecordedFact},
    id::{EntryId, Lsn, SessionId},
    session::{self, SessionEntry, SessionEntryKind, SessionSetting, Settings},
    time::Millis,
};
use countersign_protocol::omp::session_file::{SessionFileEntry as FileEntry, SessionHeader};
use countersign_runtime::{
    CommandSource, InboxLane, OwnerError, OwnerHandle, Subscriber, store,
    tools::{TodoList, todo},
};

pub(crate) use self::{
    session_copy::separate_copy_of,
    session_start::{SessionStart, first_entries},
};

use self::{
    logged_session::{cwd_of, is_copy, is_recorded, name_of, path_of, record_mark, tree_of},
    move_to_gateway::MoveResult,
    session_copy::separate_copy,
};
use super::{
    dialect_options::SessionIdForm,
    entries,
    file_sync::{EntryTree, FileSyncResult, begin_with, follow_file},
    follower::{LogFollower, LogReaders},
    import_grants::import_grants,
    models,
    open_session_error::OpenSessionError,
    recover_unwritten,
    session_environment::SessionEnvironment,
    session_file_writer::{SessionFileWriter, UnwrittenError},
    session_store::{OpenedLog, SessionStore},
    tasks::{count_tasks, imported_todos, todos_on_path},
};
use crate::{
    attach::{AttachGuard, home},
    session_file::{self, BlobStore, EntryWriter, OpenedFile, SessionFileWriteError, TornEnd, name},
};

/// A session that is open.
pub struct OpenSession {
    pub id: SessionId,
    pub handle: OwnerHandle,
    pub requests: CommandSource,
    pub answers: CommandSource,
    pub subscriber: Subscriber,
    pub environment: Arc<SessionEnvironment>,
    /// The list of tasks as it was at what was released last; the workshop's is ahead of that.
    pub(crate) sent_tasks: TodoList,
    pub(crate) file_writer: Option<SessionFileWriter>,
    /// Follower of its log in addition to the adapter, if the dialect has such work.
    pub follower: Option<LogFollower>,
    /// Its place in the gateway that it lives in; none where its log is its own.
    pub attach_guard: Option<AttachGuard>,
    /// Report of the parts of its file that were left out or read otherwise than another program would, until the host has it.
    pub(crate) damage: Option<String>,
}

impl OpenSession {
    /// Begins a session. Nothing is on disk before there is something worth it.
    pub async fn begin_new(session_store: &SessionStore, beginning: SessionStart) -> Result<Self, OpenSessionError> {
        let id = fresh_id(session_store).map_err(|error| OpenSessionError::Owner(error.to_string()))?;
        let listed = imported_todos(&beginning.entries);
        let sent_tasks = TodoList::new(todo::TodoStorage::Session, listed.get());
        let OpenedLog { handle, environment, attach_guard } = session_store.open(&id, listed).await?;
        let planned = session_store.folder.as_ref().map(|folder| {
            let now = session_store.common.clock.now();
            (beginning.path.clone().unwrap_or_else(|| name::file_path(folder, now, &id)), now)
        });
        if let Some((path, _)) = &planned {
            let _ = session_store.record_home(&id, path)?;
        }
        let requests = handle.source(InboxLane::Request);
        let parent = beginning.parent.clone();
        let open = session::Command::Open {
            cwd: session_store.cwd.display().to_string(),
            name: beginning.name.clone(),
            parent: parent.clone(),
            door: Some(session_store.common.product.name().to_owned()),
            settings: Box::new(beginning.settings),
        };
        requests.send_command(Command::Session(id.clone(), open)).await?;
        let mut writer = None;
        if let Some((path, now)) = planned {
            // The file comes with the first answer; a crash before that must not lose what was acknowledged.
            let planned = session::Command::FileWritten {
                path: path.display().to_string(),
                length: 0,
                digest: Digest::hash_bytes(b"").to_string(),
            };
            requests.send_command(Command::Session(id.clone(), planned)).await?;
            let mut header = session_file::open::new_header(&id, now, &session_store.cwd, parent);
            header.title = beginning.name;
            writer = Some(
                EntryWriter::new(path, header, session_store.blob_store())
                    .when_unanswered(session_store.common.dialect.unanswered),
            );
        }
        import_grants(session_store, &requests).await?;
        let contents: Vec<_> = beginning.entries.iter().map(|entry| entry.message.content.clone()).collect();
        if !contents.is_empty() {
            begin_with(&requests, &id, beginning.entries).await?;
            count_tasks(&requests, &id, &sent_tasks).await?;
        }
        // The adapter tells live frames as well, and both it and the writer of the file say how far they are by positions.
        let subscriber = handle.subscribe().await.ok_or(OpenSessionError::Closed)?;
        let mut file_writer = None;
        if let Some(mut writer) = writer {
            let following = handle.subscribe().await.ok_or(OpenSessionError::Closed)?;
            let EntryTree { entries: begun, head } =
                tree_of(&requests, &id).await.flatten().ok_or(OpenSessionError::Closed)?;
            for line in begun.iter().zip(contents).filter_map(|(entry, content)| entries::to_file(entry, &content)) {
                writer.push(&line)?;
            }
            file_writer = Some(start_file_writer(&handle, &id, writer, None, following, head));
        }
        let answers = handle.source(InboxLane::Result);
        let follower = start_follower(session_store, &handle, &id).await?;
        Ok(Self {
            id,
            handle,
            requests,
            answers,
            subscriber,
            environment,
            sent_tasks,
            file_writer,
            follower,
            attach_guard,
            damage: None,
        })
    }

    /// Opens the session of the file at `path`, which must be one. `settings` makes the settings from the changes of model
    /// and level on the path to the leaf.
    pub(crate) async fn reopen_file(
        session_store: &SessionStore,
        path: &Path,
        settings: impl FnOnce(&[(EntryId, String)]) -> Settings,
    ) -> Result<Option<Self>, OpenSessionError> {
        let Some(opened) = read_file(path).await? else {
            let Some(id) = recover_unwritten::find_by_path(session_store, path).await else { return Ok(None) };
            if move_to_gateway::move_session(session_store, &id, path, None).await? == MoveResult::Again {
                // Its file is written now.
                return Box::pin(Self::reopen_file(session_store, path, settings)).await;
            }
            let open = session_store.open(&id, TodoList::default()).await?;
            let header =
                session_file::open::new_header(&id, session_store.common.clock.now(), &session_store.cwd, None);
            let file = SessionOrigin::Log(path.to_owned());
            return Self::continue_session(session_store, open, id, file, header, TodoList::default(), settings)
                .await
                .map(Some);
        };
        let header = opened.header.clone();
        let id = SessionId::new(header.id.as_str());
        let file = Arc::clone(&opened);
        let listed = tokio::task::spawn_blocking(move || todos_on_path(Some(&file), &[])).await;
        let listed = listed.map_err(|error| OpenSessionError::Owner(error.to_string()))??;
        let sent_tasks = TodoList::new(todo::TodoStorage::Session, listed.get());
        if move_to_gateway::move_session(session_store, &id, path, Some(&opened)).await? == MoveResult::Again {
            return Box::pin(Self::reopen_file(session_store, path, settings)).await;
        }
        let open = session_store.open(&id, listed).await.map_err(|error| match error {
            OpenSessionError::Log(error @ store::LogOpenError::Corrupt { .. }) => {
                OpenSessionError::Damaged { error, file: opened.path.clone() }
            }
            other => other,
        })?;
        if is_copy(&open.handle, &id, &opened).await {
            // The same session at another place: a conversation of its own, without the decisions.
            separate_copy(session_store, open, &opened).await?;
            return Box::pin(Self::reopen_file(session_store, path, settings)).await;
        }
        let is_new = session_store.record_home(&id, &opened.path)?;
        let (handle, is_own) = (open.handle.clone(), open.attach_guard.is_none());
        let seat = Self::continue_session(
            session_store,
            open,
            id.clone(),
            SessionOrigin::File(opened),
            header,
            sent_tasks,
            settings,
        )
        .await;
        if seat.is_err() && is_own {
            handle.close().await;
            handle.close_log().await;
        }
        if seat.is_err() && is_new {
            home::remove_home(session_store.common.folder.root(), &id);
        }
        seat.map(Some)
    }

    /// Continues a session. `sent_tasks` is the list of tasks as the file has it.
    async fn continue_session(
        session_store: &SessionStore,
        open: OpenedLog,
        id: SessionId,
        file: SessionOrigin,
        header: SessionHeader,
        sent_tasks: TodoList,
        settings: impl FnOnce(&[(EntryId, String)]) -> Settings,
    ) -> Result<Self, OpenSessionError> {
        let OpenedLog { handle, environment, attach_guard } = open;
        let requests = handle.source(InboxLane::Request);
        // Running work continues meanwhile: none of it may fall between this read and the later events.
        let following = handle.subscribe().await.ok_or(OpenSessionError::Closed)?;
        let known = tree_of(&requests, &id).await.ok_or(OpenSessionError::Closed)?;
        if known.is_none() {
            let cwd = session_store.cwd.display().to_string();
            if !header.cwd.is_empty() && header.cwd != cwd {
                // Rules and protected files were read for this folder; a file that any program may have written must not choose another.
                tracing::warn!(
                    named = header.cwd,
                    "the session file names another working folder; the session works in {cwd}"
                );
            }
            let open = session::Command::Open {
                cwd,
                name: header.title.clone(),
                parent: header.parent_session.clone(),
                door: Some(session_store.common.product.name().to_owned()),
                settings: Box::default(),
            };
            requests.send_command(Command::Session(id.clone(), open)).await?;
            if let Some(came) = move_to_gateway::origin_command(session_store, &id) {
                requests.send_command(Command::Session(id.clone(), came)).await?;
            }
        }
        // Rules and protected files were read for this folder; a session that was somewhere else comes here, unless it has a pending gate.
        let cwd = session_store.cwd.display().to_string();
        if let Some(folder) = cwd_of(&requests, &id).await.filter(|at| known.is_some() && *at != cwd) {
            let moved = requests.send_command(Command::Session(id.clone(), session::Command::Relocate { cwd })).await;
            moved.map_err(|refused| match refused {
                OwnerError::Refusal(CommandError::Busy(id)) => OpenSessionError::Stays { id, folder },
                refused => refused.into(),
            })?;
        }
        let blobs = session_store.blob_store();
        let from_log = |missing| FileSyncResult { missing, is_changed: false, lost_images: 0, following: None };
        let synced = match (&file, known) {
            (SessionOrigin::File(opened), _) => follow_file(&handle, &requests, &id, opened, &blobs).await?,
            (SessionOrigin::Log(_), Some(known)) => from_log(known),
            (SessionOrigin::Log(_), None) => from_log(EntryTree { entries: Vec::new(), head: Lsn(0) }),
        };
        let FileSyncResult { missing: EntryTree { entries: missing, head }, is_changed, lost_images, following: newer } =
            synced;
        let following = newer.unwrap_or(following);
        let title = header.title.clone().or_else(|| match &file {
            SessionOrigin::File(opened) => opened.name_in_entries().map(str::to_owned),
            SessionOrigin::Log(_) => None,
        });
        let lsns: Vec<_> = missing.iter().map(|entry| entry.content).collect();
        let contents =
            handle.contents().get(&lsns).await.map_err(|error| OpenSessionError::Owner(error.to_string()))?;
        let lines = missing.iter().zip(contents).filter_map(|(entry, content)| entries::to_file(entry, &content?));
        let lines: Vec<FileEntry> = lines.collect();
        let (mut writer, damage) = match &file {
            SessionOrigin::Log(path) => {
                let writer = EntryWriter::new(path.clone(), header, blobs);
                (writer.when_unanswered(session_store.common.dialect.unanswered), None)
            }
            SessionOrigin::File(opened) => {
                let torn_end = TornEnd::compare(opened, &lines)?;
                (resume_writer(opened, blobs, torn_end)?, opened.damage_report(torn_end, lost_images))
            }
        };
        // A file that is unchanged since holds no name that is newer than ours.
        let is_as_left = is_recorded(&requests, &id, &writer).await;
        for line in &lines {
            writer.push(line)?;
        }
        // Work that continued meanwhile may have a list that is not recorded yet.
        let is_as_in_file = environment.todo_list().get() == sent_tasks.get();
        if !lines.is_empty() {
            let written = match &file {
                SessionOrigin::File(opened) => Some(&**opened),
                SessionOrigin::Log(_) => None,
            };
            sent_tasks.set(todos_on_path(written, &lines)?.get());
        }
        if is_changed || is_as_in_file {
            environment.todo_list().set(sent_tasks.get());
        }
        if is_changed {
            count_tasks(&requests, &id, &sent_tasks).await?;
        }
        // It is a copy of what the log has: one that cannot be written now is no reason not to open the session.
        let can_wait = |failed: SessionFileWriteError| {
            if matches!(failed, SessionFileWriteError::Io { .. }) { Ok(()) } else { Err(failed) }
        };
        writer.flush().map(drop).or_else(can_wait)?;
        let mut due = None;
        match name_of(&requests, &id).await {
            // A name that was given just before the last process died is not in the file yet.
            Some(ours) if title.is_none() || is_as_left && title.as_ref() != Some(&ours) => {
                let now = session_store.common.clock.now();
                if let Err(failed) = writer.set_title(Some(ours.clone()), now) {
                    can_wait(failed)?;
                    due = Some((ours, now));
                }
            }
            ours => {
                if let Some(theirs) = title.filter(|title| ours.as_ref() != Some(title) && !title.trim().is_empty()) {
                    requests
                        .send_command(Command::Session(id.clone(), session::Command::Name { name: theirs }))
                        .await?;
                }
            }
        }
        record_mark(&requests, &id, &writer).await?;
        let file_writer = start_file_writer(&handle, &id, writer, due, following, head);
        // Those of abandoned branches do not count.
        let on_path = path_of(&requests, &id).await.unwrap_or_default();
        let notes: Vec<&SessionEntry> = on_path
            .iter()
            .filter(|entry| matches!(entry.kind, SessionEntryKind::ModelChange | SessionEntryKind::ThinkingChange))
            .collect();
        let answer = on_path.iter().rev().find(|entry| matches!(entry.kind, SessionEntryKind::Assistant { .. }));
        let lsns: Vec<_> = answer.into_iter().chain(notes.iter().copied()).map(|entry| entry.content).collect();
        let mut texts =
            handle.contents().get(&lsns).await.map_err(|error| OpenSessionError::Owner(error.to_string()))?.into_iter();
        let model = answer.and_then(|entry| {
            let content = texts.next().flatten()?;
            Some((entry.id.clone(), models::note_of_answer(&content)?))
        });
        let notes = notes.iter().zip(texts).filter_map(|(entry, text)| Some((entry.id.clone(), text?.to_string())));
        let notes: Vec<(EntryId, String)> = model.into_iter().chain(notes).collect();
        let all_settings = settings(&notes);
        let set = session::Command::Set { setting: SessionSetting::All(Box::new(all_settings)), entry: None };
        requests.send_command(Command::Session(id.clone(), set)).await?;
        import_grants(session_store, &requests).await?;
        let subscriber = handle.subscribe().await.ok_or(OpenSessionError::Closed)?;
        let answers = handle.source(InboxLane::Result);
        let follower = start_follower(session_store, &handle, &id).await?;
        let file_writer = Some(file_writer);
        Ok(Self {
            id,
            handle,
            requests,
            answers,
            subscriber,
            environment,
            sent_tasks,
            file_writer,
            follower,
            attach_guard,
            damage,
        })
    }

    /// Ends it: what is in flight is stopped and recorded, the file is brought up to the log. In a gateway it continues.
    ///
    /// # Errors
    /// [`UnwrittenError`]: it is closed, and its file is not whole.
    pub async fn close(self) -> Result<(), UnwrittenError> {
        if let Some(follower) = self.follower {
            follower.wait_finished().await;
        }
        if let Some(attach_guard) = self.attach_guard {
            attach_guard.detach_with(self.file_writer);
            return Ok(());
        }
        self.handle.close().await;
        self.environment.close().await;
        // The file is brought up to the log before the log is given up.
        let written = match self.file_writer {
            Some(file_writer) => file_writer.finish().await,
            None => Ok(()),
        };
        self.handle.close_log().await;
        written
    }

    /// Returns the session's file, where it has one.
    pub fn path(&self) -> Option<&Path> {
        self.file_writer.as_ref().map(SessionFileWriter::path)
    }
}

/// Returns the writer that continues a file, which is in the current form then.
///
/// # Errors
/// [`SessionFileWriteError`], also if the file is no longer as it was read.
fn resume_writer(
    opened: &OpenedFile,
    blobs: BlobStore,
    torn_end: TornEnd,
) -> Result<EntryWriter, SessionFileWriteError> {
    let (path, header, mark) = (opened.path.clone(), opened.header.clone(), opened.mark);
    let Some(entries) = opened.older_entries() else {
        let keep = match torn_end {
            TornEnd::Restored => opened.whole,
            TornEnd::LeftOut => mark.length,
        };
        return EntryWriter::resume(path, header, blobs, mark, keep);
    };
    let mut writer = EntryWriter::take_over(path, header, blobs, mark)?;
    writer.rewrite_entries(entries)?;
    Ok(writer)
}

/// Returns a new session's id, in the form of its dialect.
fn fresh_id(session_store: &SessionStore) -> Result<SessionId, getrandom::Error> {
    let mut seed = [0; 10];
    getrandom::fill(&mut seed)?;
    Ok(match session_store.common.dialect.session_ids {
        SessionIdForm::Hex => SessionId::new(hex::encode(&seed[..8])),
        SessionIdForm::Uuid => {
            let id = uuid::Builder::from_unix_timestamp_millis(session_store.common.clock.now().0, &seed).into_uuid();
            SessionId::new(id.to_string())
        }
    })
}

/// Starts the dialect's follower of a session's log, where it has one.
async fn start_follower(
    session_store: &SessionStore,
    handle: &OwnerHandle,
    id: &SessionId,
) -> Result<Option<LogFollower>, OpenSessionError> {
    let Some(start) = session_store.common.dialect.follower else { return Ok(None) };
    let session = id.clone();
    let of_session = move |recorded: &Arc<RecordedFact>| {
        (recorded.meta.session.as_ref() == Some(&session)).then(|| Arc::clone(recorded))
    };
    let facts = handle.follow_facts(of_session).await.ok_or(OpenSessionError::Closed)?;
    let (source, contents) = (handle.source(InboxLane::Request), handle.contents().clone());
    let readers = LogReaders { source, contents, facts, clock: session_store.common.clock.clone() };
    Ok(start(id.clone(), &session_store.cwd, readers))
}

/// Reads a session file, which may be large and on a slow disk, off the loop.
pub(super) async fn read_file(path: &Path) -> Result<Option<Arc<session_file::OpenedFile>>, OpenSessionError> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || session_file::open_file(&path)).await;
    let opened = read.map_err(|error| OpenSessionError::Owner(error.to_string()))??;
    Ok(opened.map(Arc::new))
}

/// Origin of a session that is resumed.
enum SessionOrigin {
    /// Its file.
    File(Arc<session_file::OpenedFile>),
    /// Its log alone: the process died before the file was written. Where the file is to be.
    Log(PathBuf),
}

fn start_file_writer(
    handle: &OwnerHandle,
    id: &SessionId,
    writer: EntryWriter,
    due: Option<(String, Millis)>,
    following: Subscriber,
    head: Lsn,
) -> SessionFileWriter {
    let source = handle.source(InboxLane::Request);
    SessionFileWriter::start(id.clone(), writer, due, following, head, handle.contents().clone(), source)
}
