//! Settings that people change while the gateway runs: what is set at which path.
//!
//! It must not know what a setting means, what else it could be, or any secret: of a secret it holds a digest, and whoever
//! brought it keeps the rest beside the log.

mod command;
mod event;
mod path;
mod state;

pub use command::{Command, SecretDigests};
pub use event::Event;
pub use path::SettingsPath;
pub use state::State;
