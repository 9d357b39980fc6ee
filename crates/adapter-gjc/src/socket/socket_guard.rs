//! Place of a socket: in a folder that only this user owns, at a path that is free.
//!
//! It must not know what the socket is for.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::{
        fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use countersign_runtime::tools::regular;
use tokio::net::UnixListener;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Its folder cannot be used.
    #[error("--listen {}: {problem}", path.display())]
    Folder {
        /// The socket.
        path: PathBuf,
        /// Problem with the folder.
        problem: String,
    },
    /// Another process has it.
    #[error("--listen {}: another process listens there", .0.display())]
    Taken(PathBuf),
    /// Something else is there.
    #[error("--listen {}: {what} exists at this path and is not replaced", path.display())]
    Other {
        /// The socket.
        path: PathBuf,
        /// Kind of the existing file.
        what: &'static str,
    },
    /// The system says no.
    #[error("--listen {}: {source}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// A socket's place, until it is dropped.
#[derive(Debug)]
pub(super) struct SocketGuard {
    path: PathBuf,
    user: u32,
    /// Held for as long as the socket is ours. Its file stays, so that two never lock two files of one name.
    _lock: File,
}

impl SocketGuard {
    pub(super) fn socket_path(&self) -> &Path {
        &self.path
    }

    /// Returns the id of the owner.
    pub(super) const fn user_id(&self) -> u32 {
        self.user
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the place at `path` for the user `us`. What a dead process left there goes.
///
/// # Errors
/// [`SocketError`].
pub(super) fn bind_socket(path: PathBuf, us: u32) -> Result<(UnixListener, SocketGuard), SocketError> {
    let system = |source| SocketError::System { path: path.clone(), source };
    let path = std::path::absolute(&path).map_err(system)?;
    let system = |source| SocketError::System { path: path.clone(), source };
    prepare_folder(&path, us)?;
    let lock = acquire_lock(&path)?;
    remove_stale(&path)?;
    let listener = UnixListener::bind(&path).map_err(system)?;
    // No other user can enter the folder in the meantime.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(system)?;
    Ok((listener, SocketGuard { path, user: us, _lock: lock }))
}

/// Looks whether the folder is ours alone; one that is not there is made so.
fn prepare_folder(path: &Path, us: u32) -> Result<(), SocketError> {
    let refused = |problem: String| SocketError::Folder { path: path.to_owned(), problem };
    let folder = path.parent().ok_or_else(|| refused("the path has no parent folder".to_owned()))?;
    let shown = folder.display();
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(format!("cannot create {shown}: {error}"))),
    }
    let found = fs::symlink_metadata(folder).map_err(|error| refused(format!("{shown}: {error}")))?;
    if found.file_type().is_symlink() {
        return Err(refused(format!("{shown} is a symbolic link")));
    }
    if !found.is_dir() {
        return Err(refused(format!("{shown} is not a folder")));
    }
    if found.uid() != us {
        return Err(refused(format!("{shown} belongs to user {}, not to {us}", found.uid())));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(refused(format!("{shown} is open to others (mode {mode:o}): it must be 700")));
    }
    Ok(())
}

fn acquire_lock(path: &Path) -> Result<File, SocketError> {
    let system = |source| SocketError::System { path: path.to_owned(), source };
    let mut name = path.file_name().ok_or_else(|| system(ErrorKind::InvalidInput.into()))?.to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = regular::open_file(&path.with_file_name(name), options).map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SocketError::Taken(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(system(error)),
    }
}

/// Removes the socket of a process that is gone.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let system = |source| SocketError::System { path: path.to_owned(), source };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
    };
    if !found.is_socket() {
        let what = if found.is_symlink() { "a symbolic link" } else { "a file that is not a socket" };
        return Err(SocketError::Other { path: path.to_owned(), what });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(system),
        // It answers, or its state is unknown.
        Ok(_) | Err(_) => Err(SocketError::Taken(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{
            fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink},
            net::UnixListener,
        },
        path::Path,
    };

    use super::bind_socket;

    /// Returns a folder that is ours alone, and who we are.
    fn place() -> (tempfile::TempDir, u32) {
        let root = tempfile::tempdir().unwrap();
        let us = fs::metadata(root.path()).unwrap().uid();
        fs::DirBuilder::new().mode(0o700).create(root.path().join("own")).unwrap();
        (root, us)
    }

    fn problem(path: &Path, us: u32) -> String {
        bind_socket(path.to_owned(), us).map(|_| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_socket_is_its_users_alone_and_goes_when_it_is_dropped() {
        let (root, us) = place();
        for folder in ["own", "made"] {
            let path = root.path().join(folder).join("a.sock");
            let (listener, owned) = bind_socket(path.clone(), us).unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
            drop((listener, owned));
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_place_that_is_not_ours_alone_is_refused() {
        let (root, us) = place();
        fs::create_dir(root.path().join("open")).unwrap();
        fs::set_permissions(root.path().join("open"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink(root.path().join("own"), root.path().join("link")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let own = root.path().join("own");
        symlink(own.join("elsewhere.sock"), own.join("link.sock")).unwrap();
        fs::write(own.join("file.sock"), "mine").unwrap();
        let _alive = UnixListener::bind(own.join("alive.sock")).unwrap();
        for (path, us, want) in [
            ("open/a.sock", us, "is open to others (mode 750)"),
            ("link/a.sock", us, "is a symbolic link"),
            ("file/a.sock", us, "is not a folder"),
            ("none/deep/a.sock", us, "cannot create"),
            ("own/a.sock", us + 1, "belongs to user"),
            ("own/link.sock", us, "a symbolic link exists at this path"),
            ("own/file.sock", us, "a file that is not a socket exists at this path"),
            ("own/alive.sock", us, "another process listens there"),
        ] {
            let problem = problem(&root.path().join(path), us);
            assert!(problem.contains(want), "{path}: {problem}");
        }
        assert_eq!(fs::read(own.join("file.sock")).unwrap(), b"mine");
    }

    #[tokio::test]
    async fn what_a_dead_process_left_goes_and_what_lives_stays() {
        let (root, us) = place();
        let path = root.path().join("own/a.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let held = bind_socket(path.clone(), us).unwrap();
        assert!(problem(&path, us).contains("another process listens there"));
        assert!(path.exists());
        drop(held);
    }
}
