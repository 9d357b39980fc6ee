//! Speaks the wires of the front doors: plain serde types and framing that does no I/O.
//!
//! It must not know gates, runs, policy or the log: what a frame means is decided elsewhere.
#![warn(missing_docs)]

pub mod agent_gate;
pub mod gjc;
pub mod gsv;
mod json;
pub mod lines;
pub mod omp;

pub use json::{ExtraMembers, JsNumber, RawJson, WireValue, encode_line, replace_lone_surrogates};
