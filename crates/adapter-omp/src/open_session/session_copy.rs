//! The copy of a session file becomes the file of another session.
//!
//! It must not know how a session is opened.

use std::{fs::OpenOptions, sync::Arc};

use countersign_core::id::SessionId;
use countersign_protocol::omp::session_file::SessionHeader;
use countersign_runtime::tools::regular;

use super::fresh_id;
use crate::{
    open_session_error::OpenSessionError,
    session_file::{BlobStore, EntryWriter, OpenedFile, SessionFileWriteError},
    session_store::{OpenedLog, SessionStore},
};

/// Gives the session in the copy of a file an id of its own. `open` is the log of the session that the file was copied from: until
/// that is closed again, no other process can do the same.
pub(super) async fn separate_copy(
    session_store: &SessionStore,
    open: OpenedLog,
    opened: &Arc<OpenedFile>,
) -> Result<(), OpenSessionError> {
    let written = match fresh_id(session_store) {
        Ok(id) => {
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
        Err(error) => Err(OpenSessionError::Owner(error.to_string())),
    };
    open.close().await;
    written
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
