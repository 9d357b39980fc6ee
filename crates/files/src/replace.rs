//! Replaces a file as a whole, so that a reader or a crash sees the old one or the new one.
//!
//! It must not know what is in the file.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Read access to a newly created file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Its owner only.
    Private,
    /// Access as the file mode mask allows.
    Shared,
}

/// Replaces the content of the file at `path` with `bytes`; the result survives a power cut. A file that exists keeps its mode,
/// its owner and its group.
///
/// A symbolic link stays one: the file that it points to is replaced.
///
/// # Errors
/// Errors of the file system, also if the owner or the group cannot be kept, or [`io::ErrorKind::InvalidInput`] if something
/// other than a regular file exists there; that is then untouched and the temporary file removed.
pub fn replace_file(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    replace_file_with(path, access, |file| file.write_all(bytes))
}

/// Does the same with what `write` puts into the new file, for content that is never in memory as a whole. If `write` fails, the
/// file stays as it was.
///
/// # Errors
/// As those of [`replace_file`], and the error of `write`.
pub fn replace_file_with(
    path: &Path,
    access: FileAccess,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    sync_folder(&replace_with(path, write, access, Durability::Synced, keep_owner)?)
}

/// Does the same for a file that can be recreated from durable data: after a power cut it may be the old one, or empty. It does
/// not wait for the disk, and does not delay callers that do.
///
/// # Errors
/// As those of [`replace_file`].
pub fn replace_copy(path: &Path, bytes: &[u8], access: FileAccess) -> io::Result<()> {
    replace_with(path, |file: &mut File| file.write_all(bytes), access, Durability::Unsynced, keep_owner).map(drop)
}

/// Durability of the write after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    Synced,
    Unsynced,
}

/// Replaces a file and gives the folder that it is in.
fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    access: FileAccess,
    power: Durability,
    keep: KeepOwnerFn,
) -> io::Result<PathBuf> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_other = fs::metadata(&target).is_ok_and(|found| !found.is_file());
    if is_other {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder)?;
    let mut salt = [0; 8];
    getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", hex::encode(salt)));
    let written = write_temporary(&temporary, &target, write, access, keep)
        .and_then(|file| if power == Durability::Synced { file.sync_all() } else { Ok(()) })
        .and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    Ok(folder.to_owned())
}

/// Gives a new file to those whom the old one belongs to.
type KeepOwnerFn = fn(&File, &Metadata) -> io::Result<()>;

/// Keeps the owner and the group. Else a file that root edits would be taken away from the user whose program reads it.
fn keep_owner(new: &File, old: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, fchown};
        let now = new.metadata()?;
        if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
            fchown(new, Some(old.uid()), Some(old.gid())).map_err(|error| {
                let (user, group) = (old.uid(), old.gid());
                let why = format!("cannot keep its owner, user {user} and group {group}: {error}");
                io::Error::new(error.kind(), why)
            })?;
        }
    }
    Ok(())
}

fn write_temporary(
    temporary: &Path,
    target: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    access: FileAccess,
    keep: KeepOwnerFn,
) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if access == FileAccess::Private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let mut file = options.open(temporary)?;
    if let Ok(old) = fs::metadata(target) {
        // The mode comes second: another owner takes some of it away.
        keep(&file, &old)?;
        file.set_permissions(old.permissions())?;
    }
    write(&mut file)?;
    Ok(file)
}

/// Makes the names in `folder` survive a power cut.
///
/// # Errors
/// Errors of the file system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{self, Write as _},
        os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown},
    };

    use super::{Durability, FileAccess, replace_copy, replace_file, replace_file_with, replace_with};

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/config.yml");
        replace_file(&file, b"one", FileAccess::Private).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        replace_file(&file, b"two", FileAccess::Private).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy.json");
        replace_copy(&file, b"one", FileAccess::Private).unwrap();
        replace_copy(&file, b"two", FileAccess::Private).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_stays_with_its_owner_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        fs::write(&file, "old").unwrap();
        // Only root can give a file away; for other users there is nothing to keep but their own.
        let (user, group) = match fs::metadata(&file).unwrap().uid() {
            0 => (4711, 4712),
            own => (own, fs::metadata(&file).unwrap().gid()),
        };
        chown(&file, Some(user), Some(group)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        replace_file(&file, b"new", FileAccess::Private).unwrap();
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (user, group, 0o640));
    }

    #[test]
    fn a_file_whose_owner_cannot_be_kept_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        fs::write(&file, "old").unwrap();
        let error = replace_with(
            &file,
            |_| Ok(()),
            FileAccess::Private,
            Durability::Synced,
            |_, _| Err(io::ErrorKind::PermissionDenied.into()),
        );
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_stays_as_it_was_if_its_new_content_cannot_be_had() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.jsonl");
        fs::write(&file, "old").unwrap();
        let error = replace_file_with(&file, FileAccess::Private, |new| {
            new.write_all(b"half")?;
            Err(io::ErrorKind::UnexpectedEof.into())
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_regular_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = replace_file(&pipe, b"x", FileAccess::Private).unwrap_err();
        assert_eq!(error.to_string(), "it is not a regular file");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        replace_file(&link, b"new", FileAccess::Shared).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
    }
}
