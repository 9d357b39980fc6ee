//! Approval of MCP servers by the people who answer gates: a server that is new or was changed is requested like a call.
//!
//! It must not decide: policy judges the request, and a person answers its gate. No server starts before that.

use std::{sync::Arc, time::Duration};

use countersign_adapter_mcp::open_session;
use countersign_core::{
    call::{self, AgentRequest, CallDetails, CallEnd, RequestExecutor},
    digest::{Digest, canonical_json},
    engine::{Command, Engine, EngineReply},
    id::{GateId, PrincipalId, SessionId},
    session::Settings as SessionSettings,
    tool::{RepeatMode, ToolEffect},
};
use countersign_mcp_client::{ServerApproval, ServerDefinition, ServerListing, ToolApproval};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerHandle, ServiceOutcome};
use countersign_view::Protocol;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::mcp_tools::{ApproveError, McpTools, server_arguments};

/// Service of the requests. That of a server's tools begins otherwise.
const SERVICE: &str = "gateway:mcp";
/// Session of the requests. No agent has it.
const SESSION: &str = "gateway:mcp";
/// Tool of a request to start a server and offer its tools.
const SERVER_TOOL: &str = "mcp_server";
/// Tool of a request to offer the tools of a server as they are now.
const TOOLS_TOOL: &str = "mcp_tools";
/// Most earlier requests of the same whose gate expired.
const MOST_EXPIRED: usize = 1000;

/// Requests the approval of every server that is not approved as it is defined. A request whose gate expired is made again.
///
/// # Errors
/// [`OwnerError`] if the session or a request cannot be recorded.
pub(crate) async fn request_approvals(
    handle: &OwnerHandle,
    tools: &McpTools,
    approval_timeout: Duration,
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
    open_approval_session(&requests, approval_timeout, unapproved.len()).await?;
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

async fn open_approval_session(
    requests: &CommandSource,
    approval_timeout: Duration,
    servers: usize,
) -> Result<(), OwnerError> {
    let settings = SessionSettings {
        approval_timeout,
        max_pending: u32::try_from(servers).unwrap_or(u32::MAX).max(100),
        ..SessionSettings::default()
    };
    open_session(requests, &SessionId::new(SESSION), "MCP servers", settings).await
}

async fn request_approval(requests: &CommandSource, definition: &ServerDefinition) -> Result<(), OwnerError> {
    request_once(requests, SERVER_TOOL, &definition.name, server_arguments(definition)).await
}

/// Requests the approval of each server of which a call found another tool than the approved one. Ends with the record.
pub(crate) async fn request_changes(handle: OwnerHandle, tools: Arc<McpTools>, approval_timeout: Duration) {
    let requests = handle.source(InboxLane::Request);
    loop {
        // In parallel: one server may take a minute to start.
        let compared = tools.wait_refused().await.into_iter().map(async |server| tools.compare(&server).await);
        for (listing, approval) in join_all(compared).await.into_iter().filter_map(Result::ok) {
            if approval.is_new || approval.definition_changed || is_unchanged(&approval) {
                continue;
            }
            let server = &listing.server;
            let requested = async {
                open_approval_session(&requests, approval_timeout, 1).await?;
                request_once(&requests, TOOLS_TOOL, server, tools_arguments(&listing, &approval)).await
            };
            match requested.await {
                Ok(()) => {}
                Err(OwnerError::Refusal(refusal)) => {
                    tracing::error!(server, %refusal, "the approval of changed MCP tools cannot be requested");
                }
                Err(_) => return,
            }
        }
    }
}

/// Requests something, unless it was requested before and an approver may still answer, or did.
async fn request_once(
    requests: &CommandSource,
    tool: &str,
    server: &str,
    arguments: Map<String, Value>,
) -> Result<(), OwnerError> {
    // A key stands for exactly what is shown.
    let digest = Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes());
    for number in 1..=MOST_EXPIRED {
        let key = format!("{tool}:{server}:{digest}:{number}");
        let request = AgentRequest {
            session: SessionId::new(SESSION),
            principal: PrincipalId::new("gateway"),
            door: Protocol::Mcp.name().into(),
            wire: json!(key).to_string().into(),
            key: Some(key),
            tool: tool.into(),
            arguments: arguments.clone(),
            signatures: vec![format!("{tool}({server})")],
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
                // An earlier approval of the same counts no more: it was revoked, or something else was approved since.
                over: Some((CallEnd::Expired | CallEnd::Failed | CallEnd::Done { .. } | CallEnd::Unknown, _)),
                ..
            } => {}
            _ => return Ok(()),
        }
    }
    tracing::warn!(server, tool, "an approval was requested {MOST_EXPIRED} times; it is not requested again");
    Ok(())
}

