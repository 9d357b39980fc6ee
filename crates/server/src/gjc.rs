//! The gjc door: omp's, in a dialect of its own, with what only this dialect has. Source: docs/protocol/gjc.md.
//!
//! The door itself is [`crate::omp`]'s: it reads lines, keeps the lanes and follows the session. What differs is how frames are
//! written ([`Voice`]) and the commands that omp has not ([`commands`]). It decides nothing about calls, gates or runs.

mod choosing;
pub(crate) mod commands;
mod handoff;
mod host;
mod registry;
mod state;
pub(crate) mod todos;
mod unattended;
mod voice;
mod workflow;

pub use registry::{Listing, Registry};
pub(crate) use voice::{Voice, arrange};

/// What a door has beside omp's when it speaks this dialect.
#[derive(Default)]
pub(crate) struct Gjc {
    /// What writes its frames.
    pub(crate) voice: Voice,
}
