//! Counts of open connections, by adapter.

use std::sync::Arc;

use countersign_runtime::metrics::Gauge;

/// Counts of the open connections of one realm, by adapter.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections {
    /// Connections of agents.
    pub agent_gate: Arc<Gauge>,
    /// Connections of gsv clients, nodes and channels.
    pub gsv: Arc<Gauge>,
    /// Replies that are streams.
    pub stream: Arc<Gauge>,
    /// All connections at the port, of any kind.
    pub http: Arc<Gauge>,
    /// Connections of MCP hosts over the control socket.
    pub mcp: Arc<Gauge>,
    /// Connections of editors.
    pub acp: Arc<Gauge>,
    /// Hooks that wait for their answer.
    pub hooks: Arc<Gauge>,
    /// Connections of hosts whose session lives in the gateway.
    pub attached: Arc<Gauge>,
}
