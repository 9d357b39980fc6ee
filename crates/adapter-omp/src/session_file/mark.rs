//! State of a file, by which it is recognised.
//!
//! It must not touch a file. Source: ARCHITECTURE.md, The file and the log.

use countersign_core::digest::Digest;
use serde::{Deserialize, Serialize};

/// State of a file after a write: its length, and the digest of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Bytes.
    pub length: u64,
    /// SHA-256 of them.
    pub digest: Digest,
}

impl FileMark {
    /// Returns the mark of a file that holds `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { length: bytes.len() as u64, digest: Digest::hash_bytes(bytes) }
    }
}
