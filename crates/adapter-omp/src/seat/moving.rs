//! A session that has a log of its own goes on in a gateway: from rest only, and both logs say so.

use std::path::Path;

use countersign_core::{
    engine::Command,
    id::{EntryId, SessionId},
    session::{self, SessionEntry, Settings},
};
use countersign_runtime::tools::TodoList;

use super::Seat;
use crate::{attach::home, seat_error::SeatError, shelf::Shelf};

/// Has the session of the file at `path` leave its own log for the gateway. True if it did: its file holds the whole
/// conversation then, and what was decided stays behind.
pub(super) async fn come(shelf: &Shelf, id: &SessionId, path: &Path) -> Result<bool, SeatError> {
    let Some(abroad) = shelf.abroad.as_ref().filter(|_| shelf.folder.is_some()) else { return Ok(false) };
    let own = home::own_log(shelf.common.folder.root(), id);
    if shelf.home(id)?.is_some() || !own.exists() {
        return Ok(false);
    }
    if !abroad.moves {
        return Err(SeatError::Own(id.clone()));
    }
    let shelf_of_own = Shelf { abroad: None, ..shelf.clone() };
    match shelf_of_own.open(id, TodoList::default()).await {
        // It came once before, and only its own log still says so.
        Err(SeatError::Elsewhere { gateway, .. }) if gateway == abroad.hall.folder => {
            return shelf.come_home(id, path).map(|_| true);
        }
        opened => opened?.close().await,
    }
    let kept = |_: &[SessionEntry], _: &[(EntryId, String)]| Settings::default();
    let Some(seat) = Box::pin(Seat::reopen(&shelf_of_own, path, kept)).await? else { return Ok(false) };
    let written = seat.path().unwrap_or(path).to_owned();
    let left = async {
        let _ = shelf.come_home(id, &written)?;
        let gateway = abroad.hall.folder.display().to_string();
        let leave = session::Command::LeaveFor { home: gateway };
        match seat.requests.send_command(Command::Session(id.clone(), leave)).await {
            Ok(_) => Ok(()),
            Err(countersign_runtime::OwnerError::Refusal(_)) => Err(SeatError::Works(id.clone())),
            Err(refused) => Err(refused.into()),
        }
    };
    let left = left.await;
    if left.is_err() {
        home::forget(shelf.common.folder.root(), id);
    }
    // What its file lacks is in the log that moves.
    let _ = seat.close().await;
    left.map(|()| true)
}

/// What a gateway's log is told of a session that comes from a log of its own.
pub(super) fn came(shelf: &Shelf, id: &SessionId) -> Option<session::Command> {
    shelf.abroad.as_ref().filter(|_| shelf.folder.is_some())?;
    let own = home::own_log(shelf.common.folder.root(), id);
    own.exists().then(|| session::Command::ComeFrom { home: own.display().to_string() })
}
