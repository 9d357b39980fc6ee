//! What doors tell of their connections.

use super::Line;
use crate::id::PeerId;

/// A command about a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// It can be given work over this line from now on, and over no line before it.
    Came {
        /// Who.
        peer: PeerId,
        /// The line.
        line: Line,
    },
    /// The line is gone. What the peer has over another one stays.
    Gone {
        /// Who.
        peer: PeerId,
        /// The line.
        line: Line,
    },
}
