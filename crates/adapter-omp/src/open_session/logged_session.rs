//! A session and its file as its log has them.
//!
//! It must not know how a session is opened, nor what a file contains.

use std::path::{Path, PathBuf};

use countersign_core::{engine::Command, id::SessionId, session, session::SessionEntry};
use countersign_runtime::{CommandSource, InboxLane, OwnerHandle};

use crate::{
    file_sync::EntryTree,
    open_session_error::OpenSessionError,
    session_file::{self, EntryWriter},
};

pub(super) async fn cwd_of(requests: &CommandSource, id: &SessionId) -> Option<String> {
    let id = id.clone();
    requests.read_state(move |engine| Some(engine.state().session(&id)?.cwd().to_owned())).await?.0
}

pub(super) async fn name_of(requests: &CommandSource, id: &SessionId) -> Option<String> {
    let id = id.clone();
    requests.read_state(move |engine| engine.state().session(&id)?.name().map(str::to_owned)).await?.0
}

/// Reports whether the file is at another path than the one that was written, and that one still exists.
pub(super) async fn is_copy(handle: &OwnerHandle, id: &SessionId, opened: &session_file::OpenedFile) -> bool {
    let target = id.clone();
    let requests = handle.source(InboxLane::Request);
    let read =
        requests.read_state(move |engine| Some(PathBuf::from(engine.state().session(&target)?.session_file()?.0)));
    // One file has many names: by a link, by dots.
    let is_other = |path: &Path| match (path.canonicalize(), opened.path.canonicalize()) {
        (Ok(path), Ok(opened)) => path != opened,
        (path, _) => path.is_ok(),
    };
    matches!(read.await, Some((Some(path), _)) if path != opened.path && is_other(&path))
}

/// Records what the file is now, where that is not known already: so the next process sees what others changed.
pub(super) async fn record_mark(
    requests: &CommandSource,
    id: &SessionId,
    writer: &EntryWriter,
) -> Result<(), OpenSessionError> {
    let Some(mark) = writer.current_mark() else { return Ok(()) };
    if !is_recorded(requests, id, writer).await {
        let (path, length, digest) = (writer.path().display().to_string(), mark.length, mark.digest.to_string());
        let written = session::Command::FileWritten { path, length, digest };
        requests.send_command(Command::Session(id.clone(), written)).await?;
    }
    Ok(())
}

/// Reports whether the file is as the log says it was written last.
pub(super) async fn is_recorded(requests: &CommandSource, id: &SessionId, writer: &EntryWriter) -> bool {
    let Some(mark) = writer.current_mark() else { return false };
    let (id, now) = (id.clone(), (writer.path().display().to_string(), mark.length, mark.digest.to_string()));
    let read = requests.read_state(move |engine| {
        let file = engine.state().session(&id)?.session_file()?;
        (file == (now.0.as_str(), now.1, now.2.as_str())).then_some(())
    });
    matches!(read.await, Some((Some(()), _)))
}

/// Returns the entries from the first to the leaf.
pub(super) async fn path_of(requests: &CommandSource, id: &SessionId) -> Option<Vec<SessionEntry>> {
    let id = id.clone();
    let read = requests
        .read_state(move |engine| Some(engine.state().session(&id)?.path_entries().into_iter().cloned().collect()));
    read.await.and_then(|(path, _)| path)
}

/// Returns the entries of a session as they are now; none inside if there is no such session.
pub(super) async fn tree_of(requests: &CommandSource, id: &SessionId) -> Option<Option<EntryTree>> {
    let id = id.clone();
    let read = requests.read_state(move |engine| {
        let session = engine.state().session(&id)?;
        Some(EntryTree { entries: session.entries().to_vec(), head: engine.state().head_lsn() })
    });
    read.await.map(|(tree, _)| tree)
}
