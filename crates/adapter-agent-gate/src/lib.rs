//! The agent-gate adapter: agents on untrusted devices request actions on services whose credentials only the
//! gateway holds. JSON-RPC 2.0 over WebSocket.
//!
//! It decides nothing: a frame becomes a command, and its outcome becomes a reply. Source:
//! docs/protocol/agent-gate.md.

mod agents;
mod authentication;
mod connection;
mod connection_end;
mod outcome;
mod outcome_router;
mod pending_results;
mod requests;
mod roster;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::extract::ws::WebSocket;
use countersign_core::{
    engine::{Command, CommandError, Engine},
    id::SessionId,
    session::{self, SessionSetting, Settings as SessionSettings},
};
use countersign_http::{limits::FailedAuth, listen::ConnectionPermit};
use countersign_policy_admin::tool_catalog::ToolCatalog;
use countersign_runtime::{Clock, CommandSource, InboxLane, OwnerError, OwnerHandle, tools::GatewaySecrets};
use countersign_view::{Protocol, connection_status::AgentStatus};
use secrecy::SecretString;

use agents::{RegisteredAgent, RegisteredAgents};
use outcome_router::OutcomeRouter;
use roster::AgentRoster;

/// Name of this adapter in rules.
const ADAPTER_NAME: &str = Protocol::AgentGate.name();

/// Agent that may connect.
pub struct AgentCredentials {
    /// Name for users and rules.
    pub id: String,
    /// Token that it shows.
    pub token: SecretString,
}

/// Limits of an agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentLimits {
    /// Most requests in any 60 seconds.
    pub per_minute: u32,
    /// Most requests that wait for approval at once.
    pub pending: u32,
    /// Most failed authentications of one address in any 60 seconds.
    pub failed_auth_per_minute: u32,
    /// Lifetime of an approval.
    pub approval_timeout: Duration,
}

/// Settings of the adapter.
pub struct Settings {
    /// Agents that may connect. Empty: the adapter is closed.
    pub agents: Vec<AgentCredentials>,
    /// Their tools.
    pub tools: Arc<ToolCatalog>,
    /// Secrets that they may name in arguments.
    pub secrets: GatewaySecrets,
    /// Limits.
    pub limits: AgentLimits,
}

/// Adapter. One serves all agents of a gateway.
pub struct AgentGateAdapter {
    handle: OwnerHandle,
    clock: Clock,
    agents: RegisteredAgents,
    tools: Arc<ToolCatalog>,
    secrets: GatewaySecrets,
    outcomes: Arc<OutcomeRouter>,
    roster: AgentRoster,
    failed: parking_lot::Mutex<FailedAuth>,
    closing: tokio::sync::watch::Sender<bool>,
}

impl AgentStatus for AgentGateAdapter {
    fn all_agents(&self) -> Vec<(String, SessionId)> {
        self.agents.as_slice().iter().map(|agent| (agent.id.clone(), agent.session.clone())).collect()
    }

    fn is_connected(&self, session: &SessionId) -> bool {
        self.agents.id_of_session(session).is_some_and(|id| self.roster.is_connected(id))
    }
}

impl AgentGateAdapter {
    /// Opens the adapter on an owner, with a session for each agent.
    ///
    /// # Errors
    /// The reason why a session could not be opened.
    pub async fn open(handle: OwnerHandle, clock: Clock, settings: Settings) -> Result<Arc<Self>, OwnerError> {
        let requests = handle.source(InboxLane::Request);
        let agents = RegisteredAgents::new(settings.agents, settings.limits.per_minute);
        open_sessions(&requests, agents.as_slice(), &settings.limits).await?;
        let closing = tokio::sync::watch::Sender::new(false);
        let outcomes = OutcomeRouter::follow_outcomes(&handle, closing.clone()).await.ok_or(OwnerError::Closed)?;
        Ok(Arc::new(Self {
            handle,
            clock,
            agents,
            tools: settings.tools,
            secrets: settings.secrets,
            failed: parking_lot::Mutex::new(FailedAuth::new(settings.limits.failed_auth_per_minute)),
            outcomes,
            roster: AgentRoster::default(),
            closing,
        }))
    }

    /// Reports whether any agent may connect.
    pub fn is_open(&self) -> bool {
        !self.agents.as_slice().is_empty()
    }

    /// Serves one connection to its end.
    pub async fn serve_socket(self: &Arc<Self>, socket: WebSocket, from: IpAddr, place: Arc<ConnectionPermit>) {
        connection::serve_connection(self, socket, from, &place).await;
    }

    /// Reports whether it is the session of one of the agents.
    pub fn is_agents(&self, session: &SessionId) -> bool {
        self.agents.id_of_session(session).is_some()
    }

    /// Tells every agent to reconnect later. Pending gates stay.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until the adapter is closed: by [`AgentGateAdapter::close`], or because its owner has ended and no request could be answered.
    pub async fn wait_until_closed(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }
}

/// Opens the session of each agent, and sets the limits of those that exist with others. All commands are submitted before the first
/// reply is awaited, so that many sessions share a commit.
async fn open_sessions(
    requests: &CommandSource,
    agents: &[Arc<RegisteredAgent>],
    limits: &AgentLimits,
) -> Result<(), OwnerError> {
    let settings = SessionSettings {
        approval_timeout: limits.approval_timeout,
        max_pending: limits.pending,
        ..SessionSettings::default()
    };
    let mut opened = Vec::with_capacity(agents.len());
    for agent in agents {
        let open = session::Command::Open {
            cwd: String::new(),
            name: Some(agent.id.clone()),
            parent: None,
            door: Some(ADAPTER_NAME.to_owned()),
            settings: Box::new(settings.clone()),
        };
        opened.push(requests.submit_command(Command::Session(agent.session.clone(), open)).await);
    }
    let mut known = Vec::new();
    for (agent, reply) in agents.iter().zip(opened) {
        match reply.await.unwrap_or(Err(OwnerError::Closed)) {
            Ok(_) => {}
            Err(OwnerError::Refusal(CommandError::SessionExists(_))) => known.push(agent.session.clone()),
            Err(refused) => return Err(refused),
        }
    }
    // A setting that has not changed is no fact: otherwise each start would record one for every agent.
    let wanted = settings.clone();
    let differs = move |engine: &Engine| -> Vec<SessionId> {
        let has_others =
            |id: &SessionId| engine.state().session(id).is_none_or(|session| *session.settings() != wanted);
        known.into_iter().filter(has_others).collect()
    };
    let (others, _) = requests.read_state(differs).await.ok_or(OwnerError::Closed)?;
    let mut changed = Vec::with_capacity(others.len());
    for session in others {
        let setting = SessionSetting::All(Box::new(settings.clone()));
        let set = session::Command::Set { setting, entry: None };
        changed.push(requests.submit_command(Command::Session(session, set)).await);
    }
    for reply in changed {
        reply.await.unwrap_or(Err(OwnerError::Closed))?;
    }
    Ok(())
}
