//! The gjc adapter: omp's, in a dialect of its own, with what only this dialect has. Source: docs/protocol/gjc.md.
//!
//! The adapter itself is [`countersign_adapter_omp`]'s: it reads lines, keeps the order and follows the session. The differences join it
//! through hooks (`extension`): the encoding of frames (`EnvelopeWriter`), the commands that omp has not (`commands`). It decides nothing
//! about calls, gates or runs.

mod audit;
mod audit_writer;
mod bridge;
mod commands;
mod contract_terms;
mod dialect_state;
mod envelope_writer;
mod extension;
mod frame_window;
mod gate_form;
mod model_selection;
mod permission;
mod presence;
mod registry;
mod socket;
mod stages;
mod state;
mod unattended;
mod workflow;

pub use bridge::{AdapterOpener, BridgeServer, BridgeSetup, BridgeStartError, SessionSelector, SetupError, TlsPolicy};
pub use extension::configured_dialect;
pub use presence::SessionPresence;
pub use registry::{RegistryEntry, SessionRegistry};
pub use socket::{SocketError, SocketServer};

/// Folders below a working folder in which people's tools read what was decided.
pub const RECORD_FOLDERS: [&str; 2] = [audit::RECORDS, workflow::RECORDS];
