//! Requests for the approval of MCP servers in words for approvers: their tools and arguments are names of the gateway.
//!
//! It must not know what is approved.

use serde_json::{Map, Value};

use crate::mcp_server_status::{SERVER_TOOL, TOOLS_TOOL};

/// Returns the question of a request. `None` for another call. Not escaped.
pub(crate) fn title(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    let server = arguments.get("server")?.as_str()?;
    match tool {
        SERVER_TOOL => Some(format!("Use the MCP server {server}?")),
        TOOLS_TOOL => Some(format!("Use the changed tools of the MCP server {server}?")),
        _ => None,
    }
}

/// Returns the consequence of an approval, which the arguments do not show. `None` for another call.
pub(crate) fn consequence(tool: &str) -> Option<&'static str> {
    match tool {
        SERVER_TOOL => Some("the server starts, and agents get all tools that it lists"),
        TOOLS_TOOL => Some("agents get the tools of the server as they are now"),
        _ => None,
    }
}
