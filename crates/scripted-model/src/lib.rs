//! A model on loopback that follows a script, in the four wires of three providers. Programs need no key and no network with it.
//!
//! It must not know what a call does. Of the programs it knows only Claude Code: if that has not loaded the tool of a script, the model
//! calls `ToolSearch` first.

mod http;
mod script;
mod stub_server;
mod wire;

pub use script::{MessageScript, ModelScript, ScriptId};
pub use stub_server::{ModelError, SERVICE_PATH, StubServer};
