//! The grants that outlive sessions, brought into the session that opens.
//!
//! It must not write the file: the grant of an answer is added where the answer is handled.

use std::{collections::BTreeSet, sync::Arc};

use countersign_core::{
    engine::Command,
    id::PrincipalId,
    policy::{Grant, GrantId},
};
use countersign_runtime::CommandSource;

use super::{grants, open_session_error::OpenSessionError, outdated_approvals, session_store::SessionStore};

/// Number of grants that are adopted at once.
const GRANTS: usize = 256;

/// Brings the grants of a session in step with the file of those that outlive sessions: what is there holds, what a person took out of it
/// does not, nor what was given for an earlier form of a tool of an MCP server.
pub(super) async fn import_grants(
    session_store: &SessionStore,
    requests: &CommandSource,
) -> Result<(), OpenSessionError> {
    if session_store.folder.is_none() {
        return Ok(());
    }
    let scope = session_store.lasting_reach();
    if let Some(attach_target) = &session_store.attach_target {
        let (_, position) = requests.read_state(|_| ()).await.ok_or(OpenSessionError::Closed)?;
        // A grant that was given a moment ago is in the file before the file is compared.
        if !attach_target.server.grant_writer.wait_for_position(position).await {
            return Err(OpenSessionError::Closed);
        }
    }
    let path = session_store.common.folder.grants_path();
    let servers = Arc::clone(&session_store.common.servers);
    let read = tokio::task::spawn_blocking(move || {
        let times = servers.approved_tools().1;
        outdated_approvals::remove_from_file(&path, &times);
        let mut kept = grants::load_grants(&path)?;
        kept.retain(|grant| !times.is_outdated_grant(grant));
        Ok::<_, std::io::Error>(kept)
    });
    let read = read.await;
    let kept = match read.map_err(std::io::Error::other).flatten() {
        Ok(kept) => kept,
        Err(failed) => {
            tracing::warn!(error = %failed, "failed to read the grants file; the grants of this session are unchanged");
            return Ok(());
        }
    };
    let ids: BTreeSet<GrantId> = kept.iter().map(|grant| grant.id).collect();
    let of = scope.clone();
    let read = requests.read_state(move |engine| {
        let grants = engine.state().policy().grants().iter();
        let gone = grants.filter(|grant| grant.scope == of && !ids.contains(&grant.id));
        gone.map(|grant| grant.id).collect::<Vec<_>>()
    });
    let (gone, _) = read.await.ok_or(OpenSessionError::Closed)?;
    for grant in gone {
        requests.send_command(Command::Revoke { grant, by: PrincipalId::new("host") }).await?;
    }
    for some in kept.chunks(GRANTS) {
        let some = some.iter().map(|grant| Grant { scope: scope.clone(), ..grant.clone() });
        requests.send_command(Command::Adopt(some.collect())).await?;
    }
    Ok(())
}
