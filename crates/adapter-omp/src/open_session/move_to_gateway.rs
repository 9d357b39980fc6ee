//! A session that has a log of its own continues in a gateway: from rest only, and both logs say so.

use std::{path::Path, sync::Arc};

use countersign_core::{
    engine::Command,
    id::{EntryId, SessionId},
    session::{self, Settings},
};
use countersign_runtime::tools::TodoList;

use super::{OpenSession, logged_session::is_copy, session_copy::separate_copy};
use crate::{
    attach::home, open_session_error::OpenSessionError, session_file::OpenedFile, session_store::SessionStore,
};

/// What became of a session that may have a log of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveResult {
    /// It has none, or there is no gateway to move to.
    Stayed,
    /// Its file is another one than before and is to be read again: it holds the whole conversation of the session that left its log, or
    /// it was a copy and has an id of its own now.
    Again,
}

/// Has the session of the file at `path` leave its own log for the gateway. The decisions stay in the old log. `file` is what was read of
/// the file, if it is there.
pub(super) async fn move_session(
    session_store: &SessionStore,
    id: &SessionId,
    path: &Path,
    file: Option<&Arc<OpenedFile>>,
) -> Result<MoveResult, OpenSessionError> {
    let Some(attach_target) = session_store.attach_target.as_ref().filter(|_| session_store.folder.is_some()) else {
        return Ok(MoveResult::Stayed);
    };
    let own = home::own_log(session_store.common.folder.root(), id);
    if session_store.session_home(id)?.is_some() || !own.exists() {
        return Ok(MoveResult::Stayed);
    }
    if !attach_target.moves {
        return Err(OpenSessionError::Own(id.clone()));
    }
    let own_store = SessionStore { attach_target: None, ..session_store.clone() };
    match own_store.open(id, TodoList::default()).await {
        // It came once before, and only its own log still says so.
        Err(OpenSessionError::Elsewhere { gateway, .. }) if gateway == attach_target.server.folder => {
            return session_store.record_home(id, path).map(|_| MoveResult::Again);
        }
        opened => {
            let open = opened?;
            if let Some(file) = file
                && is_copy(&open.handle, id, file).await
            {
                return separate_copy(&own_store, open, file).await.map(|()| MoveResult::Again);
            }
            open.close().await;
        }
    }
    let kept = |_: &[(EntryId, String)]| Settings::default();
    let Some(seat) = Box::pin(OpenSession::reopen_file(&own_store, path, kept)).await? else {
        return Ok(MoveResult::Stayed);
    };
    let written = seat.path().unwrap_or(path).to_owned();
    let left = async {
        let _ = session_store.record_home(id, &written)?;
        let gateway = attach_target.server.folder.display().to_string();
        let leave = session::Command::LeaveFor { home: gateway };
        match seat.requests.send_command(Command::Session(id.clone(), leave)).await {
            Ok(_) => Ok(()),
            Err(countersign_runtime::OwnerError::Refusal(_)) => Err(OpenSessionError::Works(id.clone())),
            Err(refused) => Err(refused.into()),
        }
    };
    let left = left.await;
    if left.is_err() {
        home::remove_home(session_store.common.folder.root(), id);
    }
    // Entries that its file lacks are in the log that moves.
    let _ = seat.close().await;
    left.map(|()| MoveResult::Again)
}

/// Returns the command that tells a gateway's log of a session that comes from a log of its own.
pub(super) fn origin_command(session_store: &SessionStore, id: &SessionId) -> Option<session::Command> {
    session_store.attach_target.as_ref().filter(|_| session_store.folder.is_some())?;
    let own = home::own_log(session_store.common.folder.root(), id);
    own.exists().then(|| session::Command::ComeFrom { home: own.display().to_string() })
}
