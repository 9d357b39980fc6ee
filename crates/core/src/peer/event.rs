//! What happened to a peer.

use serde::{Deserialize, Serialize};

use super::{PeerLine, PeerMemory};
use crate::id::PeerId;

/// A fact about one peer. Every line is gone when a process begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It can be given work over this line.
    Came {
        /// Who.
        peer: PeerId,
        /// The line.
        line: PeerLine,
        /// Whether it can be asked about calls of earlier lines.
        #[serde(default, skip_serializing_if = "PeerMemory::is_none")]
        memory: PeerMemory,
    },
    /// It is like this and offers this from now on, which is the content. Nothing follows from it here.
    Registered {
        /// Who.
        peer: PeerId,
    },
    /// It has no line.
    Gone {
        /// Who.
        peer: PeerId,
    },
}

impl Event {
    /// The peer that it is about.
    pub const fn peer(&self) -> &PeerId {
        match self {
            Self::Came { peer, .. } | Self::Registered { peer } | Self::Gone { peer } => peer,
        }
    }
}
