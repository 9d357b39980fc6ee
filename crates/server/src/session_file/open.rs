//! Opens a session file that is there.
//!
//! It must not decide what a context is made of, nor write: an older form is rewritten by whoever continues it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use countersign_core::{digest::Digest, id::SessionId, time::Millis};
use countersign_protocol::omp::session_file::{Header, SessionFile, VERSION, read};
use countersign_runtime::tools::regular;

use super::{compare::Mark, time::iso};

/// The largest file that is read, in bytes.
pub(super) const LARGEST: u64 = 1 << 30;

/// A file as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, brought up to date.
    pub file: SessionFile,
    /// What is on disk.
    pub mark: Mark,
    /// How much of it is whole lines, in bytes: all but a last line that was cut off in the middle.
    pub whole: u64,
    content: Content,
}

impl Opened {
    /// The digest of the first `length` bytes of the file as it was read. `None` if it has not as many.
    pub fn digest_of_prefix(&self, length: u64) -> Option<Digest> {
        if length == self.mark.length {
            return Some(self.mark.digest);
        }
        Some(Digest::of(self.content.0.get(..usize::try_from(length).ok()?)?))
    }
}

#[derive(Clone, PartialEq)]
struct Content(Bytes);

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
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
    /// It is something else, perhaps no file at all.
    #[error("{path} is not a session file", path = .0.display())]
    NotASession(PathBuf),
    /// It would take too much memory.
    #[error("{path} is larger than 1 GiB, the most that a session file may be", path = .0.display())]
    TooLarge(PathBuf),
}

/// Reads the file at `path`. `None` if it is not there or empty: a session may begin there. `fresh` gives ids to
/// entries that have none.
///
/// # Errors
/// [`OpenError`], with the file untouched.
pub fn open(path: &Path, fresh: impl FnMut() -> String) -> Result<Option<Opened>, OpenError> {
    let bytes = match regular::read(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(source) => {
            return match source.kind() {
                io::ErrorKind::NotFound => Ok(None),
                io::ErrorKind::InvalidInput => Err(OpenError::NotASession(path.to_owned())),
                io::ErrorKind::FileTooLarge => Err(OpenError::TooLarge(path.to_owned())),
                _ => Err(OpenError::Io { path: path.to_owned(), source }),
            };
        }
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let file = read(&String::from_utf8_lossy(&bytes), fresh).map_err(|_| OpenError::NotASession(path.to_owned()))?;
    let (mark, whole) = (Mark::of(&bytes), whole(&bytes));
    Ok(Some(Opened { path: path.to_owned(), file, mark, whole, content: Content(bytes.into()) }))
}

/// A last line without a line end counts if nothing of it is missing.
fn whole(bytes: &[u8]) -> u64 {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = bytes[end..].trim_ascii();
    let is_whole = last.is_empty() || serde_json::from_slice::<serde::de::IgnoredAny>(last).is_ok();
    (if is_whole { bytes.len() } else { end }) as u64
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
