//! The gjc door: omp's, in a dialect of its own, with what only this dialect has. Source: docs/protocol/gjc.md.
//!
//! The door itself is [`countersign_adapter_omp`]'s: it reads lines, keeps the lanes and follows the session. What differs joins it through
//! hooks (`extension`): how frames are written (`Voice`), the commands that omp has not (`commands`). It decides nothing about calls, gates or runs.

mod bridge;
mod choosing;
mod commands;
mod extension;
mod permission;
mod presence;
mod registry;
mod socket;
mod stages;
mod state;
mod unattended;
mod voice;
mod window;
mod workflow;

pub use bridge::{Bridge, BridgeStartError, Opener, Plain, Setup, SetupError, Which};
pub use extension::extension;
pub use presence::Presence;
pub use registry::{Listing, Registry};
pub use socket::{Socket, SocketError};
use voice::{Reasons, Voice, arrange};
use workflow::{NOBODY, Workflow};

/// What a door has beside omp's when it speaks this dialect.
#[derive(Default)]
struct Gjc {
    /// What writes its frames.
    voice: Voice,
    /// How its host is shown gates.
    workflow: Workflow,
    /// What reads them.
    surface: Surface,
    /// What it knows of unattended runs.
    unattended: unattended::Unattended,
}

/// Folders below a working folder in which people's tools read what was decided.
pub const RECORD_FOLDERS: [&str; 2] = [unattended::audit::RECORDS, workflow::RECORDS];

/// What is at the other end of a door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Surface {
    /// A host, on standard input and output.
    #[default]
    Host,
    /// A socket: one host after another.
    Socket,
    /// The bridge. It shows calls that somebody must allow as such.
    Bridge,
}
