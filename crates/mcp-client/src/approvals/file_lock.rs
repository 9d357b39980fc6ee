//! Lock of the file of approvals against other processes, for a bounded time.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Longest wait for another process that changes the approvals, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Locks a file until the returned one is dropped. Blocks the thread.
///
/// # Errors
/// Errors of the file system, and [`io::ErrorKind::TimedOut`] if another process holds the lock all the time.
pub(super) fn lock_file(path: &Path) -> io::Result<File> {
    lock_within(path, PATIENCE)
}

fn lock_within(path: &Path, patience: Duration) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let problem = format!("another process holds {}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::ErrorKind, time::Duration};

    use super::lock_within;

    #[test]
    fn a_lock_that_is_held_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = lock_within(&path, Duration::ZERO).unwrap();
        assert_eq!(lock_within(&path, Duration::ZERO).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(held);
        assert!(lock_within(&path, Duration::ZERO).is_ok());
    }
}
