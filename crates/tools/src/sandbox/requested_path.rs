//! Paths that a call requests to write beyond the sandbox.
//!
//! It must not know the approver, who sees the text alone, so it has to show the path that it leads to.

use std::{
    ffi::OsStr,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat, readlink},
    sys::stat::Mode as Bits,
};

use super::{SandboxError, trees};

/// A requested path, relative to the folder that the command runs in.
pub(super) struct RequestedPath {
    /// Path as it is written, without dots.
    plain: PathBuf,
    /// Path with every link followed.
    real: PathBuf,
    is_folder: bool,
}

impl RequestedPath {
    /// Reads the path that `given` names from the folder `from`, which may be a link by now; `~` is `home`.
    pub(super) fn new(given: &Path, from: &Path, home: Option<&Path>) -> Self {
        let path = match (given.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => trees::real_path(home).join(rest),
            (Ok(_), None) | (Err(_), _) => from.join(given),
        };
        Self {
            plain: normalise_path(&path),
            real: trees::real_path(&path),
            is_folder: given.as_os_str().as_encoded_bytes().ends_with(b"/"),
        }
    }

    /// Returns the path that it leads to.
    pub(super) fn real_path(&self) -> &Path {
        &self.real
    }

    /// Fails if it leads to another path than its text: through a link of the agent's own it could be any.
    pub(super) fn check_link(&self) -> Result<(), SandboxError> {
        check_leads_to(&self.plain, &self.real)
    }

    /// Returns the file to make, if nothing exists yet: the kernel allows no writes to a missing file without its folder, and
    /// that was not requested.
    ///
    /// # Errors
    /// [`SandboxError::Absent`] if it cannot be made, or a folder is meant.
    pub(super) fn missing_file(&self) -> Result<Option<MissingFile<'_>>, SandboxError> {
        let path = self.plain.as_path();
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(absent_error(path, Errno::ENOENT));
        };
        if self.is_folder {
            return Err(absent_error(path, Errno::EISDIR));
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(parent, flags, Bits::empty()).map_err(|why| absent_error(path, why))?;
        // A folder that was swapped for a link meanwhile has another path here.
        let at = readlink(format!("/proc/self/fd/{}", folder.as_raw_fd()).as_str())
            .map_err(|why| absent_error(path, why))?;
        if Path::new(&at) != parent {
            return Err(absent_error(path, Errno::ENOTDIR));
        }
        Ok(Some(MissingFile { folder, name, path }))
    }
}

/// Fails where `path` is not `real`, where it led.
pub(super) fn check_leads_to(path: &Path, real: &Path) -> Result<(), SandboxError> {
    let plain = normalise_path(path);
    if plain == real { Ok(()) } else { Err(SandboxError::Link { path: plain, real: real.to_owned() }) }
}

/// Returns `path` as it is written, without dots.
fn normalise_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The place of a file that is not there.
pub(super) struct MissingFile<'a> {
    folder: OwnedFd,
    name: &'a OsStr,
    path: &'a Path,
}

impl MissingFile<'_> {
    /// Makes it.
    ///
    /// # Errors
    /// [`SandboxError::Absent`].
    pub(super) fn create_file(&self) -> Result<(), SandboxError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match openat(&self.folder, self.name, flags, Bits::from_bits_truncate(0o666)) {
            Ok(_) | Err(Errno::EEXIST) => Ok(()),
            Err(why) => Err(absent_error(self.path, why)),
        }
    }
}

fn absent_error(path: &Path, why: Errno) -> SandboxError {
    SandboxError::Absent { path: path.to_owned(), why: std::io::Error::from(why).kind() }
}
