//! Consequences of approved changes of the tools of MCP servers: what was approved for a tool in its earlier form ends.
//!
//! It must not approve a tool: that happened before, in the file of approvals.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    engine::Command,
    gate::{self, GateReply},
    id::{GateId, PrincipalId},
    policy::GrantId,
};
use countersign_mcp_client::{ApprovalError, grant_text, may_cover_tool, offered_name};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle};

use crate::mcp_tools::McpTools;

/// Reason that a change of the approvals has not taken effect everywhere.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The approvals cannot be read or written.
    #[error(transparent)]
    File(#[from] ApprovalError),
    /// The record takes nothing.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

/// Withdraws gates of calls of tools that were approved in another form before, and revokes the standing approvals of these tools: they
/// were given for that form. To be called before the tools are offered in their new form.
///
/// # Errors
/// [`ChangeError`]; the next call does the rest.
pub(crate) async fn revoke_changed_tools(
    handle: &OwnerHandle,
    tools: &McpTools,
    by: &PrincipalId,
) -> Result<(), ChangeError> {
    let source = handle.source(InboxLane::Result);
    let changed = tools.approvals().read_approvals().await?.changed_tools().clone();
    let names = offered_names(&changed);
    if names.is_empty() {
        return Ok(());
    }
    // Gates first: an answer to one may make a standing approval.
    let of_gates = names.clone();
    let gates = source.read_state(move |engine| {
        let pending = engine.state().pending_gates().filter(|gate| {
            let call = gate.call().and_then(|call| engine.admitted().call_content(call));
            call.is_some_and(|call| of_gates.contains(&*call.tool))
        });
        pending.map(gate::Gate::id).collect::<Vec<_>>()
    });
    for gate in gates.await.ok_or(OwnerError::Closed)?.0 {
        close_gate(&source, gate, None, by).await?;
    }
    let grants = source.read_state(move |engine| {
        let grants = engine.state().policy().grants().iter();
        let of_tools = grants.filter(|grant| names.iter().any(|name| may_cover_tool(grant_text(grant), name)));
        of_tools.map(|grant| grant.id).collect::<Vec<_>>()
    });
    revoke_grants(&source, grants.await.ok_or(OwnerError::Closed)?.0, by).await?;
    tools.approvals().change_approvals(move |file| file.forget_changed_tools(&changed)).await?;
    Ok(())
}

pub(crate) async fn revoke_grants(
    source: &CommandSource,
    grants: Vec<GrantId>,
    by: &PrincipalId,
) -> Result<(), OwnerError> {
    for grant in grants {
        match source.send_command(Command::Revoke { grant, by: by.clone() }).await {
            // Another has revoked it.
            Ok(_) | Err(OwnerError::Refusal(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the names under which tools are called.
fn offered_names(tools: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let tools = tools.iter().flat_map(|(server, names)| names.iter().map(move |name| (server, name)));
    tools.filter_map(|(server, name)| offered_name(server, name).ok()).collect()
}

/// Closes a gate with an answer, or withdraws it without one, or where the answer does not decide it.
pub(crate) async fn close_gate(
    source: &CommandSource,
    gate: GateId,
    answer: Option<GateReply>,
    by: &PrincipalId,
) -> Result<(), OwnerError> {
    if let Some(answer) = answer {
        let command = gate::Command::Answer { gate, answer, by: by.clone(), key: None };
        match source.send_command(Command::Gate(command)).await {
            Ok(_) | Err(OwnerError::Refusal(_)) => {}
            Err(error) => return Err(error),
        }
    }
    // A gate that is resolved stays as it is.
    match source.send_command(Command::Gate(gate::Command::Withdraw { gate, by: by.clone() })).await {
        Ok(_) | Err(OwnerError::Refusal(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
