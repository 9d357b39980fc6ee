//! A folder for one run, for the eyes of this user only.
//!
//! It must not remove anything that it did not make.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

/// Maximum number of tried names.
const ATTEMPTS: u32 = 1000;

/// Treatment of a folder at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepFolder {
    Yes,
    No,
}

/// A folder of its own. Dropped, it is removed unless it is to be kept.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    path: PathBuf,
    keep: KeepFolder,
}

impl ScratchDir {
    /// Makes a new folder in `parent` that is named for `purpose`.
    pub(crate) fn new(parent: &Path, purpose: &str, keep: KeepFolder) -> anyhow::Result<Self> {
        let parent = parent.canonicalize().with_context(|| format!("cannot open {}", parent.display()))?;
        let process = std::process::id();
        for attempt in 0..ATTEMPTS {
            let path = parent.join(format!("countersign-{purpose}-{process}-{attempt}"));
            // Creation fails if it exists: no other program can have put a file into it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, keep }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
            }
        }
        bail!("{}: there is no free name for a scratch folder", parent.display())
    }

    /// Takes `folder`, which must be absent or empty. It is kept.
    pub(crate) fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        let named = || format!("cannot use the folder {}", folder.display());
        if folder.is_file() {
            bail!("{} is a file, not a folder: choose another with --dir", folder.display());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(named)?;
        let path = folder.canonicalize().with_context(named)?;
        if path.read_dir().with_context(named)?.next().is_some() {
            bail!("{} is not empty: choose another folder with --dir", folder.display());
        }
        Ok(Self { path, keep: KeepFolder::Yes })
    }

    /// Returns its path, absolute and without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whether it outlives this process.
    pub(crate) fn is_kept(&self) -> bool {
        self.keep == KeepFolder::Yes
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if self.keep == KeepFolder::No {
            // Remaining files are in the folder for temporary files, which the system cleans.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KeepFolder, ScratchDir};

    #[test]
    fn a_folder_of_its_own_is_new_and_goes_unless_it_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let first = ScratchDir::new(parent.path(), "test", KeepFolder::No).unwrap();
        let second = ScratchDir::new(parent.path(), "test", KeepFolder::Yes).unwrap();
        let (gone, kept) = (first.path().to_owned(), second.path().to_owned());
        assert_ne!(gone, kept);
        drop((first, second));
        assert_eq!((gone.exists(), kept.exists()), (false, true));
    }

    #[test]
    fn a_named_folder_with_something_in_it_is_refused_and_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        drop(ScratchDir::in_folder(&folder).unwrap());
        assert!(folder.is_dir());
        std::fs::write(folder.join("mine"), "").unwrap();
        assert!(ScratchDir::in_folder(&folder).unwrap_err().to_string().contains("is not empty: choose another"));
        assert!(folder.join("mine").exists());
        assert!(
            ScratchDir::in_folder(&folder.join("mine")).unwrap_err().to_string().contains("is a file, not a folder")
        );
    }
}
