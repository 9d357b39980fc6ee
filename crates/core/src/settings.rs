//! Settings that people change while the gateway runs: values by path.
//!
//! It must not know the meaning of a setting, its other possible values, or any secret: of a secret it holds a digest, and its
//! sender keeps the value outside of the log.

mod command;
mod event;
mod path;
mod state;

pub use command::{Command, SecretDigests};
pub use event::Event;
pub use path::SettingsPath;
pub use state::State;
