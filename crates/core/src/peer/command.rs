//! Reports of adapters about their connections.

use std::sync::Arc;

use super::{PeerLine, PeerMemory};
use crate::id::PeerId;

/// A command about a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The peer can be sent work over this line from now on, and over no earlier line.
    Came {
        /// The peer.
        peer: PeerId,
        /// The line.
        line: PeerLine,
        /// Its ability to report on calls of earlier lines.
        memory: PeerMemory,
    },
    /// Properties and tools of the peer changed.
    Registered {
        /// The peer.
        peer: PeerId,
        /// Its description of itself, in the form of its adapter.
        description: Arc<str>,
    },
    /// The line is gone. Work of the peer over another one is not affected.
    Gone {
        /// The peer.
        peer: PeerId,
        /// The line.
        line: PeerLine,
    },
}
