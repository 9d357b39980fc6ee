//! A run: an agent at work from a prompt to rest, through turns, calls, gates and retries.

mod command;
mod event;
mod interrupt;
mod run_metadata;
mod state;

pub use command::{Command, ModelAnswer, ProviderFailure, ResolvedCall};
pub use event::{Event, RunOutcome, RunTrigger};
pub use interrupt::InterruptMode;
pub use run_metadata::RunMetadata;
pub use state::{AbortState, Run, RunPhase};
