//! Consequences of changed approvals of MCP servers: gates that are decided elsewhere, and standing approvals of revoked tools.
//!
//! It must not approve a server: that happened before, in the file of approvals.

use std::collections::BTreeSet;

use countersign_core::{
    engine::{Command, Engine},
    gate::{self, ApprovalScope, GateReply},
    id::{GateId, PrincipalId},
    policy::{Grant, GrantCoverage, GrantId},
};
use countersign_mcp_client::ApprovalError;
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle};

use crate::{
    mcp_approvals::{ApprovalRequest, pending_requests, record_changes},
    mcp_tools::McpTools,
};

/// Principal of what the gateway does by itself.
const GATEWAY: &str = "gateway";

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

/// Closes gates of servers whose approval does not depend on them any more, and revokes the standing approvals of tools of servers
/// that are not approved. `by` changed the approval of `touched`, or nobody is known to have changed one.
///
/// # Errors
/// [`ChangeError`]; the next call does the rest.
pub(crate) async fn apply_changes(
    handle: &OwnerHandle,
    tools: &McpTools,
    touched: Option<&str>,
    by: &PrincipalId,
) -> Result<(), ChangeError> {
    let source = handle.source(InboxLane::Result);
    close_decided_gates(&source, tools, touched, by).await?;
    let revoked = tools.revoked_servers()?;
    let mut without_approval: BTreeSet<String> = revoked.clone();
    without_approval.extend(tools.unapproved()?.into_iter().map(|server| server.name.clone()));
    let held = without_approval.clone();
    let grants = source.read_state(move |engine| grants_of(engine, &held)).await.ok_or(OwnerError::Closed)?.0;
    for grant in grants {
        match source.send_command(Command::Revoke { grant, by: by.clone() }).await {
            // Another has revoked it.
            Ok(_) | Err(OwnerError::Refusal(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Not before they are gone: a process that ends in between does it again.
    if !revoked.is_empty() {
        tools.forget_revoked(&revoked)?;
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
    touched: Option<&str>,
    by: &PrincipalId,
) -> Result<(), ChangeError> {
    let pending = source.read_state(pending_requests).await.ok_or(OwnerError::Closed)?.0;
    for (gate, request) in pending {
        let reply = match request {
            ApprovalRequest::Server { name, arguments } if tools.approves(&name, &arguments)? => {
                Some(GateReply::Allow(ApprovalScope::Once))
            }
            // Its definition was changed, or it was removed: nobody can approve what was shown.
            ApprovalRequest::Server { name, arguments } if !tools.is_defined_as(&name, &arguments) => None,
            ApprovalRequest::Server { .. } => continue,
            // Somebody approved or revoked the tools of this server and saw what they are now.
            ApprovalRequest::Tools { name } if touched == Some(name.as_str()) || !tools.is_approved(&name)? => None,
            ApprovalRequest::Tools { .. } => continue,
        };
        close_gate(source, gate, reply, by).await?;
    }
    Ok(())
}

/// Closes a gate with an answer, or withdraws it without one, or where the answer does not decide it.
async fn close_gate(
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

/// Returns the standing approvals of tools of these servers.
fn grants_of(engine: &Engine, servers: &BTreeSet<String>) -> Vec<GrantId> {
    let prefixes: Vec<String> = servers.iter().map(|server| format!("mcp__{server}__")).collect();
    let is_of_them = |grant: &&Grant| {
        let covered = match &grant.covers {
            GrantCoverage::Pattern(pattern) => pattern,
            // An exact one is known by the call that was shown.
            GrantCoverage::Exact(_) => &grant.label,
        };
        prefixes.iter().any(|prefix| covered.starts_with(prefix.as_str()))
    };
    engine.state().policy().grants().iter().filter(is_of_them).map(|grant| grant.id).collect()
}
