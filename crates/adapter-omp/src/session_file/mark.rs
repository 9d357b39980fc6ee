//! What a file was, by which it is known again.
//!
//! It must not touch a file. Source: ARCHITECTURE.md, The file and the log.

use countersign_core::digest::Digest;
use serde::{Deserialize, Serialize};

/// What a file was after a write: how long, and the digest of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Bytes.
    pub length: u64,
    /// SHA-256 of them.
    pub digest: Digest,
}

impl FileMark {
    /// The mark of a file that holds `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { length: bytes.len() as u64, digest: Digest::hash_bytes(bytes) }
    }
}
