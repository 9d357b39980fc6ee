//! A copy of many files, for the owner of the copy alone.
//!
//! It must not trust that an entry of a workspace is the same a moment later: a program there may put a link in the place of a file.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
};

use anyhow::{Context as _, bail};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use super::{
    cannot, display_path,
    folder::{FolderEntry, FolderHandle},
};

/// Maximum depth of folders. Each that is open on the way takes two descriptors, and a process usually has a thousand.
const DEPTH: usize = 128;
/// Maximum total size of holes in copied files. They take no room, but are read for every digest, and the author of a file can make them
/// as large as the limit.
const HOLES: u64 = 16 << 30;

/// Why a pipe, a socket or a device has no copy.
const NO_FILE: &str = "it is not a file, folder or symlink";

/// State of a copy.
pub(super) struct CopyJob {
    /// Device and number of files that are not to be in it, wherever they lie.
    pub(super) leave: Vec<(u64, u64)>,
    /// Entries that could not be copied, if that was allowed.
    pub(super) missed: Vec<String>,
    /// Remaining size of holes.
    holes: u64,
}

/// Selects whether a copy may omit entries that cannot be read or named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyPolicy {
    All,
    WhatCanBeRead,
}

/// An entry of a folder.
pub(super) struct CopySource<'a> {
    pub(super) folder: &'a FolderHandle,
    pub(super) name: &'a OsStr,
    /// Path for messages. Nothing is opened by it.
    pub(super) path: PathBuf,
}

/// Folder with the entries to copy, and the folder that they go to.
struct FolderCopy {
    from: FolderHandle,
    names: Vec<OsString>,
    to: FolderHandle,
}

impl CopyJob {
    pub(super) fn excluding_files(leave: Vec<(u64, u64)>) -> Self {
        Self { leave, missed: Vec::new(), holes: HOLES }
    }

    /// Creates the job of a restore: its files were copied before, and are read in any case.
    pub(super) fn for_restore() -> Self {
        Self { leave: Vec::new(), missed: Vec::new(), holes: u64::MAX }
    }

    /// Copies a file, a link or a folder with all that is in it. What is none of these, such as a socket, is left out and named in
    /// [`CopyJob::missed`]; what goes away meanwhile is left out too: the folder may be in use.
    pub(super) fn copy_entry(
        &mut self,
        from: CopySource<'_>,
        to: &FolderHandle,
        name: &OsStr,
        need: CopyPolicy,
    ) -> anyhow::Result<()> {
        self.copy_at(from, to, name, need, 0)
    }

    fn copy_at(
        &mut self,
        from: CopySource<'_>,
        to: &FolderHandle,
        name: &OsStr,
        need: CopyPolicy,
        depth: usize,
    ) -> anyhow::Result<()> {
        if from.name.to_str().is_none() {
            if need == CopyPolicy::All {
                bail!("{} has a name that is not valid UTF-8", display_path(&from.path));
            }
            self.missed.push(format!("{}: its name is not valid UTF-8", display_path(&from.path)));
            return Ok(());
        }
        let inside = match self.copy_one(&from, to, name, need, depth) {
            Ok(Some(inside)) => inside,
            Ok(None) => return Ok(()),
            Err(error) if need == CopyPolicy::WhatCanBeRead && is_of_one_entry(&error) => {
                self.missed.push(format!("{}: {error}", display_path(&from.path)));
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| cannot("copy", &from.path)),
        };
        for name in &inside.names {
            let source = CopySource { folder: &inside.from, name, path: from.path.join(name) };
            self.copy_at(source, &inside.to, name, need, depth + 1)?;
        }
        Ok(())
    }

    /// Copies a file or a link, or makes a folder and gives what is to be in it.
    fn copy_one(
        &mut self,
        from: &CopySource<'_>,
        to: &FolderHandle,
        name: &OsStr,
        need: CopyPolicy,
        depth: usize,
    ) -> io::Result<Option<FolderCopy>> {
        match from.folder.open_entry(from.name)? {
            FolderEntry::Link(says) => to.make_link(name, &says)?,
            FolderEntry::Folder(_) if depth > DEPTH => {
                let why = format!("it is more than {DEPTH} folders deep");
                return Err(io::Error::new(io::ErrorKind::InvalidFilename, why));
            }
            FolderEntry::Folder(inside) => {
                let names = inside.entry_names()?;
                return Ok(Some(FolderCopy { from: inside, names, to: to.make_folder(name)? }));
            }
            FolderEntry::File(file) => {
                let found = file.metadata()?;
                if !self.leave.contains(&(found.dev(), found.ino())) {
                    self.allow_holes(&file, need)?;
                    copy_file(&file, to, name)?;
                }
            }
            FolderEntry::Other => self.missed.push(format!("{}: {NO_FILE}", display_path(&from.path))),
        }
        Ok(None)
    }

    fn allow_holes(&mut self, file: &File, need: CopyPolicy) -> io::Result<()> {
        let found = file.metadata()?;
        // Most files have none.
        if need == CopyPolicy::All || found.blocks().saturating_mul(512) >= found.len() {
            return Ok(());
        }
        let mut holes = found.len();
        for_each_extent(file, found.len(), |from, to| {
            holes -= to - from;
            Ok(to)
        })?;
        let Some(left) = self.holes.checked_sub(holes) else {
            let why = format!(
                "{holes} bytes of it are holes, which exceeds the remaining limit ({} GiB for all files)",
                HOLES >> 30
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        };
        self.holes = left;
        Ok(())
    }
}

/// Reports whether an error concerns this entry, and not the disk.
fn is_of_one_entry(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidFilename, InvalidInput, NotFound, PermissionDenied};
    matches!(error.kind(), FileTooLarge | InvalidData | InvalidFilename | InvalidInput | NotFound | PermissionDenied)
}

/// Copies what a file holds at this moment; what is a hole stays one.
pub(super) fn copy_file(source: &File, to: &FolderHandle, name: &OsStr) -> io::Result<()> {
    let made = to.make_file(name)?;
    let done = copy_content(source, &made);
    if done.is_err() {
        // A partial file must not remain as if it were whole. The cause of the failure is reported.
        let _ = to.remove_tree(name);
    }
    done
}

fn copy_content(mut source: &File, mut made: &File) -> io::Result<()> {
    let found = source.metadata()?;
    // Appended data would never end if a program keeps on writing.
    for_each_extent(source, found.len(), |from, to| {
        source.seek(io::SeekFrom::Start(from))?;
        made.seek(io::SeekFrom::Start(from))?;
        Ok(from + io::copy(&mut source.take(to - from), &mut made)?)
    })?;
    made.set_len(found.len().min(source.metadata()?.len()))?;
    // The owner's right to execute stays; the rest of the modes is not copied.
    made.set_permissions(Permissions::from_mode(0o600 | (found.permissions().mode() & 0o100)))
}

/// Calls `each` with the beginning and end of every part of the first `size` bytes that is no hole, until it says that it ended before.
fn for_each_extent(file: &File, size: u64, mut each: impl FnMut(u64, u64) -> io::Result<u64>) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from.min(size),
            Err(Errno::NXIO) => return Ok(()),
            // The file system knows nothing of holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let to = match seek(file, SeekFrom::Hole(from)) {
            Ok(to) => to.min(size),
            // It was cut meanwhile.
            Err(Errno::NXIO) => return Ok(()),
            Err(Errno::INVAL) => size,
            Err(error) => return Err(error.into()),
        };
        if from < to && each(from, to)? < to {
            return Ok(());
        }
        at = to;
    }
    Ok(())
}
