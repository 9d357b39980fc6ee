//! The copy of a session file becomes the file of another session.
//!
//! It must not know how a session is opened.

use std::{fs::OpenOptions, path::Path, sync::Arc};

use countersign_core::id::SessionId;
use countersign_protocol::omp::session_file::SessionHeader;
use countersign_runtime::tools::regular;

use super::{fresh_id, read_file};
use crate::{
    open_session_error::OpenSessionError,
    session_file::{BlobStore, EntryWriter, OpenedFile, SessionFileWriteError, find},
    session_store::{OpenedLog, SessionStore},
};

/// Gives the session in the copy of a file an id of its own. `open` is the log of the session that the file was copied from: until
/// that is closed again, no other process can do the same.
pub(super) async fn separate_copy(
    session_store: &SessionStore,
    open: OpenedLog,
    opened: &Arc<OpenedFile>,
) -> Result<(), OpenSessionError> {
    let written = give_own_id(session_store, opened).await;
    open.close().await;
    written
}

/// Gives the session in the file at `path` an id of its own if it is a copy of the file `own` of the session `id`, whose log is in use
/// here.
pub(crate) async fn separate_copy_of(
    session_store: &SessionStore,
    (id, own): (&SessionId, &Path),
    path: &Path,
) -> Result<(), OpenSessionError> {
    let is_elsewhere = match (own.canonicalize(), path.canonicalize()) {
        (Ok(own), Ok(path)) => own != path,
        // A file that is not there any more was moved, not copied.
        _ => false,
    };
    if !is_elsewhere || find::read_header(path).is_none_or(|header| header.id != id.as_str()) {
        return Ok(());
    }
    match read_file(path).await? {
        Some(opened) => give_own_id(session_store, &opened).await,
        None => Ok(()),
    }
}

async fn give_own_id(session_store: &SessionStore, opened: &Arc<OpenedFile>) -> Result<(), OpenSessionError> {
    let id = fresh_id(session_store).map_err(|error| OpenSessionError::Owner(error.to_string()))?;
    let (file, blobs) = (Arc::clone(opened), session_store.blob_store());
    match tokio::task::spawn_blocking(move || set_id(&file, &id, blobs)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error @ SessionFileWriteError::Io { .. })) => {
            tracing::warn!(%error, "the copy of a session file cannot get an id of its own");
            Err(OpenSessionError::Copy(Arc::clone(opened)))
        }
        Ok(Err(changed)) => Err(changed.into()),
        Err(error) => Err(OpenSessionError::Owner(error.to_string())),
    }
}

/// Gives the session of a file another id. Nothing else in the file changes.
fn set_id(opened: &OpenedFile, id: &SessionId, blobs: BlobStore) -> Result<(), SessionFileWriteError> {
    // A file that is replaced needs no permission of its own, but one that says so is not to be written.
    regular::open_file(&opened.path, OpenOptions::new().write(true))
        .map_err(|source| SessionFileWriteError::Io { path: opened.path.clone(), source })?;
    let header = SessionHeader { id: id.to_string(), ..opened.header.clone() };
    let path = opened.path.clone();
    match opened.older_entries() {
        None => EntryWriter::take_over(path, opened.header.clone(), blobs, opened.mark)?.replace_header(header),
        Some(entries) => EntryWriter::take_over(path, header, blobs, opened.mark)?.rewrite_entries(entries),
    }
    .map(drop)
}
