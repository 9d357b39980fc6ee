//! MCP servers of the gateway.

use countersign_core::id::PrincipalId;
use countersign_view::{
    mcp_server_status::{McpActivity, McpApproval, McpServerRow, McpToolRow, McpToolState},
    time::format_iso,
};
use schemars::JsonSchema;
use serde::Serialize;

/// All configured MCP servers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpServers")]
pub(crate) struct McpServerList {
    /// Sorted by name.
    pub(crate) servers: Vec<McpServerBody>,
}

/// One MCP server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpServer")]
pub(crate) struct McpServerBody {
    name: String,
    /// Transport of its messages: stdio or http.
    transport: &'static str,
    /// Command or address on one line, without values of variables and headers.
    address: String,
    approval: McpApprovalWord,
    #[schemars(extend("format" = "date-time"))]
    approved_at: Option<String>,
    /// User who approved it; null if a gate was answered.
    #[schemars(with = "Option<String>")]
    approved_by: Option<PrincipalId>,
    state: McpStateWord,
    /// Version of the protocol, while it runs.
    protocol: Option<String>,
    /// Last error, if it failed.
    problem: Option<String>,
    /// Tools of its connection, or else the approved ones.
    tools: Vec<McpToolBody>,
}

/// Approval of an MCP server: approved as it is configured, approved with another definition, denied as it is configured, or none of them.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum McpApprovalWord {
    Approved,
    Changed,
    Denied,
    Missing,
}

/// Activity of an MCP server.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum McpStateWord {
    Disabled,
    Idle,
    Starting,
    Running,
    Failed,
}

/// One tool of an MCP server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "McpTool")]
pub(crate) struct McpToolBody {
    /// Name for models and rules.
    name: String,
    description: String,
    state: McpToolWord,
    /// Differences from the approved form, each on one line.
    differences: Vec<String>,
}

/// State of a tool compared with its approval.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum McpToolWord {
    Approved,
    New,
    Changed,
    Gone,
}

impl From<McpServerRow> for McpServerBody {
    fn from(row: McpServerRow) -> Self {
        let (approval, approved_at, approved_by) = match row.approval {
            McpApproval::Missing => (McpApprovalWord::Missing, None, None),
            McpApproval::Denied => (McpApprovalWord::Denied, None, None),
            McpApproval::OtherDefinition => (McpApprovalWord::Changed, None, None),
            McpApproval::Approved { at, by } => (McpApprovalWord::Approved, at.map(format_iso), by),
        };
        let (state, protocol, problem) = match row.activity {
            McpActivity::Disabled => (McpStateWord::Disabled, None, None),
            McpActivity::Idle => (McpStateWord::Idle, None, None),
            McpActivity::Starting => (McpStateWord::Starting, None, None),
            McpActivity::Running { protocol, .. } => (McpStateWord::Running, Some(protocol), None),
            McpActivity::Failed { reason, .. } => (McpStateWord::Failed, None, Some(reason)),
        };
        Self {
            name: row.name,
            transport: row.transport,
            address: row.address,
            approval,
            approved_at,
            approved_by,
            state,
            protocol,
            problem,
            tools: row.tools.into_iter().map(McpToolBody::from).collect(),
        }
    }
}

impl From<McpToolRow> for McpToolBody {
    fn from(row: McpToolRow) -> Self {
        let (state, differences) = match row.state {
            McpToolState::Approved => (McpToolWord::Approved, Vec::new()),
            McpToolState::New => (McpToolWord::New, Vec::new()),
            McpToolState::Changed { differences } => (McpToolWord::Changed, differences),
            McpToolState::Gone => (McpToolWord::Gone, Vec::new()),
        };
        Self { name: row.name, description: row.description, state, differences }
    }
}
