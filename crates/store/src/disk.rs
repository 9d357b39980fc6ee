//! What the file system says of the place of a log.

use std::{io, path::Path};

use nix::sys::statvfs::statvfs;

/// How many bytes whoever runs this can still write where `path` lies.
///
/// # Errors
/// What the system says, such as that nothing is there.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    #[allow(clippy::useless_conversion, reason = "they are narrower on some systems")]
    Ok(u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size())))
}
