//! The wire of the gsv door: JSON frames over WebSocket, between the gateway and clients, nodes and channels.
//!
//! It must not know what answers a request: it only reads and writes frames, and interprets the texts of this protocol. Source:
//! docs/protocol/gsv.md.

pub mod channel;
pub mod chat;
pub mod command;
pub mod connect;
pub mod cron;
pub mod directive;
mod echo;
mod fault;
mod fields;
pub mod frame;
pub mod greeting;
pub mod heartbeat;
pub mod key;
pub mod message;
pub mod method;
pub mod node;
pub mod pairing;
mod request;
pub mod runtime;
pub mod session;
pub mod settings;
pub mod skill;
pub mod tool;
pub mod workspace;

pub use echo::RawKeys;
pub use fault::{GsvError, code};
pub use frame::{GsvInboundFrame, GsvRequestId, read_frame, receive_frame};
pub use method::Method;
pub use request::GsvRequest;

/// The protocol's version.
pub const PROTOCOL: u64 = 1;

/// The largest frame that is read, in bytes: 25 MB of an attachment as base64, and what is around it.
pub const LARGEST_FRAME: usize = 40 << 20;

/// The largest attachment, in bytes after decoding.
pub const LARGEST_MEDIA: usize = 25 << 20;

/// Close codes of a connection.
pub mod close {
    /// Close code of a finished connection, or one replaced by a newer connection of the same peer.
    pub const NORMAL: u16 = 1000;
    /// A frame was too large.
    pub const TOO_LARGE: u16 = 1009;
    /// Close code of a peer that did not authenticate in time.
    pub const LATE: u16 = 1008;
    /// The gateway ends; peers come back.
    pub const RESTART: u16 = 1012;
    /// Close code of a peer that does not read the frames sent to it; it may reconnect.
    pub const TRY_AGAIN: u16 = 1013;
    /// Close code of a peer with a missing or wrong token.
    pub const UNAUTHORIZED: u16 = 4001;

    /// Close reason that goes with [`UNAUTHORIZED`].
    pub const UNAUTHORIZED_REASON: &str = "Unauthorized";
}

/// Pause after the `hello-ok` of a node during which it is sent nothing, in milliseconds: it begins to listen for events only
/// then.
pub const NODE_PAUSE_MS: u64 = 50;
