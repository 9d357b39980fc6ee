//! Consequences of changed approvals of MCP servers: gates that are decided elsewhere or whose server is another one by now, and
//! standing approvals of revoked tools.
//!
//! It must not approve a server: that happened before, in the file of approvals.

use std::collections::BTreeSet;

use countersign_core::{
    engine::Engine,
    gate::{self, ApprovalScope, GateReply},
    id::{GateId, PrincipalId},
    policy::{Grant, GrantId},
};
use countersign_mcp_client::{ApprovedServers, SERVER_TOOL, TOOLS_TOOL, grant_text, is_call_of, may_cover_server};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle};

use crate::{
    mcp_approvals::{ApprovalRequest, pending_requests, record_changes},
    mcp_tool_changes::{ChangeError, close_gate, revoke_changed_tools, revoke_grants},
    mcp_tools::McpTools,
};

/// Principal of what the gateway does by itself.
const GATEWAY: &str = "gateway";

/// Closes gates of servers whose approval does not depend on them any more, withdraws gates of calls of servers that are not
/// approved or are other ones by now, and revokes the standing approvals of their tools. `by` changed the approval of `touched`, or
/// nobody is known to have changed one.
///
/// # Errors
/// [`ChangeError`]; the next call does the rest.
pub(crate) async fn apply_changes(
    handle: &OwnerHandle,
    tools: &McpTools,
    touched: Option<&str>,
    by: &PrincipalId,
) -> Result<(), ChangeError> {
    revoke_changed_tools(handle, tools, by).await?;
    let source = handle.source(InboxLane::Result);
    let approved = tools.approvals().read_approvals().await?;
    close_decided_gates(&source, tools, &approved, touched, by).await?;
    let revoked = approved.revoked().clone();
    let mut without_approval: BTreeSet<String> = revoked.clone();
    let definitions = tools.servers().definitions().filter(|definition| !approved.is_approved(definition));
    without_approval.extend(definitions.map(|definition| definition.name.clone()));
    // Gates first: an answer to one may make a standing approval.
    let servers = without_approval.clone();
    let gates = source.read_state(move |engine| gates_of(engine, &servers)).await.ok_or(OwnerError::Closed)?.0;
    for gate in gates {
        close_gate(&source, gate, None, by).await?;
    }
    let grants = source.read_state(move |engine| grants_of(engine, &without_approval)).await;
    revoke_grants(&source, grants.ok_or(OwnerError::Closed)?.0, by).await?;
    // Not before they are gone: a process that ends in between does it again.
    if !revoked.is_empty() {
        tools.approvals().change_approvals(move |file| file.forget_revoked(&revoked)).await?;
    }
    Ok(())
}

/// Records the changes of approvals that persons made without this process, and brings them into force. A file that cannot be read changes
/// nothing.
///
/// # Errors
/// [`OwnerError`] if the record takes nothing.
pub(crate) async fn apply_outside_changes(handle: &OwnerHandle, tools: &McpTools) -> Result<(), OwnerError> {
    if let Err(problem) = record_changes(handle, tools).await {
        tracing::error!(problem, "changes of MCP approvals are not recorded yet");
    }
    match apply_changes(handle, tools, None, &PrincipalId::new(GATEWAY)).await {
        Ok(()) => Ok(()),
        Err(ChangeError::Owner(error)) => Err(error),
        Err(ChangeError::File(error)) => {
            tracing::error!("{error}; standing approvals of MCP tools stay as they are");
            Ok(())
        }
    }
}

async fn close_decided_gates(
    source: &CommandSource,
    tools: &McpTools,
    approved: &ApprovedServers,
    touched: Option<&str>,
    by: &PrincipalId,
) -> Result<(), OwnerError> {
    let pending = source.read_state(pending_requests).await.ok_or(OwnerError::Closed)?.0;
    for (gate, request) in pending {
        let reply = match request {
            // Its definition was changed, or it was removed or revoked: nobody can approve what was shown.
            ApprovalRequest::Server { name, arguments } if !tools.is_requested_as(approved, &name, &arguments) => None,
            ApprovalRequest::Server { name, .. } if tools.is_approved(approved, &name) => {
                Some(GateReply::Allow(ApprovalScope::Once))
            }
            ApprovalRequest::Server { .. } => continue,
            // Somebody approved or revoked the tools of this server and saw what they are now.
            ApprovalRequest::Tools { name }
                if touched == Some(name.as_str()) || !tools.is_approved(approved, &name) =>
            {
                None
            }
            ApprovalRequest::Tools { .. } => continue,
        };
        close_gate(source, gate, reply, by).await?;
    }
    Ok(())
}

/// Returns the pending gates of calls that would reach these servers.
fn gates_of(engine: &Engine, servers: &BTreeSet<String>) -> Vec<GateId> {
    let pending = engine.state().pending_gates().filter(|gate| {
        let call = gate.call().and_then(|call| engine.admitted().call_content(call));
        call.is_some_and(|call| servers.iter().any(|server| is_call_of(call, server)))
    });
    pending.map(gate::Gate::id).collect()
}

/// Returns the standing approvals of tools of these servers, and those of approvals themselves: each of these needs a person.
fn grants_of(engine: &Engine, servers: &BTreeSet<String>) -> Vec<GrantId> {
    let is_of_them = |grant: &&Grant| {
        let covered = grant_text(grant);
        let tool = covered.split_once('(').map_or(covered, |(tool, _)| tool);
        [SERVER_TOOL, TOOLS_TOOL].contains(&tool) || servers.iter().any(|server| may_cover_server(covered, server))
    };
    engine.state().policy().grants().iter().filter(is_of_them).map(|grant| grant.id).collect()
}
