//! The protocols by which clients reach the gateway, and how their names are written in records.

use countersign_core::{
    gate::{Gate, Kind},
    id::PeerId,
};

/// A protocol that an adapter serves. Records, rules, grants and JSON output hold its name under the key `door`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// JSON-RPC of agent-gate.
    AgentGate,
    /// JSON lines of omp.
    Omp,
    /// JSON lines of gjc.
    Gjc,
    /// WebSocket of GSV.
    Gsv,
    /// HTTP and SSE of hermes.
    Hermes,
    /// Model Context Protocol.
    Mcp,
    /// Hooks of Claude Code.
    Claude,
    /// Hooks of Codex.
    Codex,
    /// Hooks of Gemini CLI.
    Gemini,
    /// Hooks of Copilot CLI.
    Copilot,
    /// Agent Client Protocol, of editors and of the agents behind a proxy.
    Acp,
    /// opencode: its plugin, and its requests for permission.
    Opencode,
    /// The gateway's own HTTP interface.
    Api,
    /// The gateway's web console.
    Console,
}

impl Protocol {
    /// The protocols that a gateway serves, in the order in which texts list them.
    pub const OF_GATEWAY: [Self; 12] = [
        Self::AgentGate,
        Self::Console,
        Self::Api,
        Self::Gsv,
        Self::Hermes,
        Self::Mcp,
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Copilot,
        Self::Acp,
        Self::Opencode,
    ];
    /// The protocols over standard input and output. Each has a rules file in its agent directory.
    pub const STDIO: [Self; 2] = [Self::Omp, Self::Gjc];

    /// The protocols whose programs run what the gateway allows.
    pub const FOREIGN: [Self; 7] =
        [Self::Mcp, Self::Claude, Self::Codex, Self::Gemini, Self::Copilot, Self::Acp, Self::Opencode];
    /// The protocols of programs before which a proxy stands.
    pub const PROXIED: [Self; 3] = [Self::Acp, Self::Codex, Self::Opencode];
    /// The protocols of hooks.
    pub const HOOKS: [Self; 5] = [Self::Claude, Self::Codex, Self::Gemini, Self::Copilot, Self::Opencode];

    /// Returns the name under which records keep it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AgentGate => "agent-gate",
            Self::Omp => "omp",
            Self::Gjc => "gjc",
            Self::Gsv => "gsv",
            Self::Hermes => "hermes",
            Self::Mcp => "mcp",
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Copilot => "copilot",
            Self::Acp => "acp",
            Self::Opencode => "opencode",
            Self::Api => "api",
            Self::Console => "console",
        }
    }

    /// Returns the protocol that a gate came by, where its session's record is of a version that did not name one.
    pub fn presumed_for(gate: &Gate) -> Self {
        let is_agents = gate.session().is_some_and(|session| session.as_str().starts_with("agent:"));
        match gate.kind() {
            Kind::Pairing => Self::Gsv,
            _ if is_agents => Self::AgentGate,
            _ => Self::Omp,
        }
    }
}

/// Prefix of the id of a peer that is a node.
const NODE: &str = "node:";

/// Returns the id of the peer that runs the calls of a node's tools.
pub fn peer_of(node: &str) -> PeerId {
    PeerId::new(format!("{NODE}{node}"))
}

/// Returns the name of the node that a peer is, if it is one.
pub fn node_of(peer: &PeerId) -> Option<&str> {
    peer.as_str().strip_prefix(NODE)
}
