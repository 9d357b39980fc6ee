//! Who is connected: agents, nodes and accounts of chat networks, as their adapter reports it.

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
    /// What the log says.
    fn list_nodes(self: Arc<Self>) -> BoxFuture<'static, Result<Vec<NodeStatus>, LogReadError>>;

    /// Returns every account of a chat network but the messenger's own; none if the gateway closes.
    fn list_accounts(self: Arc<Self>) -> BoxFuture<'static, Option<Vec<ChannelAccountStatus>>>;
}

/// A node that is here, or was.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its id.
    pub id: String,
    /// Whether it is connected.
    pub is_connected: bool,
    /// When it last came or went.
    pub seen: Millis,
    /// Its operating system, in its own words.
    pub platform: Option<String>,
    /// The version of its program.
    pub version: Option<String>,
    /// How many tools it offers.
    pub tools: usize,
    /// Whether it keeps a journal, so that what was cut off is asked for again.
    pub keeps_journal: bool,
}

/// An account of a chat network.
#[derive(Clone, Debug)]
pub struct ChannelAccountStatus {
    /// Which network.
    pub network: String,
    /// Its name there.
    pub name: String,
    /// Whether something can be carried to it.
    pub is_connected: bool,
    /// When something last came through it.
    pub last_inbound: Option<Millis>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// How many letters wait to be carried.
    pub waiting: usize,
}
