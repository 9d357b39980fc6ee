//! Settings files of programs: read and replaced only if they are plain files that we may write.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use countersign_files::replace::{FileAccess, replace_file};

use crate::error::GuardError;

/// Largest settings file, in bytes.
const LARGEST: u64 = 4 << 20;

/// Reads a settings file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, GuardError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(GuardError::of_file(path)(error)),
    };
    if found.is_symlink() {
        let target = fs::canonicalize(path).or_else(|_| fs::read_link(path)).unwrap_or_default();
        let problem = format!("is a symbolic link to {}: change that file yourself", target.display());
        return Err(GuardError::of_settings(path, problem));
    }
    if !found.is_file() {
        return Err(GuardError::of_settings(path, "is no file"));
    }
    if found.len() > LARGEST {
        return Err(GuardError::of_settings(path, format!("is larger than {LARGEST} bytes")));
    }
    fs::read_to_string(path).map(Some).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => GuardError::of_settings(path, "is not UTF-8"),
        _ => GuardError::of_file(path)(error),
    })
}

/// Checks that a settings file, if it exists, may be written.
pub(crate) fn check_writable(path: &Path) -> Result<(), GuardError> {
    match OpenOptions::new().write(true).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(GuardError::of_file(path)(error)),
    }
    let is_read_only = fs::metadata(path).is_ok_and(|found| found.permissions().readonly());
    if is_read_only { Err(GuardError::of_settings(path, "is read-only")) } else { Ok(()) }
}

/// Replaces a settings file. Folders above it must exist.
pub(crate) fn write(path: &Path, text: &str, access: FileAccess) -> Result<(), GuardError> {
    replace_file(path, text.as_bytes(), access).map_err(GuardError::of_file(path))
}

/// Lets every user of the machine read a file and the folders that were created for it.
pub(crate) fn share(folders: &[PathBuf], path: &Path) -> Result<(), GuardError> {
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(GuardError::of_file(path))
    };
    folders.iter().try_for_each(|folder| set(folder, 0o755))?;
    set(path, 0o644)
}
