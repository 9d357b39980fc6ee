//! The ACP adapter: an agent for editors, over the Agent Client Protocol. Source: docs/protocol/acp.md.
//!
//! It turns requests into commands and facts into updates; it decides nothing about calls, gates or runs.

mod adapter;
mod call_view;
mod client_requests;
mod config_options;
mod connection;
mod connection_context;
mod feed_command;
mod gate_answers;
mod gate_requests;
mod open_sessions;
mod output;
mod project_folder;
mod prompt_blocks;
mod session_feed;
mod session_list;
mod session_replay;
mod session_snapshot;
mod update_encoder;

pub use adapter::{AcpAdapter, AcpContext, ConnectionOptions};
