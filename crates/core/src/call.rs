//! A call: one use of a tool, from the request to an outcome that is known or recorded as unknown.

mod command;
mod event;
pub mod pins;
mod state;

pub use command::{AgentRequest, CallProgress, CallResult, Command, PeerAction, RequestExecutor};
pub use event::{CallDetails, CallEnd, DoubtCause, Event, Executor, RequestContent};
pub use pins::Pins;
pub use state::{Call, CallPhase};
