//! Reasons why a guard was not installed or taken away.
//!
//! A failed plan has changed nothing, and a failed installation restores its files. A failed removal stops at the first file that it
//! cannot undo: earlier files are undone, and the receipt stays, so that the next removal does the rest.

use std::{io, path::PathBuf};

/// Failure of a guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file is not what the program would read, or not ours to change.
    #[error("{}: {problem}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The problem, and what is expected.
        problem: String,
    },
    /// The guard is installed already.
    #[error("{program} is guarded already: run `countersign unguard {program}` first")]
    Installed {
        /// Name of the program.
        program: &'static str,
    },
    /// There is no guard.
    #[error("{program} is not guarded")]
    NotInstalled {
        /// Name of the program.
        program: &'static str,
    },
    /// The program has no place for managed settings.
    #[error("{program} has no managed settings that Countersign knows: leave --managed out")]
    NoManagedSettings {
        /// Name of the program.
        program: &'static str,
    },
    /// The file changed between the plan and its execution.
    #[error("{} was changed meanwhile: nothing was written, try again", path.display())]
    ChangedMeanwhile {
        /// The file.
        path: PathBuf,
    },
}

impl GuardError {
    pub(crate) fn of_file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    pub(crate) fn of_settings(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Settings { path: path.into(), problem: problem.into() }
    }
}
