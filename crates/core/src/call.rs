//! A call: one use of a tool, from being wanted to an outcome that is known or said to be unknown.

mod command;
mod event;
mod state;

pub use command::{Command, Progress, Returned};
pub use event::{Content, End, Event, Executor, Known};
pub use state::{Call, Phase};
