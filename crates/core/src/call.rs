//! A call: one use of a tool, from being wanted to an outcome that is known or said to be unknown.

mod command;
mod event;
pub mod pins;
mod state;

pub use command::{Act, Command, Progress, Request, Returned};
pub use event::{Content, End, Event, Executor, Known, Requested};
pub use pins::Pins;
pub use state::{Call, Phase};
