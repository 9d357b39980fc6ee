//! Opens a session file that is there.
//!
//! It must not decide what a context is made of, nor write: an older form is rewritten by the code that continues it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use countersign_core::{digest::Digest, id::SessionId, time::Millis};
use countersign_protocol::omp::session_file::{
    FileForm, SessionEntryBody, SessionFile, SessionFileEntry, SessionHeader, VERSION, read_session_file,
};
use countersign_runtime::tools::regular;
use countersign_view::time::format_iso;

use super::{context_cuts::count_wordless, convert, mark::FileMark};

/// The largest file that is read, in bytes.
pub(super) const LARGEST: u64 = 1 << 30;

/// Maximum length of an id, in bytes: ids are in the records of the log.
const LONGEST_ID: usize = 1024;

/// A file as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file, in the current form.
    pub file: SessionFile,
    /// State of the file on disk.
    pub mark: FileMark,
    /// Length of its whole lines, in bytes: all but a last line that was cut off in the middle.
    pub whole: u64,
    content: FileBytes,
}

impl OpenedFile {
    /// Returns the digest of the first `length` bytes of the file as it was read. `None` if it has not as many.
    pub fn digest_of_prefix(&self, length: u64) -> Option<Digest> {
        if length == self.mark.length {
            return Some(self.mark.digest);
        }
        Some(Digest::hash_bytes(self.content.0.get(..usize::try_from(length).ok()?)?))
    }

    /// Reports the parts of the file that were left out or moved, and the summaries that do not count. `None` if it was
    /// read as it stands.
    pub fn damage_report(&self) -> Option<String> {
        // A last line that was cut off is completed from the log, as after any crash.
        let is_cut = self.whole < self.mark.length;
        let lines = match self.file.unreadable.saturating_sub(usize::from(is_cut)) {
            0 => None,
            1 => Some("1 line could not be read and was left out".to_owned()),
            more => Some(format!("{more} lines could not be read and were left out")),
        };
        let foreign = match self.file.entries.iter().filter(|entry| convert::is_not_understood(entry)).count() {
            0 => None,
            1 => Some("1 entry could not be understood and counts for nothing".to_owned()),
            more => Some(format!("{more} entries could not be understood and count for nothing")),
        };
        let entries = match self.file.reattached {
            0 => None,
            1 => Some("1 entry whose parent is not in the file follows the entry before it".to_owned()),
            more => Some(format!("{more} entries whose parents are not in the file follow the entries before them")),
        };
        let circles = match self.file.looped {
            0 => None,
            1 => Some("1 entry whose parents lead back to it follows the entry before it".to_owned()),
            more => Some(format!("{more} entries whose parents lead back to them follow the entries before them")),
        };
        let parts: Vec<String> = [lines, foreign, entries, circles].into_iter().flatten().collect();
        let path = self.path.display();
        let damage = (!parts.is_empty()).then(|| format!("session file {path} is damaged: {}", parts.join("; ")));
        // It is whole, and another program can read all of it.
        let wordless = match count_wordless(&self.file.entries) {
            0 => return damage,
            1 => "1 compaction has no summary in words; the messages that it stands for are kept in full".to_owned(),
            more => format!(
                "{more} compactions have no summary in words; the messages that they stand for are kept in full"
            ),
        };
        Some(match damage {
            Some(damage) => format!("{damage}; {wordless}"),
            None => format!("session file {path}: {wordless}"),
        })
    }

    /// Returns the number of entries in the first `length` bytes of the file, if it can be determined.
    pub fn entries_within(&self, length: u64) -> Option<usize> {
        if self.file.unreadable > 0 || self.file.form != FileForm::Current {
            return None;
        }
        let prefix = self.content.0.get(..usize::try_from(length).ok()?)?;
        let lines = prefix.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
        let title_line = usize::from(self.file.header.title_line.is_some());
        Some(lines.saturating_sub(1 + title_line))
    }
}

#[derive(Clone, PartialEq)]
struct FileBytes(Bytes);

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Why a file was not opened. It is untouched.
#[derive(Debug, thiserror::Error)]
pub enum SessionFileOpenError {
    /// It cannot be read.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// It is something else, perhaps no file at all.
    #[error("{path} is not a session file", path = .0.display())]
    NotASession(PathBuf),
    /// It would take too much memory.
    #[error("{path} is larger than 1 GiB, the most that a session file may be", path = .0.display())]
    TooLarge(PathBuf),
    /// An id in it, the session's or that of an entry, is of no use.
    #[error("{path}: an id in it is longer than 1024 bytes, the most that one may have", path = .0.display())]
    LongId(PathBuf),
}

/// Reads the file at `path`. `None` if it is not there or empty: a session may begin there. Entries that have no id of their
/// own get one that is the same for the same bytes, so that a file which was imported and not yet rewritten is known again.
///
/// # Errors
/// [`SessionFileOpenError`], with the file untouched.
pub fn open_file(path: &Path) -> Result<Option<OpenedFile>, SessionFileOpenError> {
    let bytes = match regular::read_bytes(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(source) => {
            return match source.kind() {
                io::ErrorKind::NotFound => Ok(None),
                io::ErrorKind::InvalidInput => Err(SessionFileOpenError::NotASession(path.to_owned())),
                io::ErrorKind::FileTooLarge => Err(SessionFileOpenError::TooLarge(path.to_owned())),
                _ => Err(SessionFileOpenError::Io { path: path.to_owned(), source }),
            };
        }
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let (mark, whole) = (FileMark::from_bytes(&bytes), whole_length(&bytes));
    let mut count = 0_u64;
    let fresh = || {
        count += 1;
        let id = Digest::hash_bytes(format!("{} {count}", mark.digest).as_bytes());
        hex::encode(&id.as_bytes()[..4])
    };
    let file = read_session_file(&String::from_utf8_lossy(&bytes), fresh)
        .map_err(|_| SessionFileOpenError::NotASession(path.to_owned()))?;
    let of_entries =
        file.entries.iter().flat_map(|entry| [Some(&entry.id), entry.parent_id.as_ref(), first_kept_id(entry)]);
    if of_entries.flatten().chain([&file.header.id]).any(|id| id.len() > LONGEST_ID) {
        return Err(SessionFileOpenError::LongId(path.to_owned()));
    }
    Ok(Some(OpenedFile { path: path.to_owned(), file, mark, whole, content: FileBytes(bytes.into()) }))
}

/// Returns the entry that a summary keeps as the oldest one.
const fn first_kept_id(entry: &SessionFileEntry) -> Option<&String> {
    match &entry.body {
        SessionEntryBody::Compaction(body) => Some(&body.first_kept_entry_id),
        _ => None,
    }
}

/// Returns the length of the whole lines. A last line without a line end counts if it is complete JSON.
fn whole_length(bytes: &[u8]) -> u64 {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let last = bytes[end..].trim_ascii();
    let is_whole = last.is_empty() || serde_json::from_slice::<serde::de::IgnoredAny>(last).is_ok();
    (if is_whole { bytes.len() } else { end }) as u64
}

/// Returns the first line of a new session.
pub fn new_header(id: &SessionId, at: Millis, cwd: &Path, parent: Option<String>) -> SessionHeader {
    SessionHeader {
        version: VERSION,
        id: id.as_str().to_owned(),
        timestamp: format_iso(at),
        cwd: cwd.to_string_lossy().into_owned(),
        title: None,
        parent_session: parent,
        extra: countersign_protocol::ExtraMembers::default(),
        title_line: None,
    }
}

#[cfg(test)]
mod tests;
