//! Opens and replaces files at places that [`crate::roots`] allowed, without following links.
//!
//! It must not decide which paths are allowed.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io::{self, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat},
    sys::stat::{Mode, fchmod, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat},
};

use crate::roots::AllowedPath;

/// State of a file when it was read: another stamp means that it was written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// Creates the stamp of an open file.
    pub fn from_metadata(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// State that a replacement expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceCondition {
    /// Any state.
    Anything,
    /// A file that was not written since it was read.
    Unchanged(FileStamp),
}

/// Opens a file or folder for reading. Does not wait for the other end of a pipe.
///
/// # Errors
/// Errors of the kernel; a link that was put on the way since is `ELOOP`.
pub fn open_file(place: &AllowedPath) -> io::Result<File> {
    Ok(File::from(open_straight(place.path(), OFlag::O_RDONLY | OFlag::O_NONBLOCK)?))
}

/// Opens a path that a walk found, as [`open_file`] does.
///
/// # Errors
/// Errors of the kernel; a link anywhere on the way is `ELOOP`.
pub fn open_walked(path: &Path) -> io::Result<File> {
    Ok(File::from(open_straight(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?))
}

/// Makes `place` a regular file that holds `bytes`, with its missing parents, and reports whether there was none before.
///
/// The file is complete or as it was, also through a power cut: a temporary file in the same folder is written, flushed
/// and renamed. Mode and owner of a file that was there are kept; other names of it (hard links) keep the old content.
///
/// # Errors
/// Errors of the kernel; [`io::ErrorKind::InvalidInput`] if something other than a regular file is there;
/// [`io::ErrorKind::ResourceBusy`] if its state is not the one that `before` expects.
pub fn replace_file(place: &AllowedPath, bytes: &[u8], before: ReplaceCondition) -> io::Result<ReplaceOutcome> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "it is a folder");
    let name = place.path().file_name().ok_or_else(no_name)?;
    let folder = open_folder(place.path().parent().ok_or_else(no_name)?)?;
    let old = stat_entry(&folder, name)?;
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let temporary = temporary_name(name)?;
    let mode = if old.is_some() { Mode::from_bits_truncate(0o600) } else { Mode::from_bits_truncate(0o666) };
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(&folder, temporary.as_os_str(), flags, mode)?);
    let written = (|| {
        file.write_all(bytes)?;
        if let Some(old) = &old {
            keep_owner_and_mode(&file, old)?;
        }
        file.sync_all()?;
        if let ReplaceCondition::Unchanged(stamp) = before
            && stat_entry(&folder, name)?.as_ref().map(FileStamp::from_metadata) != Some(stamp)
        {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program changed it in the meantime"));
        }
        renameat(&folder, temporary.as_os_str(), &folder, name)?;
        Ok(())
    })();
    if let Err(error) = written {
        // The error that counts is the first one; a leftover temporary file does no harm.
        let _ = unlinkat(&folder, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
        return Err(error);
    }
    // Not every file system can flush a folder.
    let _ = File::from(folder).sync_all();
    Ok(if old.is_some() { ReplaceOutcome::Replaced } else { ReplaceOutcome::Created })
}

/// Removes the file at `place`.
///
/// # Errors
/// Errors of the kernel.
pub fn remove_file(place: &AllowedPath) -> io::Result<()> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "it is a folder");
    let name = place.path().file_name().ok_or_else(no_name)?;
    let folder = open_straight(place.path().parent().ok_or_else(no_name)?, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    Ok(unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir)?)
}

/// State before a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceOutcome {
    /// No file.
    Created,
    /// A file.
    Replaced,
}

fn keep_owner_and_mode(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut kept = old.mode() & 0o7777;
    if (new.uid(), new.gid()) != (old.uid(), old.gid())
        && fchown(file, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid()))).is_err()
    {
        // Another owner's set-id bits would mean something else on a file of ours.
        kept &= 0o777;
    }
    Ok(fchmod(file, Mode::from_bits_truncate(kept))?)
}

/// Opens a folder that is to hold a file, and makes what is missing of it.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut at = path;
    let mut folder = loop {
        match (open_straight(at, flags), at.parent(), at.file_name()) {
            (Ok(folder), ..) => break folder,
            (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
                missing.push(name);
                at = parent;
            }
            (Err(error), ..) => return Err(error),
        }
    };
    for name in missing.into_iter().rev() {
        match mkdirat(&folder, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = openat(&folder, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    }
    Ok(folder)
}

/// Opens a path in which no part may be a link.
fn open_straight(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, path, how) {
        // Kernels before 5.6 and some sandboxes do not have it: the last part is then protected, the others are not.
        Err(Errno::ENOSYS | Errno::EPERM) => Ok(openat(AT_FDCWD, path, flags | OFlag::O_NOFOLLOW, Mode::empty())?),
        opened => Ok(opened?),
    }
}

fn stat_entry(folder: impl AsFd, name: &OsStr) -> io::Result<Option<Metadata>> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Ok(found) => Ok(Some(File::from(found).metadata()?)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn temporary_name(name: &OsStr) -> io::Result<OsString> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let mut made = OsString::from(".");
    // A name may have 255 bytes: a long one is left out rather than refused.
    if name.len() < 200 {
        made.push(name);
        made.push(".");
    }
    made.push(hex::encode(random));
    made.push(".tmp");
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::Path,
    };

    use super::{FileStamp, ReplaceCondition, ReplaceOutcome, open_file, replace_file};
    use crate::roots::AllowedRoots;

    #[test]
    fn a_link_put_there_after_the_decision_is_not_followed() {
        let world = tempfile::tempdir().unwrap();
        let work = world.path().join("work");
        fs::create_dir_all(work.join("sub")).unwrap();
        fs::create_dir(world.path().join("outside")).unwrap();
        fs::write(work.join("sub/a"), "inside").unwrap();
        fs::write(world.path().join("outside/a"), "outside").unwrap();
        let roots = AllowedRoots::new(&work, []).unwrap();
        let file = roots.resolve_path(&work, Path::new("sub/a")).unwrap();
        fs::rename(work.join("sub"), work.join("moved")).unwrap();
        symlink(world.path().join("outside"), work.join("sub")).unwrap();
        assert!(open_file(&file).is_err());
        assert!(replace_file(&file, b"x", ReplaceCondition::Anything).is_err());
        assert_eq!(fs::read_to_string(world.path().join("outside/a")).unwrap(), "outside");
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.sh");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
        let place = AllowedRoots::whole_filesystem([]).resolve_path(folder.path(), Path::new("run.sh")).unwrap();
        assert_eq!(replace_file(&place, b"new", ReplaceCondition::Anything).unwrap(), ReplaceOutcome::Replaced);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_somebody_else_wrote_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "read").unwrap();
        let stamp = FileStamp::from_metadata(&fs::metadata(&path).unwrap());
        fs::write(&path, "written since").unwrap();
        let place = AllowedRoots::whole_filesystem([]).resolve_path(folder.path(), Path::new("a")).unwrap();
        let error = replace_file(&place, b"mine", ReplaceCondition::Unchanged(stamp)).unwrap_err();
        assert_eq!(error.to_string(), "another program changed it in the meantime");
        assert_eq!(fs::read(&path).unwrap(), b"written since");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
