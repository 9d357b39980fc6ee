//! Events of a peer.

use serde::{Deserialize, Serialize};

use super::{PeerLine, PeerMemory};
use crate::id::PeerId;

/// A fact about one peer. Every line is gone when a process begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The peer can be sent work over this line.
    Came {
        /// The peer.
        peer: PeerId,
        /// The line.
        line: PeerLine,
        /// Its ability to report on calls of earlier lines.
        #[serde(default, skip_serializing_if = "PeerMemory::is_none")]
        memory: PeerMemory,
    },
    /// Properties and tools of the peer from now on, which are the content. They have no consequences here.
    Registered {
        /// The peer.
        peer: PeerId,
    },
    /// The peer has no line.
    Gone {
        /// The peer.
        peer: PeerId,
    },
}

impl Event {
    /// Returns the peer that it is about.
    pub const fn peer(&self) -> &PeerId {
        match self {
            Self::Came { peer, .. } | Self::Registered { peer } | Self::Gone { peer } => peer,
        }
    }
}
