//! Status of MCP servers for people, and the actions that operators have on them.
//!
//! It must not know how a server is reached, and approves nothing: approvers answer gates.

use std::{sync::Arc, time::Duration};

use countersign_core::{id::PrincipalId, time::Millis};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

/// Prefix of the session in which the approval of servers is requested. Its generation follows after `#`.
pub const APPROVAL_SESSION: &str = "gateway:mcp";
/// Tool of a request to start a server and offer its tools.
pub const SERVER_TOOL: &str = "mcp_server";
/// Tool of a request to offer the tools of a server as they are now.
pub const TOOLS_TOOL: &str = "mcp_tools";
/// Tools that always need the answer of a person, with the reason. No rule that allows every tool, and no standing approval, was
/// meant for them.
pub const ALWAYS_ASKED: [(&str, &str); 2] = [
    (SERVER_TOOL, "starts a program or opens a connection for the agent"),
    (TOOLS_TOOL, "changes the tools of the agent"),
];

/// The MCP servers of a gateway.
pub trait McpServerStatus: Send + Sync {
    /// Returns every configured server, sorted by name. Starts none.
    ///
    /// # Errors
    /// The reason that the approvals cannot be read, for people. No tool of a server is offered then.
    fn list_servers(self: Arc<Self>) -> BoxFuture<'static, Result<Vec<McpServerRow>, String>>;

    /// Withdraws the approval of a server: its tools are offered no longer, and it ends.
    ///
    /// # Errors
    /// The reason, for people. If it begins with `revoked`, the approval is withdrawn, and the next start of the gateway does the rest.
    fn revoke_server(self: Arc<Self>, server: String, by: PrincipalId) -> BoxFuture<'static, Result<(), String>>;

    /// Requests the approval of a server that is not approved, also if a person denied it before. A gate that is pending stays the
    /// only one.
    ///
    /// # Errors
    /// The reason, for people.
    fn request_approval(self: Arc<Self>, server: String) -> BoxFuture<'static, Result<(), String>>;

    /// Starts an approved server if it does not run, or in [`McpTrial::Restart`] in any case, and lists its tools.
    ///
    /// # Errors
    /// The reason, for people.
    fn try_server(self: Arc<Self>, server: String, trial: McpTrial) -> BoxFuture<'static, Result<(), String>>;
}

/// Kind of a trial of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpTrial {
    /// A connection that is open is used.
    Test,
    /// It is ended first.
    Restart,
}

/// One configured server. In texts of servers hidden characters are written out. Surfaces escape them for their own form.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServerRow {
    /// Its name.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Command or address on one line, without values of variables and headers.
    pub address: String,
    /// Time limit of a call.
    pub call_timeout: Duration,
    /// Approval of the server.
    pub approval: McpApproval,
    /// Its activity; none if the configuration switches it off.
    pub activity: McpActivity,
    /// Its tools: those of its connection, or else the approved ones.
    pub tools: Vec<McpToolRow>,
    /// Tools that it lists and that are left out: name and reason.
    pub left_out: Vec<(String, String)>,
    /// Arguments of a request for its approval.
    pub request: Map<String, Value>,
}

/// Approval of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpApproval {
    /// None.
    Missing,
    /// None, and the last request for it was denied.
    Denied,
    /// Of another definition: none of its tools counts as approved.
    OtherDefinition,
    /// Approved as it is configured.
    Approved {
        /// Time; absent if the approval was recorded without one.
        at: Option<Millis>,
        /// The person; absent if a gate was answered.
        by: Option<PrincipalId>,
    },
}

/// Activity of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpActivity {
    /// The configuration switches it off.
    Disabled,
    /// Nothing runs.
    Idle,
    /// It starts, or lists its tools.
    Starting,
    /// It is connected.
    Running {
        /// Version of the protocol.
        protocol: String,
        /// Name and version that the server gives itself.
        program: Option<String>,
        /// Time since the connection was opened.
        since: Duration,
    },
    /// It failed.
    Failed {
        /// Reason.
        reason: String,
        /// Time until the next start is possible. Zero: when it is needed.
        retry_in: Duration,
    },
}

/// One tool of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpToolRow {
    /// Name for models and rules: `mcp__SERVER__TOOL`.
    pub name: String,
    /// Description for models.
    pub description: String,
    /// Hints of the server, which grant nothing.
    pub hints: Map<String, Value>,
    /// State compared with the approval.
    pub state: McpToolState,
}

/// State of a tool compared with its approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpToolState {
    /// As approved.
    Approved,
    /// Never approved.
    New,
    /// Not as approved.
    Changed {
        /// Differences for a person, each on one line.
        differences: Vec<String>,
    },
    /// Approved, and not offered any more.
    Gone,
}
