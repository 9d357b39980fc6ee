//! Approval of a gateway's MCP servers by the people who answer gates.
//!
//! It must not decide: policy judges the request, and a person answers its gate.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use countersign_core::{
    call::CallDetails,
    engine::{Command, Engine, ResidencyScope},
    id::{GateId, PrincipalId, SessionId},
    session::{self, Settings as SessionSettings},
};
use countersign_mcp_client::{
    self as mcp_client, ApprovalChange, ApprovalRequester, SERVER_TOOL, ServerDefinition, TOOLS_TOOL,
};
pub use countersign_mcp_client::{ApprovalKey, approval_report};
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle, ServiceOutcome};
use countersign_view::{GateRow, Protocol};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use crate::{
    mcp_tool_changes::{ChangeError, revoke_changed_tools},
    mcp_tools::McpTools,
};

/// Session of the requests, and their service. No agent has it, and services of servers begin otherwise.
const REQUESTER: &str = "gateway:mcp";
/// Principal of the requests, and of what follows from their answers.
const GATEWAY: &str = "gateway";
/// Fewest requests that may be pending.
const FEWEST_PENDING: usize = 100;

/// Requests the approval of every server that is not approved as it is defined. A request whose gate expired is made again.
///
/// # Errors
/// [`OwnerError`] if the session or a request cannot be recorded.
pub(crate) async fn request_approvals(
    handle: &OwnerHandle,
    tools: &McpTools,
    approval_timeout: Duration,
) -> Result<(), OwnerError> {
    for server in tools.unapproved_servers() {
        tracing::warn!(
            server = &*server,
            "an MCP server waits for its approval, and its tools are not offered: run `countersign mcp-servers approve {server}`"
        );
    }
    let requests = handle.source(InboxLane::Request);
    mcp_client::request_approvals(&requests, &requester(tools, approval_timeout), tools.approvals()).await
}

/// Requests the approval of one server that is not approved as it is defined, also if a person refused it before.
///
/// # Errors
/// [`OwnerError`] if the session or the request cannot be recorded.
pub(crate) async fn request_server(
    handle: &OwnerHandle,
    tools: &McpTools,
    definition: &ServerDefinition,
    revocations: u64,
    approval_timeout: Duration,
) -> Result<(), OwnerError> {
    let requests = handle.source(InboxLane::Request);
    mcp_client::request_server(&requests, &requester(tools, approval_timeout), definition, revocations).await
}

/// Returns the servers whose last request for their approval, with the arguments of its key, was denied. None if the record cannot be read.
pub(crate) async fn denied_servers(handle: &OwnerHandle, keys: Vec<ApprovalKey>) -> BTreeSet<String> {
    if keys.is_empty() {
        return BTreeSet::new();
    }
    let scope = ResidencyScope::Session(SessionId::new(REQUESTER));
    let read = handle.source(InboxLane::Request).read_of(scope, move |engine| find_denied(engine, keys)).await;
    read.map(|(denied, _)| denied).unwrap_or_default()
}

/// Returns the servers whose last request for their approval, with the arguments of its key, was denied.
pub fn find_denied(engine: &Engine, keys: Vec<ApprovalKey>) -> BTreeSet<String> {
    let session = SessionId::new(REQUESTER);
    keys.into_iter().filter(|key| key.is_denied(engine, &session)).map(|key| key.server).collect()
}