fn is_unchanged(approval: &ServerApproval) -> bool {
    approval.tools.iter().all(|(_, state)| *state == ToolApproval::Approved)
}

/// Returns what an approver is shown of the tools of a server that are not as they were approved, and the digest of all tools.
fn tools_arguments(listing: &ServerListing, approval: &ServerApproval) -> Map<String, Value> {
    let digests: Vec<String> = listing.tools.iter().map(|tool| format!("{} {}", tool.name, tool.digest)).collect();
    let digest = Digest::hash_bytes(digests.join("\n").as_bytes());
    let (mut changed, mut new, mut gone) = (Map::new(), Map::new(), Vec::new());
    for (tool, state) in &approval.tools {
        match state {
            ToolApproval::Approved => {}
            ToolApproval::New => drop(new.insert(tool.name.clone(), tool.description.clone().into())),
            ToolApproval::Changed { differences } => drop(changed.insert(tool.name.clone(), json!(differences))),
            ToolApproval::Gone => gone.push(Value::from(tool.name.as_str())),
        }
    }
    let mut shown = Map::from_iter([("server".to_owned(), Value::from(listing.server.as_str()))]);
    let parts = [("changed", Value::Object(changed)), ("new", Value::Object(new)), ("gone", Value::Array(gone))];
    let is_said = |value: &Value| *value != json!({}) && *value != json!([]);
    shown.extend(parts.into_iter().filter(|(_, value)| is_said(value)).map(|(name, value)| (name.to_owned(), value)));
    shown.insert("digest".to_owned(), digest.to_string().into());
    shown
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
        engine.state().pending_gates().filter(|gate| gate.session().is_some_and(|id| id.as_str() == SESSION));
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

/// Carries out an approved request. `None` if it is another one.
pub(crate) async fn carry_out(tools: &McpTools, content: &CallDetails) -> Option<ServiceOutcome> {
    let request = content.request.as_ref()?;
    // Sessions of requests are numbered by the generations of their programs.
    let is_ours = request.service.as_deref() == Some(SERVICE)
        && request.session.as_str().split_once('#').is_some_and(|(session, _)| session == SESSION);
    if !is_ours {
        return None;
    }
    let approved = match &*content.tool {
        SERVER_TOOL => approve_server(tools, &content.arguments).await,
        TOOLS_TOOL => approve_tools(tools, &content.arguments).await,
        _ => return None,
    };
    Some(match approved {
        Ok((listing, approval)) => ServiceOutcome::Done(approval_report(&listing, &approval).to_string()),
        Err(error) => {
            tracing::warn!(%error, "the allowed approval of an MCP server was not carried out");
            match error {
                ApproveError::Unknown(_) | ApproveError::Changed(_) => ServiceOutcome::NotBegun(error.to_string()),
                ApproveError::Server(_) | ApproveError::File(_) => ServiceOutcome::Failed(error.to_string()),
            }
        }
    })
}

type Approved = Result<(Arc<ServerListing>, ServerApproval), ApproveError>;

/// Starts a server and approves the tools that it lists.
async fn approve_server(tools: &McpTools, arguments: &Map<String, Value>) -> Approved {
    let name = arguments.get("server").and_then(Value::as_str).unwrap_or_default();
    let definition = tools.definition(name).filter(|now| server_arguments(now) == *arguments);
    if definition.is_none() {
        return Err(ApproveError::Unknown(name.to_owned()));
    }
    let (listing, approval) = tools.compare(name).await?;
    // At a terminal somebody approved it meanwhile, and saw its tools.
    if approval.is_new || approval.definition_changed {
        tools.approve(name, &listing).await?;
    }
    Ok((listing, approval))
}

/// Approves the tools of a server, if they are those that were shown.
async fn approve_tools(tools: &McpTools, arguments: &Map<String, Value>) -> Approved {
    let name = arguments.get("server").and_then(Value::as_str).unwrap_or_default();
    let (listing, approval) = tools.compare(name).await?;
    if is_unchanged(&approval) {
        return Ok((listing, approval));
    }
    if approval.is_new || approval.definition_changed || tools_arguments(&listing, &approval) != *arguments {
        return Err(ApproveError::Changed(name.to_owned()));
    }
    tools.approve(name, &listing).await?;
    Ok((listing, approval))
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
