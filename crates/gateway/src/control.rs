//! Control socket of a running gateway, with which the command line lists gates, answers them, and lists and revokes grants.
//!
//! One JSON object a line in each direction. Only the user whose gateway it is can open it.

mod bound_socket;
mod data_dir_lock;
mod own_requests;
mod proxied_call;
mod socket;

use std::time::Duration;

use countersign_adapter_acp::ConnectionOptions;
use countersign_adapter_omp::attach::AttachParams;
use countersign_core::{
    engine::{CommandError, Engine, EngineReply, ResidencyScope as Held},
    gate::{self, AnswerError, ApprovalScope, GateReply},
    id::{GateId, PrincipalId},
};
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle};
use countersign_view::{
    decisions::{self, check_id_length, denials_json, find_pending, grants_json, read_engine},
    gate_row::pending_rows,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::mcp_approvals::{self, ApprovalKey};

pub use countersign_adapter_acp::ConnectionOptions as AcpOptions;
pub use countersign_adapter_hooks::{
    CompleteInput, HookReply, HookRequest, InputReader, PROOF_MARK, PROOF_REASON, ProxiedCall, ProxyAnswer,
    ProxyDecision, SurfaceAnswer, SurfaceDecision,
};
pub use data_dir_lock::{DataDirLock, FILE, has_room};
pub use socket::{ControlSocket, SocketParts};
pub(crate) use socket::{SocketTarget, tunnel_server};

/// Request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Every pending gate.
    Gates,
    /// One gate, by its id or the end of it.
    Gate {
        /// Id of the gate.
        id: String,
    },
    /// Every pending gate, again after each change.
    Watch,
    /// Allows a gate.
    Allow {
        /// Id of the gate.
        id: String,
        /// Scope of the approval.
        scope: ApprovalScope,
        /// One of the rules that are proposed for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// Lifetime, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasts: Option<u64>,
    },
    /// Denies a gate.
    Deny {
        /// Id of the gate.
        id: String,
        /// Reason for the agent.
        reason: Option<String>,
    },
    /// Answers a question: labels of its choices, or a text.
    Answer {
        /// Id of the gate.
        id: String,
        /// Answers.
        #[serde(rename = "said")]
        answers: Vec<String>,
    },
    /// Every grant in force.
    Grants,
    /// Every denial in force.
    Denials,
    /// Ids of the sessions that wait for their hosts.
    WaitingForHosts,
    /// Attaches the session of a host, which uses the connection from then on.
    Attach(Box<AttachParams>),
    /// Connects a host of MCP, which uses the connection from then on.
    Mcp,
    /// Connects an editor, which uses the connection from then on.
    Acp(Box<ConnectionOptions>),
    /// Asks about a call of an agent, as its hook. The connection stays until the answer.
    Hook(Box<HookRequest>),
    /// Asks about a call of an agent, as the proxy before it. The connection stays until the decision.
    ProxiedCall(Box<ProxiedCall>),
    /// Reports a call that an agent behind a proxy ran.
    ProxiedRun(Box<ProxiedCall>),
    /// Log level, or with a level a change of it.
    LogLevel {
        /// New level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        level: Option<String>,
    },
    /// Reads the approvals of MCP servers again, and ends the process of the server whose approval changed.
    ReloadMcp {
        /// Name of the server.
        server: String,
    },
    /// Names of the MCP servers whose approval was denied.
    DeniedMcp {
        /// Keys of the requests for their approval.
        keys: Vec<ApprovalKey>,
    },
    /// Revokes a grant or a denial.
    Revoke {
        /// Id.
        id: String,
    },
}

/// Reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// Result.
    Ok(Value),
    /// Reason why there is none.
    Error(String),
}

/// Answers one request.
pub async fn answer_request(handle: &OwnerHandle, request: Request, by: &PrincipalId) -> ControlReply {
    match execute_request(handle, request, by).await {
        Ok(value) => ControlReply::Ok(value),
        Err(problem) => ControlReply::Error(problem),
    }
}

