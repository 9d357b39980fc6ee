//! Limits of a client of the adapter.

/// Largest message of a client, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 4 << 20;
