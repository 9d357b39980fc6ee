//! Folders by their descriptors: entries of one are opened, made and removed by their names alone.
//!
//! A path would be looked up again each time, through entries that were replaced meanwhile, and can be too long. This must not know
//! what is copied, nor where to.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::Path,
};

use nix::unistd::{Gid, Uid};
use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, fsync, mkdirat, openat, readlinkat, statat,
        symlinkat, unlinkat,
    },
    io::Errno,
};

/// For its owner alone.
const FOLDER: Mode = Mode::RWXU;
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// An open folder.
pub(super) struct FolderHandle(OwnedFd);

/// Entry of a folder, open if it can be opened.
pub(super) enum FolderEntry {
    Folder(FolderHandle),
    File(File),
    /// With what it says.
    Link(OsString),
    /// None of these, such as a socket.
    Other,
}

impl FolderHandle {
    /// Opens one that a person named: links on the way there are theirs.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Returns the names of its entries, in order.
    pub(super) fn entry_names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens what has a name, and follows no link.
    ///
    /// # Errors
    /// Error of the system; [`io::ErrorKind::InvalidData`] if it became something else meanwhile.
    pub(super) fn open_entry(&self, name: &OsStr) -> io::Result<FolderEntry> {
        // Opening a pipe would wake the process at its other end, so it is not opened only to see that it is one.
        match FileType::from_raw_mode(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
            FileType::Directory => self.open_folder(name).map(FolderEntry::Folder),
            FileType::Symlink => {
                let says = readlinkat(&self.0, name, Vec::new()).map_err(or_changed)?;
                Ok(FolderEntry::Link(OsString::from_vec(says.into_bytes())))
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = File::from(openat(&self.0, name, flags, Mode::empty()).map_err(or_changed)?);
                if file.metadata()?.is_file() { Ok(FolderEntry::File(file)) } else { Err(changed_error()) }
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(FolderEntry::Other),
        }
    }

    pub(super) fn open_folder(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(openat(&self.0, name, flags, Mode::empty()).map_err(or_changed)?))
    }

    /// Makes a folder for its owner alone, whatever the umask.
    pub(super) fn make_folder(&self, name: &OsStr) -> io::Result<Self> {
        mkdirat(&self.0, name, FOLDER)?;
        let made = self.open_folder(name)?;
        fchmod(&made.0, FOLDER)?;
        Ok(made)
    }

    /// Makes a file for its owner alone, whatever the umask.
    pub(super) fn make_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&self.0, name, flags, FILE)?;
        fchmod(&made, FILE)?;
        Ok(made.into())
    }

    pub(super) fn make_link(&self, name: &OsStr, says: &OsStr) -> io::Result<()> {
        Ok(symlinkat(says, &self.0, name)?)
    }

    /// Opens a file that is to be locked. No link is followed.
    pub(super) fn lock_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty()).map_err(or_changed)?.into())
    }

    /// Makes it its owner's alone.
    pub(super) fn close_to_others(&self) -> io::Result<()> {
        Ok(fchmod(&self.0, FOLDER)?)
    }

    /// Takes away what has a name, with all that is in it.
    pub(super) fn remove_tree(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let inside = self.open_folder(name)?;
        inside.entry_names()?.iter().try_for_each(|entry| inside.remove_tree(entry))?;
        self.remove_empty(name)
    }

    /// Takes away a folder in which nothing lies.
    pub(super) fn remove_empty(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Returns the owner's id.
    pub(super) fn owner_uid(&self) -> io::Result<u32> {
        Ok(fstat(&self.0)?.st_uid)
    }

    /// Gives everything in it, and the folder last, to a user and a group.
    pub(super) fn change_owner(&self, (user, group): (Uid, Gid)) -> io::Result<()> {
        use nix::{fcntl::AtFlags, unistd::fchownat};
        for name in self.entry_names()? {
            if let FolderEntry::Folder(inside) = self.open_entry(&name)? {
                inside.change_owner((user, group))?;
            } else {
                fchownat(&self.0, name.as_os_str(), Some(user), Some(group), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(nix::unistd::fchown(&self.0, Some(user), Some(group))?)
    }

    /// Sees that all of it is on the disk.
    pub(super) fn sync_tree(&self) -> io::Result<()> {
        for name in self.entry_names()? {
            match self.open_entry(&name)? {
                FolderEntry::Folder(inside) => inside.sync_tree()?,
                FolderEntry::File(file) => file.sync_all()?,
                FolderEntry::Link(_) | FolderEntry::Other => {}
            }
        }
        self.sync_names()
    }

    /// Sees that the names in it are on the disk.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }
}

impl AsFd for FolderHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Replaces the system's error for a link in the place of a file, which would be misleading.
fn or_changed(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR | Errno::INVAL | Errno::NXIO => changed_error(),
        error => error.into(),
    }
}

fn changed_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it was replaced during the copy")
}
