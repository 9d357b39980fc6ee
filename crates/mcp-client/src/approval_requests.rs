//! Approval of servers by people who answer gates: a server that is new or was changed is requested like a call.
//!
//! It must not decide: policy judges the request, and a person answers its gate. No server starts before that.

use std::sync::Arc;

use countersign_core::{
    call::{self, AgentRequest, CallDetails, CallEnd, RequestExecutor},
    digest::{Digest, canonical_json},
    engine::{Command, CommandError, Engine, EngineReply},
    id::{PrincipalId, SessionId},
    session::{self, Session},
    tool::{RepeatMode, ToolEffect},
};
use countersign_runtime::{CommandSource, OwnerError, ServiceOutcome};
use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt as _},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    approvals::{ApprovalOrigin, ServerApproval, ToolApproval},
    definition::ServerDefinition,
    listing::{ServerListing, ServerTool},
    server_tools::{ApproveError, ComparedServer, ServerTools},
};

/// Tool of a request to start a server and offer its tools.
pub const SERVER_TOOL: &str = "mcp_server";
/// Tool of a request to offer the tools of a server as they are now.
pub const TOOLS_TOOL: &str = "mcp_tools";
/// Argument of requests: the digest of the definition.
const DEFINITION: &str = "definition";
/// Most earlier requests of the same that no person refused.
const MOST_EARLIER: usize = 1000;

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

/// Key of the requests to approve a server as it is defined, by which their ends are found in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalKey {
    /// Name of the server.
    pub server: String,
    /// Beginning of the keys of the requests. The number of the request follows.
    prefix: String,
}

impl ApprovalKey {
    /// Creates the key of requests with these arguments: [`server_arguments`].
    pub fn new(server: &str, arguments: &Map<String, Value>) -> Self {
        Self { server: server.to_owned(), prefix: key_prefix(SERVER_TOOL, server, arguments) }
    }

    /// Reports whether the last of the requests in a session was denied, by a person or by a rule.
    pub fn is_denied(&self, engine: &Engine, session: &SessionId) -> bool {
        let Some(requests) = engine.state().session(session).and_then(Session::agent_requests) else { return false };
        let of_number = |number| requests.keyed_request(&format!("{}{number}", self.prefix));
        let last = (1..=MOST_EARLIER).map_while(of_number).last();
        last.is_some_and(|request| matches!(request.over, Some((CallEnd::Refused | CallEnd::Denied, _))))
    }
}

/// Returns the beginning of the keys of requests. It stands for exactly what is shown.
fn key_prefix(tool: &str, server: &str, arguments: &Map<String, Value>) -> String {
    let digest = Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes());
    format!("{tool}:{server}:{digest}:")
}

/// Meaning of an earlier refusal of the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlierRefusal {
    /// It is not requested again.
    Final,
    /// An operator wants it to be requested again.
    Overruled,
}

/// Requests the approval of every server that is not approved as it is defined, unless a person refused the same before.
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
    let approved = match tools.read_approvals().await {
        Ok(approved) => approved,
        Err(error) => {
            tracing::error!("{error}; no MCP server is offered");
            return Ok(());
        }
    };
    let unapproved: Vec<&ServerDefinition> =
        tools.servers().definitions().filter(|definition| !approved.is_approved(definition)).collect();
    if unapproved.is_empty() {
        return Ok(());
    }
    requester.open_session(requests).await?;
    for definition in unapproved {
        let (name, arguments) =
            (&definition.name, server_arguments(definition, approved.revocations(&definition.name)));
        match requester.request_once(requests, SERVER_TOOL, name, arguments, EarlierRefusal::Final).await {
            // Without it the server is not offered.
            Err(OwnerError::Refusal(refusal)) => {
                tracing::error!(server = name, %refusal, "the approval of an MCP server cannot be requested");
            }
            requested => requested?,
        }
    }
    Ok(())
}

/// Requests the approval of one server that is not approved as it is defined, for an operator: also if a person refused it before.
///
/// # Errors
/// [`OwnerError`] if the session or the request cannot be recorded.
pub async fn request_server(
    requests: &CommandSource,
    requester: &ApprovalRequester,
    definition: &ServerDefinition,
    revocations: u64,
) -> Result<(), OwnerError> {
    requester.open_session(requests).await?;
    let arguments = server_arguments(definition, revocations);
    requester.request_once(requests, SERVER_TOOL, &definition.name, arguments, EarlierRefusal::Overruled).await
}

/// Offers the tools of servers as they are approved now.
pub type ToolRenewal = dyn Fn() -> BoxFuture<'static, ()> + Send + Sync;

