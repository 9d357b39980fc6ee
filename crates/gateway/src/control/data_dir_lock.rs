//! Lock of a data directory: one gateway has it at a time.
//!
//! It must not serve the socket.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// Name of the socket in the data directory.
pub const FILE: &str = "countersign.sock";
/// Longest path of a socket, in bytes.
const LONGEST_PATH: usize = 107;

/// Checks that a data directory's path leaves room for the socket's name.
///
/// # Errors
/// The missing room, and a remedy.
pub fn has_room(folder: &Path) -> Result<(), String> {
    let (length, most) = (folder.as_os_str().len(), LONGEST_PATH - FILE.len() - 1);
    if length <= most {
        return Ok(());
    }
    Err(format!(
        "the path has {length} bytes; the control socket in it allows {most} at most: choose a shorter path with --data or storage.path"
    ))
}

/// Lock of a data directory, until it is dropped.
#[derive(Debug)]
pub struct DataDirLock {
    /// Path of the socket.
    path: PathBuf,
    lock: File,
}

impl DataDirLock {
    /// Locks `folder`, before anything else in it is touched.
    ///
    /// # Errors
    /// An error of the system, a path that is too long for a socket, or another gateway that has the folder, with the id of its
    /// process.
    pub fn acquire_lock(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join(FILE);
        if let Err(why) = has_room(folder) {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        Ok(Self { lock: lock_file(&path.with_extension("sock.lock"))?, path })
    }

    /// Returns the path of the socket, and the lock file, which is locked until it is dropped.
    pub(super) fn into_parts(self) -> (PathBuf, File) {
        (self.path, self.lock)
    }
}

/// Error if another gateway has the folder.
const OCCUPIED: &str = "another gateway uses this data directory";

/// Number of pauses in which a lock whose holder was killed may become free, and the length of each: a process that the holder was about
/// to start has the lock too, until it becomes another program.
const ORPHAN_PAUSES: usize = 200;
const ORPHAN_PAUSE: Duration = Duration::from_millis(10);

/// Reports whether there is no process with this id.
fn has_ended(pid: i32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) == Err(nix::errno::Errno::ESRCH)
}

/// Takes a lock that ends with the process. Its file stays, so that two never lock two files of one name.
fn lock_file(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let holder = || std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i32>().ok());
    let mut taken = file.try_lock();
    let mut pauses = 0..ORPHAN_PAUSES;
    while matches!(taken, Err(TryLockError::WouldBlock)) && holder().is_some_and(has_ended) && pauses.next().is_some() {
        std::thread::sleep(ORPHAN_PAUSE);
        taken = file.try_lock();
    }
    match taken {
        Ok(()) => {
            // A process that finds it held reads the id of the holder. If the disk is full there is none.
            let _ = file.set_len(0).and_then(|()| writeln!(&file, "{}", std::process::id()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let whose = holder().map_or_else(String::new, |pid| format!(" (process {pid})"));
            let why = format!("{OCCUPIED}{whose}: stop it, or choose another directory with --data");
            Err(std::io::Error::new(std::io::ErrorKind::AddrInUse, why))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::DataDirLock;

    #[test]
    fn a_lock_that_a_killed_gateway_left_to_a_child_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let held = DataDirLock::acquire_lock(folder.path()).unwrap();
        let mut killed = std::process::Command::new("true").spawn().unwrap();
        killed.wait().unwrap();
        std::fs::write(folder.path().join("countersign.sock.lock"), format!("{}\n", killed.id())).unwrap();
        let child = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(50));
            drop(held);
        });
        DataDirLock::acquire_lock(folder.path()).unwrap();
        child.join().unwrap();
    }
}
