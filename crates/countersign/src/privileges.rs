//! Owner of a data directory in which root works.
//!
//! The gateway is another user and could not read files that root made there; and a link in a folder of another user must not be
//! followed with the rights of root.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use anyhow::Context as _;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};

/// Returns the user and group of a folder, where this process is root and the folder is not.
pub(crate) fn folder_owner(folder: &Path) -> Option<(Uid, Gid)> {
    let found = fs::metadata(folder).ok().filter(|found| geteuid().is_root() && found.uid() != 0)?;
    Some((Uid::from_raw(found.uid()), Gid::from_raw(found.gid())))
}

/// Goes on as the user to whom `folder` belongs, if root asks. There is no way back.
pub(crate) fn become_owner_of(folder: &Path) -> anyhow::Result<()> {
    let Some((user, group)) = folder_owner(folder) else { return Ok(()) };
    let become_it = || setgroups(&[group]).and_then(|()| setgid(group)).and_then(|()| setuid(user));
    become_it().with_context(|| {
        let folder = folder.display();
        format!("{folder} belongs to user {user}, and this process cannot switch to that user: run this command as that user")
    })
}
