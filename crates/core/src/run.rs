//! A run: an agent at work from a prompt to rest, through turns, calls, gates and retries.

mod command;
mod event;
mod interrupt;
mod marks;
mod state;

pub use command::{Answer, Command, Failure, Wanted};
pub use event::{End, Event, Trigger};
pub use interrupt::Interrupt;
pub use marks::Marks;
pub use state::{Abort, Phase, Run};
