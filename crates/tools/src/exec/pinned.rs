//! Compares the present files with the approved ones, right before a command is handed to the shell.
//!
//! It must not decide what may run: it only reports whether the present state is the approved one.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
};

use countersign_core::call::pins::{PathState, Pins};
use nix::{
    fcntl::{OFlag, open},
    sys::stat::{Mode, fstat},
    unistd::Pid,
};

use super::frame::ShellCommand;
use crate::pins::{self, ShellLine};

/// Reason that a command is not run.
#[derive(Debug)]
pub(super) enum PinnedRunError {
    /// Examination failed.
    Failed(io::Error),
    /// This is not what was approved.
    Changed(String),
}

impl From<io::Error> for PinnedRunError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<nix::Error> for PinnedRunError {
    fn from(error: nix::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Search path of a shell.
#[derive(Debug)]
pub(super) struct SearchPath(Option<String>);

impl SearchPath {
    /// Creates the search path of a new shell: the one that this process was given.
    pub(super) fn new() -> Self {
        Self(std::env::var("PATH").ok())
    }

    /// Sets the path that the shell printed.
    pub(super) fn set_path(&mut self, path: &str) {
        // Without one a shell looks where it was built to look.
        self.0 = Some(path.to_owned()).filter(|path| !path.is_empty());
    }

    /// Makes the path unknown until the shell prints it.
    pub(super) fn forget_path(&mut self) {
        self.0 = None;
    }

    /// Returns the path, if it is known.
    pub(super) fn known_path(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// Compares what is there with `approved`. Gives the folder back by which the shell has to enter it, where it is in another one
/// or the command names it.
pub(super) fn check_pins(
    approved: &Pins,
    run: &ShellCommand,
    shell: Pid,
    path: Option<&str>,
) -> Result<Option<OwnedFd>, PinnedRunError> {
    let folder = run.cwd.as_deref().unwrap_or(&approved.at);
    let given = |name: &str| run.env.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
    let home = given("HOME").or_else(|| std::env::var("HOME").ok());
    let line = ShellLine {
        command: &run.command,
        at: Path::new(&approved.at),
        folder: Path::new(folder),
        home: home.as_deref(),
        path,
    };
    let now = pins::retake_pins(&line, approved);
    if let Some(difference) = approved.describe_change(&now) {
        return Err(PinnedRunError::Changed(difference));
    }
    let PathState::Folder { device, inode } = approved.folder.found else {
        return Err(PinnedRunError::Changed(format!("{folder} was not a folder when the command was approved")));
    };
    // From here on the descriptor counts, even if the name changes.
    let entered = open(Path::new(folder), OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let opened = fstat(&entered)?;
    if (opened.st_dev, opened.st_ino) != (device, inode) {
        return Err(PinnedRunError::Changed(format!("{folder} is not what was approved: another folder has its name")));
    }
    let is_there =
        fs::metadata(format!("/proc/{shell}/cwd")).is_ok_and(|found| (found.dev(), found.ino()) == (device, inode));
    Ok((run.cwd.is_some() || !is_there).then_some(entered))
}
