//! Connections of the gateway to MCP servers of others: their tools, resources and prompts, and the record of approved tools.
//!
//! It must not decide who may call a tool: policy decides before a call comes here, and annotations of a server grant nothing.

mod access_token;
mod approval_requests;
mod approvals;
mod argument_check;
mod backoff;
mod checked_client;
mod checked_post;
mod client_handler;
mod connect;
mod connection;
mod connection_monitor;
mod content;
mod definition;
mod elicitation;
mod error;
mod http_client;
mod http_transport;
mod line_reader;
mod listing;
mod mcp_tool;
mod message_redaction;
mod offered_tool;
mod open_call;
mod options;
mod pages;
mod pipe_transport;
mod question_requests;
mod questions;
mod reading_tools;
mod refused_servers;
mod resource_uri;
mod resources;
mod schema_check;
#[cfg(test)]
mod scripted_server;
mod secret_texts;
mod send_error;
mod server;
mod server_activity;
mod server_permission;
mod server_tools;
mod servers;
mod standing_approvals;
mod text;
mod tool_call;
mod tool_caller;

pub use approval_requests::{
    ApprovalKey, ApprovalRequester, SERVER_TOOL, TOOLS_TOOL, ToolRenewal, approval_report, carry_out, is_unchanged,
    request_approvals, request_changes, request_server, server_arguments,
};
pub use approvals::{
    ApprovalChange, ApprovalError, ApprovalMark, ApprovalNote, ApprovalOrigin, ApprovalTimes, ApprovedServers,
    ApprovedTool, ServerApproval, ToolApproval,
};
pub use connection_monitor::{ProgressSink, ToolProgress};
pub use definition::{BadDefinition, ClientCredentials, ServerDefinition, ServerTransport, ValueBinding};
pub use error::McpError;
pub use listing::{ServerListing, ServerTool, ToolProblem, offered_name};
pub use mcp_tool::McpTool;
pub use offered_tool::OfferedTool;
pub use options::{McpLimits, McpOptions, STARTED_BY};
pub use question_requests::{QuestionPlace, QuestionPlaces, QuestionRequests, withdraw_left_questions};
pub use questions::{QuestionAnswer, QuestionAsker, ServerQuestion};
pub use reading_tools::reading_tools;
pub use resources::{ListedEntries, PromptArgument, PromptText, ServerPrompt, ServerResource};
pub use server_activity::ServerActivity;
pub use server_tools::{ApproveError, ApprovedNow, ComparedServer, ServerTools};
pub use servers::McpServers;
pub use standing_approvals::{grant_text, is_call_of, may_cover_server, may_cover_tool};
pub use tool_call::CallOutcome;
pub use tool_caller::ToolCaller;
