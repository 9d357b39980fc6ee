//! A folder that is made next to its final place, and moved there when it is whole.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use nix::unistd::geteuid;
use rustix::{
    fs::{FlockOperation, RenameFlags, flock, renameat, renameat_with},
    io::Errno,
};

use super::{
    cannot, display_path,
    folder::{FolderEntry, FolderHandle},
};

/// Name, in the staging folder, of the entry that will have the target's name.
const WHOLE: &str = "whole";
/// Mark that lets another process remove the rest. It is next to the content, not in it: otherwise it would have to go a moment before
/// the end, and an interruption in that moment would leave a folder without an owner.
const MARK: &str = "countersign.part";
const MARK_SAYS: &[u8] = b"A backup or restore is in progress or was interrupted. The next one removes this folder.\n";

/// A staging folder. A second process with the same target does not wait: it is refused.
pub(super) struct StagingFolder {
    /// Folder in which the target will be.
    above: FolderHandle,
    target: PathBuf,
    /// The name of the folder under way.
    name: OsString,
    /// That folder. It is locked until this is dropped, and let go of by the system when the process ends.
    own: FolderHandle,
    /// Folder that will be the target.
    folder: FolderHandle,
    path: PathBuf,
}

impl StagingFolder {
    /// Makes an empty one for `target`, and removes the remains of an attempt that was interrupted.
    ///
    /// # Errors
    /// Another entry has its name: a foreign link or folder would be emptied with this process's rights.
    pub(super) fn for_target(target: &Path) -> anyhow::Result<Self> {
        let target = std::path::absolute(target)?;
        let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
            bail!("{} cannot be the name of a folder", display_path(&target));
        };
        fs::create_dir_all(above).with_context(|| cannot("create", above))?;
        let part = OsString::from(format!(".{}.part", name.to_string_lossy()));
        let path = above.join(&part);
        let above = FolderHandle::open(above).with_context(|| cannot("open", above))?;
        let own = match above.make_folder(&part) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match above.open_entry(&part) {
                Ok(FolderEntry::Folder(found)) => found,
                Ok(FolderEntry::File(_) | FolderEntry::Link(_) | FolderEntry::Other) | Err(_) => {
                    bail!(foreign_folder_text(&path))
                }
            },
            made => made.with_context(|| cannot("create", &target))?,
        };
        match flock(&own, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => bail!("another process is creating {}", display_path(&target)),
            Err(error) => return Err(io::Error::from(error)).with_context(|| cannot("create", &target)),
        }
        if !is_ours(&own).with_context(|| cannot("create", &target))? {
            bail!(foreign_folder_text(&path));
        }
        let folder = begin_staging(&own).with_context(|| cannot("create", &target))?;
        Ok(Self { above, target, name: part, own, folder, path: path.join(WHOLE) })
    }

    /// Returns the folder that will be the target.
    pub(super) const fn staged_folder(&self) -> &FolderHandle {
        &self.folder
    }

    /// Returns its path, for functions that only take a path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn target_name(&self) -> &OsStr {
        self.target.file_name().unwrap_or_default()
    }

    /// Gives it its name. Nothing, or an empty folder, may be there.
    pub(super) fn put_in_place(self) -> anyhow::Result<()> {
        self.folder.sync_tree().with_context(|| cannot("write", &self.target))?;
        let renamed = renameat(&self.own, WHOLE, &self.above, self.target_name()).map_err(io::Error::from);
        renamed.with_context(|| cannot("create", &self.target))?;
        self.above.sync_names().with_context(|| cannot("write", &self.target))
    }

    /// Moves it to its name, and the existing entry to the name `old`, next to it. There is no moment without either.
    pub(super) fn put_in_place_of(self, old: &OsStr) -> anyhow::Result<()> {
        self.folder.sync_tree().with_context(|| cannot("write", &self.target))?;
        // It takes that name first: what was there would otherwise lie for a moment where the next attempt clears away.
        renameat_with(&self.own, WHOLE, &self.above, old, RenameFlags::NOREPLACE)
            .map_err(io::Error::from)
            .with_context(|| cannot("replace", &self.target))?;
        if let Err(error) = renameat_with(&self.above, old, &self.above, self.target_name(), RenameFlags::EXCHANGE) {
            let back = renameat(&self.above, old, &self.own, WHOLE).map_err(io::Error::from);
            back.with_context(|| cannot("replace", &self.target))?;
            let what = format!("{} could not replace the existing folder", display_path(&self.target));
            return Err(io::Error::from(error)).context(what);
        }
        self.above.sync_names().with_context(|| cannot("write", &self.target))
    }
}

impl Drop for StagingFolder {
    /// Removes the folder: one that failed would keep the room that it took.
    fn drop(&mut self) {
        // Entries that cannot be removed now are removed by the next attempt.
        let _ = clear_staging(&self.own).and_then(|()| self.above.remove_empty(&self.name));
    }
}

fn foreign_folder_text(path: &Path) -> String {
    let path = display_path(path);
    format!("{path} exists and was not created by this program, which leaves it alone: move it elsewhere")
}

/// Reports whether a folder is an earlier attempt's. An empty one is the rest of an attempt that ended before it could mark it.
fn is_ours(folder: &FolderHandle) -> io::Result<bool> {
    if folder.owner_uid()? != geteuid().as_raw() {
        return Ok(false);
    }
    let names = folder.entry_names()?;
    let is_marked = matches!(folder.open_entry(MARK.as_ref()), Ok(FolderEntry::File(_)));
    Ok(names.is_empty() || (is_marked && names.iter().all(|name| name == MARK || name == WHOLE)))
}

fn begin_staging(own: &FolderHandle) -> io::Result<FolderHandle> {
    own.close_to_others()?;
    clear_staging(own)?;
    own.make_file(MARK.as_ref())?.write_all(MARK_SAYS)?;
    own.make_folder(WHOLE.as_ref())
}

/// Takes away what lies in a folder under way, the mark last.
fn clear_staging(own: &FolderHandle) -> io::Result<()> {
    own.remove_tree(WHOLE.as_ref())?;
    own.remove_tree(MARK.as_ref())
}
