//! Facts that the file system gives about the location of a log.

use std::{io, path::Path};

use nix::sys::statvfs::statvfs;

/// Returns the bytes that the current user can still write on the disk of `path`.
///
/// # Errors
/// The system's error, such as that the path does not exist.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    #[allow(clippy::useless_conversion, reason = "they are narrower on some systems")]
    Ok(u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size())))
}
