//! The gjc door: the dialect of omp's wire with host tools, host URIs, workflow gates and unattended runs. Source:
//! docs/protocol/gjc.md.
//!
//! It turns frames into commands and what happens into frames; it decides nothing about calls, gates or runs.

mod registry;

pub use registry::{Listing, Registry};
