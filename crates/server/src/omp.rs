//! The omp door: JSON lines over stdio, for hosts that embed a coding agent. Source: docs/protocol/omp.md.
//!
//! It turns lines into commands and what happens into lines; it decides nothing about calls, gates or runs.

mod adopting;
mod asking;
mod attached;
mod closing;
pub(crate) mod commands;
mod contract_transfer;
mod counting;
mod dialect;
mod dialogs;
mod door;
mod entries;
mod feed;
pub mod flags;
mod gathering;
pub(crate) mod grants;
pub(crate) mod handoff;
mod held;
pub(crate) mod image;
mod keeper;
mod liveness;
mod models;
mod moving;
mod notices;
mod opening;
mod outbox;
mod rights;
pub(crate) mod rules;
mod scoping;
mod seat;
mod session_settings;
mod shelf;
mod showing;
mod start;
mod tasks;
mod teller;
mod telling;
pub(crate) mod todos;
mod unwritten;
mod waiting;
mod working;
mod workshop;

pub(crate) use attached::open_attached;
pub use attached::{Plan, handover, plan, told, unanswered};
pub(crate) use dialect::{Dialect, Frame};
pub use door::Output;
pub(crate) use door::{Door, Until};
pub(crate) use feed::FromClients;
pub use feed::Input;
pub(crate) use keeper::Keeper;
pub(crate) use liveness::is_alive;
pub use start::{OpenDoor, Process, Program, StartError, Surroundings, open, start_in};
pub(crate) use teller::Teller;
pub(crate) use telling::frames;
pub(crate) use workshop::Workshop;
