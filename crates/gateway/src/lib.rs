//! Gateway as `serve` runs it: a process that serves realms, each of which is one record and every configured adapter.

pub mod adapter;
pub mod checkup;
mod cluster;
pub mod control;
mod error_hints;
pub mod mcp_approvals;
mod mcp_changes;
mod mcp_questions;
pub mod mcp_status;
mod mcp_tool_changes;
pub mod mcp_tools;
mod metrics;
mod notice;
mod platform;
mod port;
mod realm;
mod retention;
mod run_environment;
mod serve;
mod serve_error;
mod serve_node;
mod serve_realms;
mod traces;
mod websockets;

pub use cluster::{HeldLease, REALM};
pub use notice::{NoticeFn, NoticeLevel};
pub use platform::{OpenRecord, Platform};
pub use port::PortAddress;
pub use realm::{GatewayRealm, PreparedRealm, RealmNode, RealmOptions};
pub use serve::serve;
pub use serve_error::ServeError;
pub use serve_node::{NodeOptions, serve_node};
pub use serve_realms::serve_realms;
pub use traces::TraceDestination;
