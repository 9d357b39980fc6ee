//! Finds out where a name leads, as a shell does.

use std::path::{Component, Path, PathBuf};

use countersign_core::policy::files::NamedFile;
use nix::unistd::{AccessFlags, access};

/// Returns the path that `named` leads to; none if nothing is there.
pub(super) fn locate_named(named: &NamedFile) -> Option<PathBuf> {
    let tried = || named.tried.iter().map(|path| tidy_path(path));
    if named.is_searched {
        return first_runnable(tried());
    }
    tried().find(|path| path.symlink_metadata().is_ok())
}

/// Returns the path of a program called `name` in `folders`.
pub(super) fn search_folders<'a>(folders: impl Iterator<Item = &'a str>, name: &str) -> Option<PathBuf> {
    first_runnable(folders.map(|folder| Path::new(folder).join(name)).collect::<Vec<_>>().into_iter())
}

/// Returns the first path that may be run; if none may, the first file, which is the one that a shell then refuses to run.
fn first_runnable(tried: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let files: Vec<PathBuf> = tried.filter(|path| path.metadata().is_ok_and(|found| found.is_file())).collect();
    files.iter().find(|path| access(path.as_path(), AccessFlags::X_OK).is_ok()).or_else(|| files.first()).cloned()
}

/// Returns a path without `.` and doubled slashes. `..` stays: after a link it leads elsewhere.
pub(super) fn tidy_path(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| *part != Component::CurDir).collect()
}
