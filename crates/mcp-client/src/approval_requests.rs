//! Approval of servers by people who answer gates: a server that is new or was changed is requested like a call.
//!
//! It must not decide: policy judges the request, and a person answers its gate. No server starts before that.

use std::sync::Arc;

use countersign_core::{
    call::{self, AgentRequest, CallDetails, CallEnd, RequestExecutor},
    digest::{Digest, canonical_json},
    engine::{Command, CommandError, EngineReply},
    id::{PrincipalId, SessionId},
    session,
    tool::{RepeatMode, ToolEffect},
};
use countersign_runtime::{CommandSource, OwnerError, ServiceOutcome};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::{
    approvals::{ApprovalOrigin, ServerApproval, ToolApproval},
    definition::ServerDefinition,
    listing::ServerListing,
    server_tools::{ApproveError, ServerTools},
};

/// Tool of a request to start a server and offer its tools.
pub const SERVER_TOOL: &str = "mcp_server";
/// Tool of a request to offer the tools of a server as they are now.
pub const TOOLS_TOOL: &str = "mcp_tools";
/// Most earlier requests of the same whose gate expired.
const MOST_EXPIRED: usize = 1000;

/// Requester of the approval of servers, and the session of its requests.
#[derive(Clone, Debug)]
pub struct ApprovalRequester {
    /// Session of the requests.
    pub session: SessionId,
    /// Opens that session before the first request, if it is not open. None if it always is.
    pub opening: Option<session::Command>,
    /// Principal of the requests.
    pub principal: PrincipalId,
    /// Adapter of the requests, as rules name it.
    pub door: Arc<str>,
    /// Service of the requests. No tool of a server has it.
    pub service: Arc<str>,
}

/// Requests the approval of every server that is not approved as it is defined. A request whose gate expired is made again.
///
/// # Errors
/// [`OwnerError`] if the session or a request cannot be recorded.
pub async fn request_approvals(
    requests: &CommandSource,
    requester: &ApprovalRequester,
    tools: &ServerTools,
) -> Result<(), OwnerError> {
    if tools.servers().definitions().next().is_none() {
        return Ok(());
    }
    let unapproved = match tools.unapproved() {
        Ok(unapproved) if unapproved.is_empty() => return Ok(()),
        Ok(unapproved) => unapproved,
        Err(error) => {
            tracing::error!("{error}; no MCP server is offered");
            return Ok(());
        }
    };
    requester.open_session(requests).await?;
    for definition in unapproved {
        match requester.request_once(requests, SERVER_TOOL, &definition.name, server_arguments(definition)).await {
            // Without it the server is not offered.
            Err(OwnerError::Refusal(refusal)) => {
                tracing::error!(server = definition.name, %refusal, "the approval of an MCP server cannot be requested");
            }
            requested => requested?,
        }
    }
    Ok(())
}

/// Requests the approval of one server that is not approved as it is defined.
///
/// # Errors
/// [`OwnerError`] if the session or the request cannot be recorded.
pub async fn request_server(
    requests: &CommandSource,
    requester: &ApprovalRequester,
    definition: &ServerDefinition,
) -> Result<(), OwnerError> {
    requester.open_session(requests).await?;
    requester.request_once(requests, SERVER_TOOL, &definition.name, server_arguments(definition)).await
}

/// Requests the approval of each server of which a call found another tool than the approved one. Ends with the record.
pub async fn request_changes(requests: &CommandSource, requester: &ApprovalRequester, tools: &ServerTools) {
    loop {
        // In parallel: one server may take a minute to start.
        let compared = tools.wait_refused().await.into_iter().map(async |server| tools.compare(&server).await);
        for (listing, approval) in join_all(compared).await.into_iter().filter_map(Result::ok) {
            if approval.is_new || approval.definition_changed || is_unchanged(&approval) {
                continue;
            }
            let server = &listing.server;
            let requested = async {
                requester.open_session(requests).await?;
                requester.request_once(requests, TOOLS_TOOL, server, tools_arguments(&listing, &approval)).await
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

impl ApprovalRequester {
    async fn open_session(&self, requests: &CommandSource) -> Result<(), OwnerError> {
        let Some(opening) = self.opening.clone() else { return Ok(()) };
        match requests.send_command(Command::Session(self.session.clone(), opening)).await {
            Ok(_) | Err(OwnerError::Refusal(CommandError::SessionExists(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Requests something, unless it was requested before and an approver may still answer, or did.
    async fn request_once(
        &self,
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
                session: self.session.clone(),
                principal: self.principal.clone(),
                door: Arc::clone(&self.door),
                wire: json!(key).to_string().into(),
                key: Some(key),
                tool: tool.into(),
                arguments: arguments.clone(),
                signatures: vec![format!("{tool}({server})")],
                named: vec!["server".to_owned()],
                undeclared: Vec::new(),
                service: Some(Arc::clone(&self.service)),
                executor: RequestExecutor::Service,
                paths: Vec::new(),
                cwd: String::new(),
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
}

/// Reports whether the tools of a server are those that were approved.
pub fn is_unchanged(approval: &ServerApproval) -> bool {
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

/// Returns what a person is shown of a server: all of its definition but values of secrets.
pub fn server_arguments(definition: &ServerDefinition) -> Map<String, Value> {
    let mut shown = Map::from_iter([("server".to_owned(), Value::from(definition.name.as_str()))]);
    if let Value::Object(description) = definition.description() {
        let is_said = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        shown.extend(description.into_iter().filter(|(_, value)| is_said(value)));
    }
    shown
}

/// Carries out an approved request of `requester`. `None` if it is another one.
pub async fn carry_out(
    requester: &ApprovalRequester,
    tools: &ServerTools,
    content: &CallDetails,
) -> Option<ServiceOutcome> {
    let request = content.request.as_ref()?;
    // Sessions of requests are numbered by the generations of their programs.
    let session = request.session.as_str().rsplit_once('#').map(|(session, _)| session);
    if request.service.as_deref() != Some(&*requester.service) || session != Some(requester.session.as_str()) {
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
async fn approve_server(tools: &ServerTools, arguments: &Map<String, Value>) -> Approved {
    let name = arguments.get("server").and_then(Value::as_str).unwrap_or_default();
    let definition = tools.definition(name).filter(|now| server_arguments(now) == *arguments);
    if definition.is_none() {
        return Err(ApproveError::Unknown(name.to_owned()));
    }
    let (listing, approval) = tools.compare(name).await?;
    // At a terminal somebody approved it meanwhile, and saw its tools.
    if approval.is_new || approval.definition_changed {
        tools.approve(name, &listing, &ApprovalOrigin::Gate).await?;
    }
    Ok((listing, approval))
}

/// Approves the tools of a server, if they are those that were shown.
async fn approve_tools(tools: &ServerTools, arguments: &Map<String, Value>) -> Approved {
    let name = arguments.get("server").and_then(Value::as_str).unwrap_or_default();
    let (listing, approval) = tools.compare(name).await?;
    if is_unchanged(&approval) {
        return Ok((listing, approval));
    }
    if approval.is_new || approval.definition_changed || tools_arguments(&listing, &approval) != *arguments {
        return Err(ApproveError::Changed(name.to_owned()));
    }
    tools.approve(name, &listing, &ApprovalOrigin::Gate).await?;
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