/// Requests the approval of each approved server of which a call found another tool than the approved one. If another process has
/// approved it as it is since the tools were offered here, `renew` offers them again. Ends with the record.
pub async fn request_changes(
    requests: &CommandSource,
    requester: &ApprovalRequester,
    tools: &ServerTools,
    renew: &ToolRenewal,
) {
    // Each by itself: one server may take a minute to start.
    let mut comparisons = FuturesUnordered::new();
    loop {
        let compared = tokio::select! {
            servers = tools.wait_refused() => {
                comparisons.extend(servers.into_iter().map(|server| async move {
                    let compared = tools.compare_approved(&server).await;
                    (server, compared)
                }));
                continue;
            }
            Some(compared) = comparisons.next() => compared,
        };
        let (server, Ok((listing, approval))) = compared else { continue };
        let Some(definition) = tools.definition(&server) else { continue };
        if approval.is_new || approval.definition_changed {
            continue;
        }
        if is_unchanged(&approval) {
            renew().await;
            continue;
        }
        let arguments = tools_arguments(definition, &listing, &approval);
        let requested = async {
            requester.open_session(requests).await?;
            requester.request_once(requests, TOOLS_TOOL, &server, arguments, EarlierRefusal::Final).await
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

impl ApprovalRequester {
    async fn open_session(&self, requests: &CommandSource) -> Result<(), OwnerError> {
        let Some(opening) = self.opening.clone() else { return Ok(()) };
        match requests.send_command(Command::Session(self.session.clone(), opening)).await {
            Ok(_) | Err(OwnerError::Refusal(CommandError::SessionExists(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Requests something, unless the same waits for an approver, or a person refused it. All other ends leave it open: a rule that
    /// denied it may be gone, and an earlier approval of the same counts no more.
    async fn request_once(
        &self,
        requests: &CommandSource,
        tool: &str,
        server: &str,
        arguments: Map<String, Value>,
        refusal: EarlierRefusal,
    ) -> Result<(), OwnerError> {
        let prefix = key_prefix(tool, server, &arguments);
        for number in 1..=MOST_EARLIER {
            let key = format!("{prefix}{number}");
            let request = AgentRequest {
                session: self.session.clone(),
                principal: self.principal.clone(),
                door: Arc::clone(&self.door),
                wire: json!(key).to_string().into(),
                key: Some(key),
                tool: tool.into(),
                arguments: arguments.clone(),
                signatures: vec![format!("{tool}({server})")],
                // A denial of one definition is none of another.
                named: ["server", DEFINITION, "digest"].map(str::to_owned).into(),
                undeclared: Vec::new(),
                service: Some(Arc::clone(&self.service)),
                executor: RequestExecutor::Service,
                paths: Vec::new(),
                cwd: String::new(),
                leads_to: None,
                for_principals: Vec::new(),
                effect: ToolEffect::Changes,
                // Approving the same tools twice is approving them once.
                repeat: RepeatMode::Idempotent,
            };
            let reply = requests.send_command(Command::Call(call::Command::Request(Box::new(request)))).await?;
            match reply.outcome {
                EngineReply::Requested { over: Some((CallEnd::Refused, _)), .. }
                    if refusal == EarlierRefusal::Final =>
                {
                    return Ok(());
                }
                EngineReply::Requested { over: Some(_), .. } => {}
                _ => return Ok(()),
            }
        }
        tracing::warn!(server, tool, "an approval was requested {MOST_EARLIER} times; it is not requested again");
        Ok(())
    }
}

/// Reports whether the tools of a server are those that were approved.
pub fn is_unchanged(approval: &ServerApproval) -> bool {
    approval.tools.iter().all(|(_, state)| *state == ToolApproval::Approved)
}

/// Returns what an approver is shown of the tools of a server that are not as they were approved, whole, with digests of the
/// definition and of all tools.
fn tools_arguments(
    definition: &ServerDefinition,
    listing: &ServerListing,
    approval: &ServerApproval,
) -> Map<String, Value> {
    let digests: Vec<String> = listing.tools.iter().map(|tool| format!("{} {}", tool.name, tool.digest)).collect();
    let digest = Digest::hash_bytes(digests.join("\n").as_bytes());
    let (mut changed, mut new, mut gone) = (Map::new(), Map::new(), Vec::new());
    for (tool, state) in &approval.tools {
        match state {
            ToolApproval::Approved => {}
            ToolApproval::New => drop(new.insert(tool.name.clone(), new_tool(tool))),
            ToolApproval::Changed { differences } => drop(changed.insert(tool.name.clone(), json!(differences))),
            ToolApproval::Gone => gone.push(Value::from(tool.name.as_str())),
        }
    }
    let mut shown = named_server(definition, approval.mark.revocations);
    let parts = [("changed", Value::Object(changed)), ("new", Value::Object(new)), ("gone", Value::Array(gone))];
    let is_said = |value: &Value| *value != json!({}) && *value != json!([]);
    shown.extend(parts.into_iter().filter(|(_, value)| is_said(value)).map(|(name, value)| (name.to_owned(), value)));
    shown.insert("digest".to_owned(), digest.to_string().into());
    shown
}

fn new_tool(tool: &ServerTool) -> Value {
    let mut shown = json!({ "description": tool.description, "schema": tool.schema });
    if let Some(schema) = &tool.output_schema {
        shown["output_schema"] = schema.clone();
    }
    if tool.annotations.as_object().is_some_and(|hints| !hints.is_empty()) {
        shown["annotations"] = tool.annotations.clone();
    }
    shown
}

/// Returns what a person is shown of a server that was revoked so many times: all of its definition but values of secrets.
pub fn server_arguments(definition: &ServerDefinition, revocations: u64) -> Map<String, Value> {
    let mut shown = named_server(definition, revocations);
    if let Value::Object(description) = definition.description() {
        let is_said = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        shown.extend(description.into_iter().filter(|(_, value)| is_said(value)));
    }
    shown
}

/// Returns the name of a server, the digest of its definition, and the number of its revocations if it has any: an answer from before the last one is void.
fn named_server(definition: &ServerDefinition, revocations: u64) -> Map<String, Value> {
    let mut shown = Map::from_iter([
        ("server".to_owned(), Value::from(definition.name.as_str())),
        (DEFINITION.to_owned(), definition.digest().to_string().into()),
    ]);
    if revocations > 0 {
        shown.insert("revocations".to_owned(), revocations.into());
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
                ApproveError::Unknown(_)
                | ApproveError::NotApproved(_)
                | ApproveError::Changed(_)
                | ApproveError::Superseded(_) => ServiceOutcome::NotBegun(error.to_string()),
                ApproveError::Server(_) | ApproveError::File(_) => ServiceOutcome::Failed(error.to_string()),
            }
        }
    })
}

/// Starts a server and approves the tools that it lists.
async fn approve_server(tools: &ServerTools, arguments: &Map<String, Value>) -> Result<ComparedServer, ApproveError> {
    let (name, revocations) = requested_server(arguments);
    let definition = tools.definition(name).filter(|now| server_arguments(now, revocations) == *arguments);
    if definition.is_none() {
        return Err(ApproveError::Unknown(name.to_owned()));
    }
    if tools.read_approvals().await?.revocations(name) != revocations {
        return Err(ApproveError::Superseded(name.to_owned()));
    }
    let (listing, approval) = tools.compare(name).await?;
    if approval.mark.revocations != revocations {
        return Err(ApproveError::Superseded(name.to_owned()));
    }
    // At a terminal somebody approved it meanwhile, and saw its tools.
    if approval.is_new || approval.definition_changed {
        tools.approve(name, &listing, &approval, &ApprovalOrigin::Gate).await?;
    }
    Ok((listing, approval))
}

/// Approves the tools of an approved server, if they are those that were shown.
async fn approve_tools(tools: &ServerTools, arguments: &Map<String, Value>) -> Result<ComparedServer, ApproveError> {
    let (name, revocations) = requested_server(arguments);
    let definition = tools.definition(name).ok_or_else(|| ApproveError::Unknown(name.to_owned()))?;
    if arguments.get(DEFINITION).and_then(Value::as_str) != Some(definition.digest().to_string().as_str()) {
        return Err(ApproveError::Unknown(name.to_owned()));
    }
    let (listing, approval) = tools.compare_approved(name).await?;
    if approval.mark.revocations != revocations {
        return Err(ApproveError::Superseded(name.to_owned()));
    }
    if is_unchanged(&approval) {
        return Ok((listing, approval));
    }
    if approval.is_new || approval.definition_changed || tools_arguments(definition, &listing, &approval) != *arguments
    {
        return Err(ApproveError::Changed(name.to_owned()));
    }
    tools.approve(name, &listing, &approval, &ApprovalOrigin::Gate).await?;
    Ok((listing, approval))
}

/// Returns the server of a request, and the number of its revocations at that time.
fn requested_server(arguments: &Map<String, Value>) -> (&str, u64) {
    let name = arguments.get("server").and_then(Value::as_str).unwrap_or_default();
    (name, arguments.get("revocations").and_then(Value::as_u64).unwrap_or_default())
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

#[cfg(test)]
mod tests;
