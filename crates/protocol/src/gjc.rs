//! Speaks the protocol of `gjc`: the dialect of omp's wire with host tools, host URIs, workflow gates and unattended
//! runs, over stdio, a socket, and the HTTPS bridge.
//!
//! It must not know what answers a command or decides a gate: it only reads and writes frames, and reports whether an answer has
//! the form that was required. What it shares with omp is [`crate::omp`]. Source: the RPC reference of gjc; every decision beyond
//! it is in docs/protocol/gjc.md.

pub mod audit;
pub mod bridge;
pub mod command;
pub mod event;
pub mod gate_file;
pub mod gate_id;
pub mod registry;
pub mod schema;
pub mod state;
pub mod ui;
pub mod unattended;
pub mod workflow;

pub use command::{CommandOrder, GjcCommand, GjcInboundFrame, GjcParseError, parse_line, receive_line};
pub use event::{GjcEnvelope, GjcEvent, PROTOCOL_VERSION};

pub use crate::omp::{OmpRequestId, OmpResponse, host_tool, host_uri};
