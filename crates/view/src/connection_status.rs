//! Connection status of agents, nodes and accounts of chat networks, as their adapter reports it.

use std::sync::Arc;

use countersign_core::{id::SessionId, time::Millis};
use countersign_runtime::store::LogReadError;
use futures_util::future::BoxFuture;

/// The agents that may connect.
pub trait AgentStatus: Send + Sync {
    /// Returns every agent by its id, with its session.
    fn all_agents(&self) -> Vec<(String, SessionId)>;

    /// Returns whether the agent of this session is connected.
    fn is_connected(&self, session: &SessionId) -> bool;
}

/// The nodes, and the accounts of chat networks.
pub trait PeerStatus: Send + Sync {
    /// Returns every node that was ever connected, by its id.
    ///
    /// # Errors
    /// Errors of the log.
    fn list_nodes(self: Arc<Self>) -> BoxFuture<'static, Result<Vec<NodeStatus>, LogReadError>>;

    /// Returns every account of a chat network but the messenger's own; none if the gateway closes.
    fn list_accounts(self: Arc<Self>) -> BoxFuture<'static, Option<Vec<ChannelAccountStatus>>>;
}

/// A node that is here, or was.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its id.
    pub id: String,
    /// True if it is connected.
    pub is_connected: bool,
    /// Time of its last connection or disconnection.
    pub seen: Millis,
    /// Its operating system, in its own words.
    pub platform: Option<String>,
    /// The version of its program.
    pub version: Option<String>,
    /// Number of tools that it offers.
    pub tools: usize,
    /// True if it keeps a journal, so that interrupted calls are asked about again.
    pub keeps_journal: bool,
}

/// An account of a chat network.
#[derive(Clone, Debug)]
pub struct ChannelAccountStatus {
    /// Name of the chat network.
    pub network: String,
    /// Its name there.
    pub name: String,
    /// True if messages can be delivered to it.
    pub is_connected: bool,
    /// Time of the last inbound message.
    pub last_inbound: Option<Millis>,
    /// Present problem.
    pub problem: Option<String>,
    /// Number of messages that wait for delivery.
    pub waiting: usize,
}
