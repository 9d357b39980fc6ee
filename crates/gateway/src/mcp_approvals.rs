//! Approval of MCP servers by the people who answer gates: a server that is new or was changed is requested like a call.
//!
//! It must not decide: policy judges the request, and a person answers its gate. No server starts before that.

use std::sync::Arc;

use countersign_core::{
    call::{self, AgentRequest, CallEnd, RequestExecutor},
    digest::{Digest, canonical_json},
    engine::{Command, CommandError, EngineReply},
    id::{PrincipalId, SessionId},
    session::{self, Settings as SessionSettings},
    tool::{RepeatMode, ToolEffect},
};
use countersign_mcp_client::{ServerApproval, ServerDefinition, ServerListing, ToolApproval};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle, ServiceOutcome};
use countersign_view::Protocol;
use serde_json::{Map, Value, json};

use crate::mcp_tools::{ApproveError, McpTools};

/// Service of the requests. No service of a configuration has a name with a colon.
pub(crate) const SERVICE: &str = "mcp:approval";
/// Tool of a request to start a server and offer its tools.
const SERVER_TOOL: &str = "mcp_server";
/// Session of the requests.
const SESSION: &str = "gateway:mcp";
/// Most earlier requests of one server whose gate expired.
const MOST_EXPIRED: usize = 1000;

/// Requests the approval of every server that is not approved as it is defined. A request whose gate expired is made again.
///
/// # Errors
/// [`OwnerError`] if the session or a request cannot be recorded.
pub(crate) async fn request_approvals(
    handle: &OwnerHandle,
    tools: &McpTools,
    approval_timeout: std::time::Duration,
) -> Result<(), OwnerError> {
    let unapproved = match tools.unapproved() {
        Ok(unapproved) if unapproved.is_empty() => return Ok(()),
        Ok(unapproved) => unapproved,
        Err(error) => {
            tracing::error!("{error}; no MCP server is offered");
            return Ok(());
        }
    };
    let requests = handle.source(InboxLane::Request);
    open_session(&requests, approval_timeout, unapproved.len()).await?;
    for definition in unapproved {
        match request_approval(&requests, definition).await {
            // Without it the server is not offered, and the command line can approve it.
            Err(OwnerError::Refusal(refusal)) => {
                tracing::error!(server = definition.name, %refusal, "the approval of an MCP server cannot be requested");
            }
            requested => requested?,
        }
    }
    Ok(())
}

async fn open_session(
    requests: &CommandSource,
    approval_timeout: std::time::Duration,
    servers: usize,
) -> Result<(), OwnerError> {
    let settings = SessionSettings {
        approval_timeout,
        max_pending: u32::try_from(servers).unwrap_or(u32::MAX).max(100),
        ..SessionSettings::default()
    };
    let open = session::Command::Open {
        cwd: String::new(),
        name: Some("MCP servers".to_owned()),
        parent: None,
        door: Some(Protocol::Mcp.name().to_owned()),
        settings: Box::new(settings),
    };
    match requests.send_command(Command::Session(SessionId::new(SESSION), open)).await {
        Ok(_) | Err(OwnerError::Refusal(CommandError::SessionExists(_))) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn request_approval(requests: &CommandSource, definition: &ServerDefinition) -> Result<(), OwnerError> {
    let arguments = server_arguments(definition);
    // A key stands for exactly what is shown.
    let digest = Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes());
    for number in 1..=MOST_EXPIRED {
        let key = format!("{}:{digest}:{number}", definition.name);
        let request = AgentRequest {
            session: SessionId::new(SESSION),
            principal: PrincipalId::new("gateway"),
            door: Protocol::Mcp.name().into(),
            wire: json!(key).to_string().into(),
            key: Some(key),
            tool: SERVER_TOOL.into(),
            arguments: arguments.clone(),
            signatures: vec![format!("{SERVER_TOOL}({})", definition.name)],
            named: vec!["server".to_owned()],
            undeclared: Vec::new(),
            service: Some(SERVICE.into()),
            executor: RequestExecutor::Service,
            paths: Vec::new(),
            effect: ToolEffect::Changes,
            // Approving the same tools twice is approving them once.
            repeat: RepeatMode::Idempotent,
        };
        let reply = requests.send_command(Command::Call(call::Command::Request(Box::new(request)))).await?;
        match reply.outcome {
            EngineReply::Requested {
                over: Some((CallEnd::Expired | CallEnd::Failed | CallEnd::Done { error: true } | CallEnd::Unknown, _)),
                ..
            } => {}
            _ => return Ok(()),
        }
    }
    tracing::warn!(
        server = definition.name,
        "the approval of an MCP server expired {MOST_EXPIRED} times; it is not requested again"
    );
    Ok(())
}

/// Returns what a person is shown of a server: all of its definition but values of secrets.
fn server_arguments(definition: &ServerDefinition) -> Map<String, Value> {
    let mut shown = Map::from_iter([("server".to_owned(), Value::from(definition.name.as_str()))]);
    if let Value::Object(description) = definition.description() {
        let is_said = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        shown.extend(description.into_iter().filter(|(_, value)| is_said(value)));
    }
    shown
}

/// Carries out an approved request: starts the server and approves the tools that it lists.
pub(crate) async fn carry_out(tools: &Arc<McpTools>, arguments: &Map<String, Value>) -> ServiceOutcome {
    let name = arguments.get("server").and_then(Value::as_str).unwrap_or_default();
    let Some(definition) = tools.definition(name).filter(|now| server_arguments(now) == *arguments) else {
        return ServiceOutcome::NotBegun(ApproveError::Unknown(name.to_owned()).to_string());
    };
    let name = definition.name.clone();
    let approved = async {
        let (listing, approval) = tools.compare(&name).await?;
        tools.approve(&name, &listing).await?;
        Ok::<_, ApproveError>((listing, approval))
    };
    match approved.await {
        Ok((listing, approval)) => ServiceOutcome::Done(approval_report(&listing, &approval).to_string()),
        Err(error) => ServiceOutcome::Failed(error.to_string()),
    }
}

/// Returns the tools of a server and the changes since its approval, as JSON.
pub fn approval_report(listing: &ServerListing, approval: &ServerApproval) -> Value {
    let tools = approval.tools.iter().map(|(tool, state)| {
        let (state, differences) = match state {
            ToolApproval::Approved => ("approved", None),
            ToolApproval::New => ("new", None),
            ToolApproval::Changed { differences } => ("changed", Some(differences)),
            ToolApproval::Gone => ("gone", None),
        };
        let mut row = json!({
            "tool": tool.offered_name,
            "description": tool.description,
            "state": state,
            "digest": tool.digest.to_string(),
        });
        if let Some(differences) = differences {
            row["differences"] = json!(differences);
        }
        row
    });
    let problems = listing.problems.iter().map(|left| json!({ "tool": left.tool, "problem": left.problem }));
    json!({
        "server": listing.server,
        "tools": tools.collect::<Vec<_>>(),
        "left_out": problems.collect::<Vec<_>>(),
    })
}
