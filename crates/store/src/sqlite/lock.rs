//! Makes sure that a log has one owner, by a lock that ends with the process and a pid that names the owner.
//!
//! It must not know the content of the log.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process,
};

use super::file::path_beside;
use crate::error::{ErrorCause, LogOpenError};

/// The right to write one log. Given back when dropped, or when the process dies.
///
/// The file stays: removing it would let a third process lock a file that a second one is about to lose.
#[derive(Debug)]
pub(super) struct FileLock(File);

impl FileLock {
    /// Takes the lock file of the log at `path`.
    ///
    /// # Errors
    /// [`LogOpenError::Owned`] if another handle has it, in this process or another.
    pub(super) fn lock_path(path: &Path) -> Result<Self, LogOpenError> {
        let lock = path_beside(path, ".lock");
        let refused =
            |error: io::Error| LogOpenError::Io { path: path.to_owned(), cause: ErrorCause::at_path(&lock, error) };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .map_err(refused)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LogOpenError::Owned { path: path.to_owned(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", process::id())).map_err(refused)?;
        Ok(Self(file))
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A pid that is left in the file does no harm: only the lock counts.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}
