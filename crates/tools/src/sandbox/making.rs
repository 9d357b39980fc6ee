//! Files that a call asks to write and that are not there yet.
//!
//! It must not know who allowed it.

use std::path::{Path, PathBuf};

use super::{SandboxError, trees};

/// Makes the file that is asked for as `path`, where there is nothing yet: the kernel lets nobody write what is not there without the folder
/// around it, and that was not asked for. None is made behind a link, which a person did not see, nor where a folder is meant.
pub(super) fn make(path: &Path, home: Option<&Path>) -> Result<(), SandboxError> {
    use nix::{
        errno::Errno,
        fcntl::{OFlag, open, openat, readlink},
        sys::stat::Mode as Bits,
    };
    let real = expanded(path, home);
    if real.symlink_metadata().is_ok() {
        return Ok(());
    }
    let absent = |why: Errno| SandboxError::Absent { path: real.clone(), why: std::io::Error::from(why).kind() };
    let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Err(absent(Errno::ENOENT)) };
    if is_folder || plain(path, home) != real {
        return Err(absent(Errno::ENOTDIR));
    }
    let folder = open(parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Bits::empty()).map_err(absent)?;
    // Who swapped it for a link meanwhile has another one here.
    let at =
        readlink(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder)).as_str()).map_err(absent)?;
    if Path::new(&at) != parent {
        return Err(absent(Errno::ENOTDIR));
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(&folder, name, flags, Bits::from_bits_truncate(0o666)) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(why) => Err(absent(why)),
    }
}

/// `path` as it is written, without dots, with the home folder in place of `~`.
fn plain(path: &Path, home: Option<&Path>) -> PathBuf {
    let text = path.to_string_lossy();
    let at_home = text.find("/~/").map(|at| &text[at + 3..]).zip(home).map(|(rest, home)| trees::real(home).join(rest));
    let mut plain = PathBuf::new();
    for part in at_home.as_deref().unwrap_or(path).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// `path` with every link followed, with the home folder in place of `~`.
pub(super) fn expanded(path: &Path, home: Option<&Path>) -> PathBuf {
    // A path that was joined to a folder holds its `~` further in.
    let text = path.to_string_lossy();
    let rest = text.find("/~/").map(|at| &text[at + 3..]).or_else(|| text.strip_prefix("~/"));
    trees::real(&match (rest, home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) | (None, _) => path.to_owned(),
    })
}
