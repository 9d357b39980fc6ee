//! Shared parts of tests of several crates: running gateways with clients and fake services, a simulation of the engine with its crashes,
//! transcripts of the omp adapter, and a fuzz loop.
//!
//! It must not be part of the binary.

#[cfg(feature = "whole")]
pub mod fuzz;
#[cfg(feature = "process")]
pub mod process;
pub mod sim;
#[cfg(feature = "whole")]
pub mod transcript;
