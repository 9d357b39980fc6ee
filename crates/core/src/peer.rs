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
pub struct PeerLine(pub u64);

/// Whether a peer can say over another line what became of a call that it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerMemory {
    /// What it has on a line is gone with the line.
    #[default]
    Forgets,
    /// It notes what becomes of each call, and does none twice, but does not say where: only of peers older than that.
    Keeps,
    /// The same, in the journal that has this number. Who notes in another one knows nothing of the calls in this.
    Journal(u64),
}

impl PeerMemory {
    /// Whether it forgets, which facts need not say.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::Forgets)
    }

    /// Whether whoever notes so can say what became of a call that was noted as `noted`. Where it was not said in which journal, the
    /// name of the peer has to do.
    pub(crate) fn knows_of(self, noted: Self) -> bool {
        match noted {
            Self::Forgets => false,
            Self::Keeps => self.keeps_record(),
            Self::Journal(_) => self == noted,
        }
    }

    /// Whether somebody notes what becomes of calls.
    pub(crate) const fn keeps_record(self) -> bool {
        !matches!(self, Self::Forgets)
    }
}

/// A peer that can be given work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PresentPeer {
    /// Over this line.
    pub(crate) line: PeerLine,
    /// Whether it can be asked about calls of others.
    pub(crate) memory: PeerMemory,
}
