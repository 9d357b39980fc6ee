//! A folder that is made beside the place where it will lie, and put there when it is whole.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::sorted;

/// A folder under way. Whoever makes one for the same target waits for nobody: it is refused.
pub(super) struct Part {
    folder: PathBuf,
    is_in_place: bool,
    /// Held until it is in its place, and let go of by the system when the process ends.
    _lock: File,
}

impl Part {
    /// Makes an empty one for `target`, and takes away what an attempt that was ended left behind.
    pub(super) fn make(target: &Path) -> anyhow::Result<Self> {
        let target = std::path::absolute(target)?;
        let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
            bail!("{} is no name for a folder", target.display());
        };
        fs::create_dir_all(above).with_context(|| above.display().to_string())?;
        let folder = above.join(format!(".{}.part", name.to_string_lossy()));
        if folder.exists() {
            fs::set_permissions(&folder, Permissions::from_mode(0o700))
                .with_context(|| folder.display().to_string())?;
        } else {
            own_folder(&folder)?;
        }
        let lock = File::open(&folder).with_context(|| folder.display().to_string())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("somebody else is making {} at this moment", target.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| folder.display().to_string()),
        }
        for entry in sorted(&folder)? {
            let gone = if entry.is_dir() && !entry.is_symlink() {
                fs::remove_dir_all(&entry)
            } else {
                fs::remove_file(&entry)
            };
            gone.with_context(|| entry.display().to_string())?;
        }
        Ok(Self { folder, is_in_place: false, _lock: lock })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Gives it its name. Nothing, or an empty folder, may be there.
    pub(super) fn put_in_place(mut self, target: &Path) -> anyhow::Result<()> {
        sync(&self.folder)?;
        fs::rename(&self.folder, target).with_context(|| target.display().to_string())?;
        self.is_in_place = true;
        sync_above(target)
    }

    /// Gives it its name, and what was there the name `old`. Nobody sees a moment without either.
    pub(super) fn put_in_place_of(mut self, target: &Path, old: &Path) -> anyhow::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        sync(&self.folder)?;
        // It takes that name first: what was there would otherwise lie for a moment where the next attempt clears away.
        renameat_with(CWD, &self.folder, CWD, old, RenameFlags::NOREPLACE)
            .with_context(|| old.display().to_string())?;
        if let Err(error) = renameat_with(CWD, old, CWD, target, RenameFlags::EXCHANGE) {
            fs::rename(old, &self.folder).with_context(|| old.display().to_string())?;
            let what = format!("{} could not be put in the place of what is there", target.display());
            return Err(error).context(what);
        }
        self.is_in_place = true;
        sync_above(target)
    }
}

impl Drop for Part {
    /// One that failed would keep the room that it took.
    fn drop(&mut self) {
        if !self.is_in_place {
            // What cannot be removed now is removed by the next attempt.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn sync_above(target: &Path) -> anyhow::Result<()> {
    let target = std::path::absolute(target)?;
    File::open(target.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()?;
    Ok(())
}

/// Sees that all of a folder is on the disk.
fn sync(folder: &Path) -> anyhow::Result<()> {
    for entry in sorted(folder)? {
        if entry.is_symlink() {
            continue;
        }
        if entry.is_dir() {
            sync(&entry)?;
        } else {
            File::open(&entry).and_then(|file| file.sync_all()).with_context(|| entry.display().to_string())?;
        }
    }
    File::open(folder)?.sync_all().with_context(|| folder.display().to_string())
}

/// A copy of many files, for the owner of the copy alone.
#[derive(Default)]
pub(super) struct Copying {
    /// Device and number of files that are not to be in it, wherever they lie.
    pub(super) leave: Vec<(u64, u64)>,
    /// What could not be copied where that was allowed.
    pub(super) missed: Vec<String>,
}

/// Whether a copy may be without something that cannot be read or named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    All,
    WhatCanBeRead,
}

impl Copying {
    /// Copies a file, a link or a folder with all that is in it. What is none of these, such as a socket, is left out, and so is what
    /// goes away meanwhile: the folder may be in use.
    pub(super) fn copy(&mut self, from: &Path, to: &Path, need: Need) -> anyhow::Result<()> {
        if from.file_name().and_then(|name| name.to_str()).is_none() {
            if need == Need::All {
                bail!("{} has a name that is no text", from.display());
            }
            self.missed.push(format!("{}: its name is no text", from.display()));
            return Ok(());
        }
        let done = match self.copy_one(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            done => done,
        };
        match done {
            Ok(None) => Ok(()),
            Ok(Some(inside)) => inside.into_iter().try_for_each(|entry| {
                let to = to.join(entry.file_name().unwrap_or_default());
                self.copy(&entry, &to, need)
            }),
            Err(error) if need == Need::WhatCanBeRead && is_of_one_file(&error) => {
                self.missed.push(format!("{}: {error}", from.display()));
                Ok(())
            }
            Err(error) => Err(error).with_context(|| from.display().to_string()),
        }
    }

    /// Copies a file or a link, or makes a folder and gives what is to be in it.
    fn copy_one(&self, from: &Path, to: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        let found = fs::symlink_metadata(from)?;
        let kind = found.file_type();
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
        } else if kind.is_dir() {
            let mut inside = fs::read_dir(from)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
            inside.sort();
            make_own_folder(to)?;
            return Ok(Some(inside));
        } else if kind.is_file() && !self.leave.contains(&(found.dev(), found.ino())) {
            // What its owner may run stays so; the rest of the modes is not taken along.
            copy_file(from, to, 0o600 | (found.permissions().mode() & 0o100))?;
        }
        Ok(None)
    }
}

/// Whether it is a matter of this file, and not of the disk.
fn is_of_one_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidFilename)
}

fn copy_file(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut source, &mut made)?;
    made.set_permissions(Permissions::from_mode(mode))
}

/// Makes a folder that is for its owner alone, whatever the umask.
pub(super) fn own_folder(path: &Path) -> anyhow::Result<()> {
    make_own_folder(path).with_context(|| path.display().to_string())
}

fn make_own_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Makes a file that is for its owner alone, whatever the umask.
pub(super) fn own_file(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    made.write_all(content)?;
    made.set_permissions(Permissions::from_mode(0o600))
}
