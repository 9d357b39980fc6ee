//! Speaks the protocol of `omp --mode rpc`: JSON lines over stdio.
//!
//! It must not know what answers a command: it only reads and writes frames. Source: the RPC reference of omp; every decision
//! beyond it is in docs/protocol/omp.md.

pub mod command;
pub mod event;
pub mod host_tool;
pub mod host_uri;
pub mod message;
pub mod response;
pub mod session_file;
pub mod state;
pub mod todo;
pub mod ui;

pub use command::{AdoptedCommand, OmpCommand, OmpInboundFrame, OmpParseError, OmpRequestId, parse_line, receive_line};
pub use event::{AssistantMessageEvent, BlockChange, OmpEvent};
pub use message::AgentMessage;
pub use response::OmpResponse;
pub use ui::{UiAnswer, UiMethod, UiRequest};
