//! Files on disk: replaced as a whole, paths with links followed, and the store of objects beside the log.
//!
//! It must not know what is in a file.

pub mod objects;
pub mod paths;
pub mod replace;