/// Returns the tools of a server that are not as they were approved, and wait for an approver, as the gates of `rows` name them.
pub fn pending_tools(rows: &[GateRow], definition: &ServerDefinition) -> BTreeSet<String> {
    let (subject, digest) = (format!("{TOOLS_TOOL}({})", definition.name), definition.digest().to_string());
    let is_meant = |row: &&GateRow| {
        let shown = row.arguments.get("definition").and_then(Value::as_str);
        row.session.as_deref() == Some(REQUESTER) && row.subject == subject && shown == Some(digest.as_str())
    };
    let mut tools = BTreeSet::new();
    for row in rows.iter().filter(is_meant) {
        for part in ["changed", "new"] {
            let named = row.arguments.get(part).and_then(Value::as_object);
            tools.extend(named.into_iter().flat_map(Map::keys).cloned());
        }
        let gone = row.arguments.get("gone").and_then(Value::as_array);
        tools.extend(gone.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    }
    tools
}

/// Records the changes of approvals that persons made outside of gates, also while no gateway ran. Those that were recorded when
/// the process ended before they were marked are recorded twice.
///
/// # Errors
/// The reason, for people. The rest stays to be recorded.
pub(crate) async fn record_changes(handle: &OwnerHandle, tools: &McpTools) -> Result<(), String> {
    let _recording = tools.recording.lock().await;
    let approvals = tools.approvals().read_approvals().await.map_err(|error| error.to_string())?;
    let source = handle.source(InboxLane::Result);
    let (mut recorded, mut failure) = (Vec::new(), None);
    for change in approvals.unrecorded() {
        let ApprovalChange { server, change: what, by, at } = change.clone();
        let note = Command::NoteServerApproval { server, change: what, by, at };
        if let Err(error) = source.send_command(note).await {
            failure = Some(error.to_string());
            break;
        }
        recorded.push(change.clone());
    }
    if !recorded.is_empty() {
        let marked = tools.approvals().change_approvals(move |file| file.mark_recorded(&recorded)).await;
        marked.map_err(|error| error.to_string())?;
    }
    failure.map_or(Ok(()), Err)
}

/// Requests the approval of each server of which a call found another tool than the approved one. Ends with the record.
pub(crate) async fn request_changes(handle: OwnerHandle, tools: Arc<McpTools>, approval_timeout: Duration) {
    let requests = handle.source(InboxLane::Request);
    let renewed = Arc::clone(&tools);
    let renew = move || {
        let tools = Arc::clone(&renewed);
        // The next refused call does it again after a failure, which is logged.
        Box::pin(async move { drop(offer_approved(&tools).await) }) as BoxFuture<'static, ()>
    };
    mcp_client::request_changes(&requests, &requester(&tools, approval_timeout), tools.approvals(), &renew).await;
}

/// Carries out an approved request. `None` if it is another one.
pub(crate) async fn carry_out(tools: &Arc<McpTools>, content: &CallDetails) -> Option<ServiceOutcome> {
    let outcome = mcp_client::carry_out(&requester(tools, Duration::ZERO), tools.approvals(), content).await?;
    Some(match offer_approved(tools).await {
        Ok(()) => outcome,
        Err(error) => ServiceOutcome::Failed(format!(
            "approved, but the standing approvals of changed tools are not revoked yet: {error}"
        )),
    })
}

/// Offers the tools as they are approved now.
///
/// # Errors
/// [`ChangeError`], with the tools offered as before.
async fn offer_approved(tools: &Arc<McpTools>) -> Result<(), ChangeError> {
    // Before a tool is offered in another form: standing approvals were given for the earlier one.
    if let Some(handle) = tools.owner()
        && let Err(error) = revoke_changed_tools(handle, tools, &PrincipalId::new(GATEWAY)).await
    {
        tracing::error!(%error, "standing approvals of changed MCP tools are not revoked yet; the tools are not offered");
        return Err(error);
    }
    tools.reload_in_background().await;
    Ok(())
}

fn requester(tools: &McpTools, approval_timeout: Duration) -> ApprovalRequester {
    let servers = tools.servers().definitions().count();
    let settings = SessionSettings {
        approval_timeout,
        max_pending: u32::try_from(servers.max(FEWEST_PENDING)).unwrap_or(u32::MAX),
        ..SessionSettings::default()
    };
    let opening = session::Command::Open {
        cwd: String::new(),
        name: Some("MCP servers".to_owned()),
        parent: None,
        door: Some(Protocol::Mcp.name().to_owned()),
        settings: Box::new(settings),
    };
    ApprovalRequester {
        session: SessionId::new(REQUESTER),
        opening: Some(opening),
        principal: PrincipalId::new(GATEWAY),
        door: Protocol::Mcp.name().into(),
        service: REQUESTER.into(),
    }
}

/// Request of an approval whose gate is pending.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApprovalRequest {
    /// To start a server that was shown with these arguments.
    Server {
        /// Its name.
        name: String,
        /// Its definition, as approvers see it.
        arguments: Map<String, Value>,
    },
    /// To offer the tools of a server as they are.
    Tools {
        /// Its name.
        name: String,
    },
}

/// Returns the requests of the gateway whose gates are pending.
pub(crate) fn pending_requests(engine: &Engine) -> Vec<(GateId, ApprovalRequest)> {
    let of_gateway =
        engine.state().pending_gates().filter(|gate| gate.session().is_some_and(|id| id.as_str() == REQUESTER));
    let requests = of_gateway.filter_map(|gate| {
        let content = engine.admitted().call_content(gate.call()?)?;
        let name = content.arguments.get("server")?.as_str()?.to_owned();
        let request = match &*content.tool {
            SERVER_TOOL => ApprovalRequest::Server { name, arguments: content.arguments.clone() },
            TOOLS_TOOL => ApprovalRequest::Tools { name },
            _ => return None,
        };
        Some((gate.id(), request))
    });
    requests.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use countersign_mcp_client::{ServerDefinition, ServerTransport};
    use countersign_view::GateRow;
    use serde_json::{Value, json};

    use super::pending_tools;

    fn definition(url: &str) -> ServerDefinition {
        let transport = ServerTransport::Http { url: url.to_owned(), headers: BTreeMap::new(), auth: None };
        ServerDefinition::new("files", transport)
    }

    fn gate(session: &str, subject: &str, digest: &str) -> GateRow {
        let arguments: Value = json!({
            "server": "files",
            "definition": digest,
            "changed": { "read": ["description: a, was b"] },
            "new": { "delete": {} },
            "gone": ["write"],
            "digest": "x",
        });
        let row = json!({
            "id": "gate_1",
            "kind": "approval",
            "door": "mcp",
            "session": session,
            "title": "Use the tools of files as they are now?",
            "subject": subject,
            "arguments": arguments,
            "reason": "",
            "opened_at": "2026-01-01T00:00:00.000Z",
            "deadline": null,
        });
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn changed_tools_are_pending_for_the_definition_that_their_gate_shows() {
        let files = definition("https://files.example/mcp");
        let own = files.digest().to_string();
        let other = definition("https://other.example/mcp").digest().to_string();
        let all = vec!["delete", "read", "write"];
        for (case, gate, want) in [
            ("its own", gate("gateway:mcp", "mcp_tools(files)", &own), all),
            ("of an earlier definition", gate("gateway:mcp", "mcp_tools(files)", &other), vec![]),
            ("of another server", gate("gateway:mcp", "mcp_tools(file)", &own), vec![]),
            ("of the server itself", gate("gateway:mcp", "mcp_server(files)", &own), vec![]),
            ("of an agent", gate("mcp:token:ci", "mcp_tools(files)", &own), vec![]),
        ] {
            let pending = pending_tools(&[gate], &files);
            assert_eq!(pending.iter().map(String::as_str).collect::<Vec<_>>(), want, "{case}");
        }
    }
}
