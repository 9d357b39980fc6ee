//! What tests of several crates share: a simulation of the engine with its crashes.
//!
//! It must not be part of the binary.

pub mod sim;
