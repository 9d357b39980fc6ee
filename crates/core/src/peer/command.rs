//! What doors tell of their connections.

use std::sync::Arc;

use super::{PeerLine, PeerMemory};
use crate::id::PeerId;

/// A command about a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// It can be given work over this line from now on, and over no line before it.
    Came {
        /// Who.
        peer: PeerId,
        /// The line.
        line: PeerLine,
        /// Whether it can be asked about calls of earlier lines.
        memory: PeerMemory,
    },
    /// What it is like and offers is another than it was.
    Registered {
        /// Who.
        peer: PeerId,
        /// What it says of itself, in the words of its door.
        description: Arc<str>,
    },
    /// The line is gone. What the peer has over another one stays.
    Gone {
        /// Who.
        peer: PeerId,
        /// The line.
        line: PeerLine,
    },
}
