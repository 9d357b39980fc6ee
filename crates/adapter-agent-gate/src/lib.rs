//! The agent-gate adapter: agents on untrusted devices request actions on services whose credentials only the
//! gateway holds. JSON-RPC 2.0 over WebSocket.
//!
//! It decides nothing: a frame becomes a command, and its outcome becomes a reply. Source:
//! docs/protocol/agent-gate.md.

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
    engine::{Command, CommandError},
    id::{PrincipalId, SessionId},
    session::{self, SessionSetting, Settings as SessionSettings},
};
use countersign_http::{
    limits::{FailedAuth, SlidingWindow},
    listen::ConnectionPermit,
};
use countersign_policy_admin::service_tools::ServiceTools;
use countersign_runtime::{Clock, InboxLane, OwnerError, OwnerHandle, tools::GatewaySecrets};
use countersign_view::{Protocol, connection_status::AgentStatus, principals};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

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
    /// Names of their tools, in the order of the files.
    pub listed: Vec<String>,
    /// Tools by name.
    pub tools: Arc<ServiceTools>,
    /// Secrets that they may name in arguments.
    pub secrets: GatewaySecrets,
    /// Limits.
    pub limits: AgentLimits,
}

/// Agent that the adapter serves.
struct RegisteredAgent {
    id: String,
    token: [u8; 32],
    principal: PrincipalId,
    session: SessionId,
    window: parking_lot::Mutex<SlidingWindow>,
}

/// Adapter. One serves all agents of a gateway.
pub struct AgentGateAdapter {
    handle: OwnerHandle,
    clock: Clock,
    agents: Vec<Arc<RegisteredAgent>>,
    tools: Arc<ServiceTools>,
    secrets: GatewaySecrets,
    /// Result of `list_tools`, encoded once.
    listed: String,
    outcomes: Arc<OutcomeRouter>,
    roster: AgentRoster,
    failed: parking_lot::Mutex<FailedAuth>,
    closing: tokio::sync::watch::Sender<bool>,
}

impl AgentStatus for AgentGateAdapter {
    fn all_agents(&self) -> Vec<(String, SessionId)> {
        self.agents.iter().map(|agent| (agent.id.clone(), agent.session.clone())).collect()
    }

    fn is_connected(&self, session: &SessionId) -> bool {
        self.agents.iter().any(|agent| agent.session == *session && self.roster.is_connected(&agent.id))
    }
}

impl AgentGateAdapter {
    /// Opens the adapter on an owner, with a session for each agent.
    ///
    /// # Errors
    /// The reason why a session could not be opened.
    pub async fn open(handle: OwnerHandle, clock: Clock, settings: Settings) -> Result<Arc<Self>, OwnerError> {
        let requests = handle.source(InboxLane::Request);
        let mut agents = Vec::new();
        for agent in settings.agents {
            let session = SessionId::new(format!("agent:{}", agent.id));
            let set = SessionSettings {
                approval_timeout: settings.limits.approval_timeout,
                max_pending: settings.limits.pending,
                ..SessionSettings::default()
            };
            let open = session::Command::Open {
                cwd: String::new(),
                name: Some(agent.id.clone()),
                parent: None,
                door: Some(ADAPTER_NAME.to_owned()),
                settings: Box::new(set.clone()),
            };
            match requests.send_command(Command::Session(session.clone(), open)).await {
                Ok(_) => {}
                Err(OwnerError::Refusal(CommandError::SessionExists(_))) => {
                    let set = session::Command::Set { setting: SessionSetting::All(Box::new(set)), entry: None };
                    requests.send_command(Command::Session(session.clone(), set)).await?;
                }
                Err(refused) => return Err(refused),
            }
            agents.push(Arc::new(RegisteredAgent {
                principal: principals::of_agent(&agent.id),
                token: token_digest(agent.token.expose_secret()),
                id: agent.id,
                session,
                window: parking_lot::Mutex::new(SlidingWindow::new(settings.limits.per_minute)),
            }));
        }
        let closing = tokio::sync::watch::Sender::new(false);
        let outcomes = OutcomeRouter::follow_outcomes(&handle, closing.clone()).await.ok_or(OwnerError::Closed)?;
        let listed = requests::tool_list(&settings.listed, &settings.tools);
        Ok(Arc::new(Self {
            handle,
            clock,
            agents,
            listed,
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
        !self.agents.is_empty()
    }

    /// Serves one connection to its end.
    pub async fn serve_socket(self: &Arc<Self>, socket: WebSocket, from: IpAddr, place: Arc<ConnectionPermit>) {
        connection::serve_connection(self, socket, from, &place).await;
    }

    /// Reports whether it is the session of one of the agents.
    pub fn is_agents(&self, session: &SessionId) -> bool {
        self.agents.iter().any(|agent| agent.session == *session)
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

    /// Returns the agent with this token.
    fn agent_for_token(&self, token: &str) -> Option<&Arc<RegisteredAgent>> {
        let shown = token_digest(token);
        // Every agent is compared, so that the time reveals nothing.
        let mut found = None;
        for agent in &self.agents {
            if bool::from(agent.token.ct_eq(&shown)) {
                found = Some(agent);
            }
        }
        found
    }
}

fn token_digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
