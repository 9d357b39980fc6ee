//! The omp door: JSON lines over stdio, for hosts that embed a coding agent. Source: docs/protocol/omp.md.
//!
//! It turns lines into commands and what happens into lines; it decides nothing about calls, gates or runs.

mod adopting;
mod closing;
mod commands;
mod dialogs;
mod door;
mod entries;
pub mod flags;
mod gathering;
mod grants;
mod keeper;
mod models;
mod notices;
mod outbox;
mod rules;
mod seat;
mod showing;
mod start;
mod teller;
mod telling;
mod unwritten;
mod workshop;

/// What records and rules call this door.
pub(crate) const DOOR: &str = "omp";

pub use door::{Input, Output};
pub use start::{Program, StartError, Surroundings, start, start_in};
