//! What people are shown, the same for every door: escaped once, cut nowhere in silence.
//!
//! It must not know any wire: a door takes what is here and puts it into its own frames.

pub mod connected;
pub mod decisions;
pub mod escape;
pub mod export;
pub mod gate_card;
pub mod gate_request;
pub mod gate_row;
pub mod gate_summary;
pub mod label;
pub mod pasted;
pub mod principals;
pub mod protocol;
pub mod record;
pub mod time;

pub use escape::{Lines, escape};
pub use gate_card::GateCard;
pub use gate_request::GateRequest;
pub use gate_row::GateRow;
pub use gate_summary::GateSummary;
pub use label::label;
pub use pasted::pasted;
pub use protocol::Protocol;
