//! A gate: the one durable form of every wait for a decision.

mod command;
mod event;
mod state;
mod step;

pub use command::{Answer, AnswerRefusal, Command, Grant};
pub use event::{Choice, Content, Event, Fallback, Kind, Resolution, Scope};
pub use state::{Gate, Phase, Showing};
pub use step::{OnExpiry, People, Step, Vote};
