//! What tests of several crates share: a simulation of the engine with its crashes, and transcripts of the omp door.
//!
//! It must not be part of the binary.

pub mod sim;
#[cfg(feature = "whole")]
pub mod transcript;
