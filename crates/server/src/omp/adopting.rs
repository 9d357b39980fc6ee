//! The grants that outlive sessions, brought into the session that opens.
//!
//! It must not write the file: what an answer granted is added where it is told.

use std::collections::BTreeSet;

use countersign_core::{
    engine::Command,
    id::PrincipalId,
    policy::{GrantId, Scope},
};
use countersign_runtime::Source;

use super::{
    grants,
    seat::{SeatError, Shelf},
};

/// How many grants are adopted at once.
const GRANTS: usize = 256;

/// Brings the grants of a session in step with the file of those that outlive sessions: what is there holds, what a person took out of it does not.
pub(super) async fn adopt(shelf: &Shelf, requests: &Source) -> Result<(), SeatError> {
    if shelf.folder.is_none() {
        return Ok(());
    }
    let path = shelf.common.folder.grants();
    let read = tokio::task::spawn_blocking(move || grants::load(&path)).await;
    let kept = match read.map_err(std::io::Error::other).flatten() {
        Ok(kept) => kept,
        Err(failed) => {
            tracing::warn!(error = %failed, "the grants that outlive sessions cannot be read; those of this session stay as they are");
            return Ok(());
        }
    };
    let ids: BTreeSet<GrantId> = kept.iter().map(|grant| grant.id).collect();
    let read = requests.read(move |engine| {
        let grants = engine.state().policy().grants().iter();
        let gone = grants.filter(|grant| grant.scope == Scope::Always && !ids.contains(&grant.id));
        gone.map(|grant| grant.id).collect::<Vec<_>>()
    });
    let (gone, _) = read.await.ok_or(SeatError::Closed)?;
    for grant in gone {
        requests.ask(Command::Revoke { grant, by: PrincipalId::new("host") }).await?;
    }
    for some in kept.chunks(GRANTS) {
        requests.ask(Command::Adopt(some.to_vec())).await?;
    }
    Ok(())
}
