//! Reasons that a server did not do what was requested of it.

use std::time::Duration;

/// Reason that a request to an MCP server gave no result. The texts name the server and hold no secret of its definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    /// No server has this name.
    #[error("MCP server not configured: {0}")]
    UnknownServer(String),
    /// The server failed recently, and is not started again before some time has passed.
    #[error("MCP server {server} is not running: {reason}; the next start is possible in {} s", wait.as_secs() + 1)]
    Resting {
        /// Name of the server.
        server: String,
        /// Reason of the last failure.
        reason: String,
        /// Time until a start is possible.
        wait: Duration,
    },
    /// The server could not be started or reached, or did not agree on a version.
    #[error("cannot start MCP server {server}: {reason}")]
    Start {
        /// Name of the server.
        server: String,
        /// Reason.
        reason: String,
    },
    /// The approval on which the use of the server depends was withdrawn or renewed since.
    #[error("MCP server {server} was not used: its approval was withdrawn or renewed meanwhile")]
    Withdrawn {
        /// Name of the server.
        server: String,
    },
    /// The server was stopped before anything was sent.
    #[error("MCP server {server} was not used: it was stopped meanwhile")]
    Stopped {
        /// Name of the server.
        server: String,
    },
    /// Nothing of the request was sent.
    #[error("MCP server {server} was not sent {request}: {reason}")]
    NotSent {
        /// Name of the server.
        server: String,
        /// Method of the request.
        request: &'static str,
        /// Reason.
        reason: String,
    },
    /// The connection ended before the answer.
    #[error("MCP server {server} did not answer {request}: {reason}")]
    Lost {
        /// Name of the server.
        server: String,
        /// Method of the request.
        request: &'static str,
        /// Reason.
        reason: String,
    },
    /// The server answered with an error.
    #[error("MCP server {server} refused {request}: {reason}")]
    Refused {
        /// Name of the server.
        server: String,
        /// Method of the request.
        request: &'static str,
        /// Text of the server, escaped and cut.
        reason: String,
    },
    /// The server answered, and its answer has not the form that the protocol requires.
    #[error("MCP server {server} sent an invalid answer to {request}: {reason}")]
    Invalid {
        /// Name of the server.
        server: String,
        /// Method of the request.
        request: &'static str,
        /// The flaw.
        reason: String,
    },
    /// The server offers a tool in another form than the approved one.
    #[error("MCP server {server} changed {tool} since it was approved; an approver must approve it again")]
    ToolChanged {
        /// Name of the server.
        server: String,
        /// Name of the tool.
        tool: String,
    },
    /// The server does not offer an approved tool.
    #[error("MCP server {server} does not offer {tool} any more")]
    ToolGone {
        /// Name of the server.
        server: String,
        /// Name of the tool.
        tool: String,
    },
    /// The server lists more than is taken.
    #[error("MCP server {server} lists too much: more than {limit} {unit}")]
    TooMuch {
        /// Name of the server.
        server: String,
        /// The limit.
        limit: usize,
        /// Unit of the limit: `pages`, `entries` or `bytes`.
        unit: &'static str,
    },
}

impl McpError {
    /// Returns true if nothing was requested of the server.
    pub(crate) const fn is_before_request(&self) -> bool {
        match self {
            Self::UnknownServer(_)
            | Self::Resting { .. }
            | Self::Start { .. }
            | Self::Withdrawn { .. }
            | Self::Stopped { .. }
            | Self::NotSent { .. } => true,
            Self::Lost { .. }
            | Self::Refused { .. }
            | Self::Invalid { .. }
            | Self::ToolChanged { .. }
            | Self::ToolGone { .. }
            | Self::TooMuch { .. } => false,
        }
    }
}
