//! Peers: who does work at the other end of a connection, and whether that connection is there.
//!
//! A call that a peer does is started for one connection, its line, and belongs to it for good: another line of the same
//! peer is never given it. While a peer has no line its calls wait. It must not know what travels on a line.

mod command;
mod event;

use serde::{Deserialize, Serialize};

pub use command::Command;
pub use event::Event;

/// One connection of a peer. No two of one process have the same number; those of an earlier process are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Line(pub u64);
