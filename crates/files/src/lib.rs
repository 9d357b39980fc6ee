//! Files on disk: replaced as a whole, paths with links followed, and the store of objects next to the log.
//!
//! It must not know the contents of a file.

pub mod objects;
pub mod paths;
pub mod replace;
