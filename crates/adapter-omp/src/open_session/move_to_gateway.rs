//! A session that has a log of its own continues in a gateway: from rest only, and both logs say so.

use std::path::Path;

use countersign_core::{
    engine::Command,
    id::{EntryId, SessionId},
    session::{self, Settings},
};
use countersign_runtime::tools::TodoList;

use super::OpenSession;
use crate::{attach::home, open_session_error::OpenSessionError, session_store::SessionStore};

/// Has the session of the file at `path` leave its own log for the gateway. True if it did: its file holds the whole
/// conversation then, and the decisions stay in the old log.
pub(super) async fn move_session(
    session_store: &SessionStore,
    id: &SessionId,
    path: &Path,
) -> Result<bool, OpenSessionError> {
    let Some(attach_target) = session_store.attach_target.as_ref().filter(|_| session_store.folder.is_some()) else {
        return Ok(false);
    };
    let own = home::own_log(session_store.common.folder.root(), id);
    if session_store.session_home(id)?.is_some() || !own.exists() {
        return Ok(false);
    }
    if !attach_target.moves {
        return Err(OpenSessionError::Own(id.clone()));
    }
    let own_store = SessionStore { attach_target: None, ..session_store.clone() };
    match own_store.open(id, TodoList::default()).await {
        // It came once before, and only its own log still says so.
        Err(OpenSessionError::Elsewhere { gateway, .. }) if gateway == attach_target.server.folder => {
            return session_store.record_home(id, path).map(|_| true);
        }
        opened => opened?.close().await,
    }
    let kept = |_: &[(EntryId, String)]| Settings::default();
    let Some(seat) = Box::pin(OpenSession::reopen_file(&own_store, path, kept)).await? else { return Ok(false) };
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
    left.map(|()| true)
}

/// Returns the command that tells a gateway's log of a session that comes from a log of its own.
pub(super) fn origin_command(session_store: &SessionStore, id: &SessionId) -> Option<session::Command> {
    session_store.attach_target.as_ref().filter(|_| session_store.folder.is_some())?;
    let own = home::own_log(session_store.common.folder.root(), id);
    own.exists().then(|| session::Command::ComeFrom { home: own.display().to_string() })
}
