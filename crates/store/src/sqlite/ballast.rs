//! A file that takes up space while there is enough, and gives it up when there is none.
//!
//! It must not know the log. A caller that waits for its space does so by probing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::sys::statvfs::statvfs;
use tracing::{info, warn};

/// Bytes that are kept in reserve.
pub const BALLAST_SIZE: u64 = 16 * 1024 * 1024;

/// Bytes that have to be free before space is taken into reserve again. Less, and the disk would be full at once.
const AMPLE: u64 = 4 * BALLAST_SIZE;

/// The reserve of one log.
pub(super) struct Ballast {
    path: Option<PathBuf>,
    /// True if there is nothing to be done: it is there, or could not be made.
    settled: bool,
}

impl Ballast {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { settled: path.is_none(), path }
    }

    /// Makes the file, if it is not there and there is ample space. Tried once, then not again before
    /// [`Ballast::reconsider`].
    pub(super) fn make_file(&mut self) {
        if self.settled {
            return;
        }
        self.settled = true;
        let Some(path) = &self.path else { return };
        if let Err(error) = fill_file(path) {
            warn!(path = %path.display(), %error, "cannot reserve disk space");
            drop(fs::remove_file(path));
        }
    }

    /// Lets the next [`Ballast::make_file`] try again.
    pub(super) fn reconsider(&mut self) {
        self.settled = self.path.is_none();
    }

    /// Gives the space up. True if there was any.
    pub(super) fn release_space(&mut self) -> bool {
        self.settled = true;
        let Some(path) = &self.path else { return false };
        match fs::remove_file(path) {
            Ok(()) => {
                info!(path = %path.display(), "reserved disk space released");
                true
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                warn!(path = %path.display(), %error, "cannot release the reserved disk space");
                false
            }
        }
    }
}

fn fill_file(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| there.len() == BALLAST_SIZE) {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let space = statvfs(folder)?;
    #[allow(clippy::useless_conversion, reason = "the widths of these counters differ between systems")]
    let free = u64::from(space.blocks_available()).saturating_mul(u64::from(space.fragment_size()));
    if free < AMPLE {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "not enough free disk space"));
    }
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    occupy(&file)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn occupy(file: &File) -> io::Result<()> {
    match nix::fcntl::posix_fallocate(file, 0, BALLAST_SIZE.cast_signed()) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::EINVAL) => write_zeros(file),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn occupy(file: &File) -> io::Result<()> {
    write_zeros(file)
}

fn write_zeros(mut file: &File) -> io::Result<()> {
    let zeros = vec![0; 64 * 1024];
    for _ in 0..BALLAST_SIZE / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    Ok(())
}
