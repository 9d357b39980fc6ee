//! Texts for people, the same for every door: escaped once, never cut without notice.
//!
//! It must not know any wire: a door takes the texts and puts them into its own frames.

pub mod connection_status;
pub mod decisions;
pub mod escape;
pub mod export;
pub mod gate_card;
pub mod gate_request;
pub mod gate_row;
pub mod gate_summary;
pub mod label;
pub mod mcp_server_status;
pub mod principals;
pub mod protocol;
pub mod record;
mod server_request;
pub mod shell_quote;
pub mod terminal_style;
pub mod time;

pub use escape::{LineMode, escape, escape_json, escape_rest};
pub use gate_card::GateCard;
pub use gate_request::GateRequest;
pub use gate_row::GateRow;
pub use gate_summary::GateSummary;
pub use label::label;
pub use protocol::Protocol;
pub use shell_quote::shell_quote;
