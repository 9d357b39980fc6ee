//! The MCP server of a gateway: hosts of the Model Context Protocol call its tools, and ask for approvals and answers.
//!
//! It decides nothing: a call becomes a request of the engine, and its outcome becomes a result. Source: docs/protocol/mcp.md.

mod adapter;
mod admission;
mod answers;
mod call_rate;
mod further_tools;
mod gates;
mod http_admission;
mod http_route;
mod http_sessions;
mod limits;
mod own_tools;
mod reply_stream;
mod requests;
mod server;
mod session_manager;
mod stream;
mod stream_transport;
#[cfg(test)]
mod test_fixture;
mod tool_list;

pub use adapter::{McpAdapter, McpSettings};
pub use further_tools::{FurtherTool, FurtherTools};
pub use http_route::{PATH, routes};
