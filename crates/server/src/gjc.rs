//! The gjc door: omp's, in a dialect of its own, with what only this dialect has. Source: docs/protocol/gjc.md.
//!
//! The door itself is [`crate::omp`]'s: it reads lines, keeps the lanes and follows the session. What differs is how frames are
//! written (`Voice`) and the commands that omp has not (`commands`). It decides nothing about calls, gates or runs.

mod bridge;
mod choosing;
pub(crate) mod commands;
pub(crate) mod permission;
mod presence;
pub(crate) mod registry;
mod socket;
pub(crate) mod stages;
mod state;
pub(crate) mod unattended;
mod voice;
mod window;
pub(crate) mod workflow;

use std::path::{Path, PathBuf};

pub use bridge::{Bridge, BridgeStartError, Opener, Plain, Setup, SetupError, Which};
pub use presence::Presence;
pub use registry::{Listing, Registry};
pub use socket::{Socket, SocketError};
pub(crate) use voice::{Reasons, Voice, arrange};
pub(crate) use workflow::{Manner, NOBODY, Workflow, follow};

/// What a door has beside omp's when it speaks this dialect.
#[derive(Default)]
pub(crate) struct Gjc {
    /// What writes its frames.
    pub(crate) voice: Voice,
    /// How its host is shown gates.
    pub(crate) workflow: Workflow,
    /// What reads them.
    pub(crate) surface: Surface,
    /// What it knows of unattended runs.
    pub(crate) unattended: unattended::Unattended,
}

/// The folders below a working folder in which people's tools read what was decided.
pub(crate) fn records(cwd: &Path) -> [PathBuf; 2] {
    [unattended::audit::RECORDS, workflow::RECORDS].map(|folder| cwd.join(folder))
}

/// What is at the other end of a door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Surface {
    /// A host, on standard input and output.
    #[default]
    Host,
    /// A socket: one host after another.
    Socket,
    /// The bridge. It shows calls that somebody must allow as such.
    Bridge,
}
