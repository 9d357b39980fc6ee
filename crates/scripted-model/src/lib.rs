//! A model on loopback that follows a script, in the wires of four providers. Programs need no key and no network with it.
//!
//! It must not know which program asks, or what a call does.

mod http;
mod script;
mod stub_server;
mod wire;

pub use script::{MessageScript, ModelScript, ScriptId};
pub use stub_server::{ModelError, SERVICE_PATH, StubServer};