async fn execute_request(handle: &OwnerHandle, request: Request, by: &PrincipalId) -> Result<Value, String> {
    let source = handle.source(InboxLane::Result);
    match request {
        Request::Gates | Request::Watch => read_engine(&source, |engine| json!(pending_rows(engine))).await,
        Request::Gate { id } => gate_detail(&source, id).await,
        Request::Allow { id, scope: ApprovalScope::Once, rule: None, lasts: None } => {
            resolve_gate(&source, &id, GateReply::Allow(ApprovalScope::Once), by).await
        }
        Request::Allow { id, scope, rule, lasts } => {
            let grant = gate::GrantTerms { scope, pattern: rule, lasts: lasts.map(Duration::from_secs) };
            resolve_gate(&source, &id, GateReply::Grant(grant), by).await
        }
        Request::Deny { id, reason } => resolve_gate(&source, &id, GateReply::Deny { reason }, by).await,
        Request::Answer { id, answers } => resolve_gate(&source, &id, GateReply::Say(answers), by).await,
        Request::Grants => read_engine(&source, |engine| grants_json(engine.state().policy().grants())).await,
        Request::Denials => {
            let constraints = read_engine(&source, |engine| engine.state().policy().constraints().clone()).await?;
            let gates = constraints.iter().filter_map(|one| one.gate).collect();
            let covers = decisions::all_covered(handle, gates).await;
            Ok(denials_json(&constraints, &covers))
        }
        Request::WaitingForHosts => {
            let ids = |engine: &Engine| engine.waiting_for_hosts().map(|session| json!(session.id())).collect();
            read_engine(&source, ids).await
        }
        Request::DeniedMcp { keys } => Ok(json!(mcp_approvals::denied_servers(handle, keys).await)),
        Request::Attach(_) => Err("an attach request needs a connection of its own".to_owned()),
        Request::ReloadMcp { .. } => Err("approvals are handled by the socket, not here".to_owned()),
        Request::Acp(_) => Err("an editor needs a connection of its own".to_owned()),
        Request::Mcp => Err("an MCP request needs a connection of its own".to_owned()),
        Request::Hook(_) => Err("a hook needs a connection of its own".to_owned()),
        Request::ProxiedCall(_) | Request::ProxiedRun(_) => {
            Err("calls of proxies are handled by the socket, not here".to_owned())
        }
        Request::LogLevel { .. } => Err("log levels are handled by the socket, not here".to_owned()),
        Request::Revoke { id } => Ok(json!({ "revoked": decisions::revoke_by_id(&source, &id, by).await? })),
    }
}

/// Returns the row of a pending gate, or its resolution.
async fn gate_detail(source: &countersign_runtime::CommandSource, id: String) -> Result<Value, String> {
    let owned_id = id.clone();
    match (
        read_engine(source, move |engine| find_pending(engine, &owned_id).map(|row| json!(row))).await?,
        GateId::parse(&id),
    ) {
        // A gate that was resolved a while ago is found by its whole id only.
        (Err(problem), Some(gate)) => {
            let look = move |engine: &Engine| engine.state().gate(gate).and_then(decisions::resolution_notice);
            let became = source.read_of(Held::Gate(gate), look).await.and_then(|(became, _)| became);
            Err(became.unwrap_or(problem))
        }
        (found, _) => found,
    }
}

async fn resolve_gate(
    source: &countersign_runtime::CommandSource,
    id: &str,
    answer: GateReply,
    by: &PrincipalId,
) -> Result<Value, String> {
    check_id_length(id)?;
    let owned_id = id.to_owned();
    let row = read_engine(source, move |engine| find_pending(engine, &owned_id)).await?;
    // A gate that was resolved a while ago is found by its whole id only; the engine has its resolution.
    let gate = match row {
        Ok(row) => row.id,
        Err(problem) => GateId::parse(id).map(|gate| gate.to_string()).ok_or(problem)?,
    };
    let gate = GateId::parse(&gate).ok_or_else(|| format!("{id} is not the id of a gate"))?;
    let reply = decisions::answer_gate(source, gate, answer, by, None).await.map_err(|refused| match refused {
        OwnerError::Refusal(CommandError::Answer(AnswerError::AlreadyResolved { gate, resolution, by })) => {
            let by = by.map_or_else(String::new, |by| format!(" by {by}"));
            format!("{gate} is already resolved: {}{by}", countersign_view::record::resolution_text(&resolution))
        }
        refused => refused.to_string(),
    })?;
    Ok(match reply {
        EngineReply::Voted { have, need } => json!({ "id": gate.to_string(), "have": have, "need": need }),
        _ => json!({ "id": gate.to_string() }),
    })
}
