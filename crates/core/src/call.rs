//! A call: one use of a tool, from being wanted to an outcome that is known or said to be unknown.

mod command;
mod event;
pub mod pins;
mod state;

pub use command::{AgentRequest, CallProgress, CallResult, Command, PeerAction};
pub use event::{CallDetails, CallEnd, DoubtCause, Event, Executor, RequestContent};
pub use pins::Pins;
pub use state::{Call, CallPhase};
