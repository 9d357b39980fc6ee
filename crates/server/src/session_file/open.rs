//! Opens a session file that is there.
//!
//! It must not decide what a context is made of, nor write: an older form is rewritten by whoever continues it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use countersign_core::{id::SessionId, time::Millis};
use countersign_protocol::omp::session_file::{Header, SessionFile, VERSION, read};

use super::{compare::Mark, time::iso};

/// A file as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, brought up to date.
    pub file: SessionFile,
    /// What is on disk.
    pub mark: Mark,
}

/// Why a file was not opened. It is untouched.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a session file", path = .0.display())]
    NotASession(PathBuf),
}

/// Reads the file at `path`. `None` if it is not there or empty: a session may begin there. `fresh` gives ids to
/// entries that have none.
///
/// # Errors
/// [`OpenError`], with the file untouched.
pub fn open(path: &Path, fresh: impl FnMut() -> String) -> Result<Option<Opened>, OpenError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(OpenError::Io { path: path.to_owned(), source }),
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let file = read(&String::from_utf8_lossy(&bytes), fresh).map_err(|_| OpenError::NotASession(path.to_owned()))?;
    Ok(Some(Opened { path: path.to_owned(), file, mark: Mark::of(&bytes) }))
}

/// The first line of a new session.
pub fn header(id: &SessionId, at: Millis, cwd: &Path, parent: Option<String>) -> Header {
    Header {
        version: VERSION,
        id: id.as_str().to_owned(),
        timestamp: iso(at),
        cwd: cwd.to_string_lossy().into_owned(),
        title: None,
        parent_session: parent,
        extra: countersign_protocol::Extra::default(),
    }
}

#[cfg(test)]
mod tests;
