//! Peers: programs that do work at the other end of a connection, and the state of that connection.
//!
//! A call that a peer does is started for one connection, its line, and belongs to it permanently: it is never sent over another
//! line of the same peer. While a peer has no line its calls wait. This module must not know the content that travels on a line.

mod command;
mod event;

use serde::{Deserialize, Serialize};

pub use command::Command;
pub use event::Event;

/// One connection of a peer. No two of one process have the same number; those of an earlier process are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerLine(pub u64);

/// Ability of a peer to report over another line the outcome of a call that it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerMemory {
    /// Calls of the peer on a line are lost with the line.
    #[default]
    Forgets,
    /// The peer records the outcome of each call, and does none twice, but does not name its journal: only of older peers.
    Keeps,
    /// The same, in the journal with this number. A peer with another journal does not know the calls in this one.
    Journal(u64),
}

impl PeerMemory {
    /// Reports whether it forgets, the default that facts omit.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::Forgets)
    }

    /// Reports whether a peer with this memory can report the outcome of a call that was recorded as `noted`. If the journal was not
    /// named, the name of the peer has to do.
    pub(crate) fn knows_of(self, noted: Self) -> bool {
        match noted {
            Self::Forgets => false,
            Self::Keeps => self.keeps_record(),
            Self::Journal(_) => self == noted,
        }
    }

    /// Reports whether outcomes of calls are recorded.
    pub(crate) const fn keeps_record(self) -> bool {
        !matches!(self, Self::Forgets)
    }
}

/// A peer that can be sent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PresentPeer {
    /// Its connection.
    pub(crate) line: PeerLine,
    /// Its ability to report on calls of other lines.
    pub(crate) memory: PeerMemory,
}
