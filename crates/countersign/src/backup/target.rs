//! Checks whether a target can be created at a path, before anything is copied.
//!
//! It must not make anything.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{cannot, display_path};

/// Resolves a path. The target of a link is what its owner calls by the link's name, so that is checked and replaced.
pub(super) fn resolve_target(path: &Path) -> anyhow::Result<PathBuf> {
    // Without a slash at its end, after which a link would count as its target.
    let path: PathBuf = std::path::absolute(path)?.components().collect();
    match path.canonicalize() {
        Ok(real) => Ok(real),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| cannot("open", &path)),
        Err(_) if path.is_symlink() => {
            bail!("{} is a dangling symlink: create its target, or choose another path", display_path(&path))
        }
        Err(_) => Ok(path),
    }
}

/// Reports whether an entry at `path` exists that must not be lost.
pub(super) fn is_occupied(path: &Path) -> anyhow::Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(error).with_context(|| cannot("read", path)),
    }
}

/// Reports whether a path lies in `folder`, or will once it is made.
pub(super) fn lies_in(path: &Path, folder: &Path) -> bool {
    let real = |path: &Path| std::path::absolute(path).ok()?.ancestors().find_map(|above| above.canonicalize().ok());
    let Ok(folder) = folder.canonicalize() else { return false };
    real(path).is_some_and(|path| path.starts_with(folder))
}

/// Reports whether this process was started there: its shell would be left in a removed folder.
pub(super) fn is_here(path: &Path) -> bool {
    std::env::current_dir().and_then(|here| here.canonicalize()).is_ok_and(|here| here == path)
}

/// Reports whether another file system is mounted there: a folder of this name can be neither moved away nor put there.
pub(super) fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    let above = path.parent().and_then(|above| fs::metadata(above).ok()).map(|found| found.dev());
    device(path).is_some_and(|device| above.is_some_and(|above| above != device))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::is_mount_point;

    #[test]
    fn a_mount_point_is_known_before_anything_is_copied_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        fs::create_dir(folder.path().join("inside")).unwrap();
        for (path, want) in [
            (Path::new("/proc"), true),
            (&folder.path().join("inside"), false),
            (&link, false),
            (&folder.path().join("not there"), false),
        ] {
            assert_eq!(is_mount_point(path), want, "{}", path.display());
        }
    }
}
