//! Opens a session file that is there.
//!
//! It must not decide what a context is made of, nor write: an older form is rewritten by the code that continues it.

use std::{
    borrow::Cow,
    fs::{File, OpenOptions},
    hash::{DefaultHasher, Hasher as _},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use countersign_core::{digest::Digest, id::SessionId, time::Millis};
use countersign_protocol::omp::session_file::{
    FileForm, SessionEntryBody, SessionFileEntry, SessionHeader, VERSION, read_session_file,
};
use countersign_runtime::tools::regular;
use countersign_view::time::format_iso;
use sha2::{Digest as _, Sha256};

use super::{
    context_cuts::count_wordless,
    convert,
    entry_note::{EntryNote, places_on_last_path},
    line_reader::{SessionLine, SessionLineReader},
    line_scanner::{FilePiece, LineScanner, hash_pieces},
    mark::FileMark,
};

/// The largest file that is read, in bytes.
pub(super) const LARGEST: u64 = 1 << 30;

/// Maximum length of an id, in bytes: ids are in the records of the log.
const LONGEST_ID: usize = 1024;

/// A file as it was read. What its entries say stays on disk and is read by position, unless lines of it mean something else than
/// they say: then its entries are in memory.
#[derive(Debug)]
pub struct OpenedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// The header of the file, in the current form.
    pub header: SessionHeader,
    /// Form of the file on disk.
    pub form: FileForm,
    /// State of the file on disk.
    pub mark: FileMark,
    /// Length of its whole lines, in bytes: all but a last line that was cut off in the middle.
    pub whole: u64,
    /// Number of lines that could not be read and are no entries.
    pub unreadable: usize,
    /// Number of entries that got another parent, as theirs is not in the file.
    pub reattached: usize,
    /// Number of circles of parents that were cut.
    pub looped: usize,
    not_understood: usize,
    name: Option<String>,
    notes: Vec<EntryNote>,
    /// The lines after the header. Of a file that was read by lines, only those of its entries.
    lines: Vec<LinePlace>,
    /// All entries, if the file could not be read by lines.
    entries: Option<Vec<SessionFileEntry>>,
    file: File,
}

/// Place of a line, and what it is known again by.
#[derive(Clone, Copy, Debug)]
struct LinePlace {
    piece: FilePiece,
    hash: u64,
}

impl OpenedFile {
    /// Returns what is known of the entries of the file, in their order.
    pub fn notes(&self) -> &[EntryNote] {
        &self.notes
    }

    /// Reads the entry at a place among [`Self::notes`].
    ///
    /// # Errors
    /// [`SessionFileOpenError::Io`], also if the line has changed since.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn read_entry(&self, at: usize) -> Result<Cow<'_, SessionFileEntry>, SessionFileOpenError> {
        if let Some(entries) = &self.entries {
            return Ok(Cow::Borrowed(&entries[at]));
        }
        let LinePlace { piece, hash } = self.lines[at];
        let failed = |source| SessionFileOpenError::Io { path: self.path.clone(), source };
        let mut line = vec![0; piece.length];
        self.file.read_exact_at(&mut line, piece.start).map_err(failed)?;
        if hash_line(&line) != hash {
            return Err(failed(changed()));
        }
        let entry = SessionFileEntry::parse(&String::from_utf8_lossy(&line));
        entry.map(Cow::Owned).map_err(|error| failed(io::Error::other(error)))
    }

    /// Returns the length of the line of an entry, in bytes; 0 if all entries are in memory.
    pub(crate) fn line_length(&self, at: usize) -> usize {
        if self.entries.is_some() { 0 } else { self.lines[at].piece.length }
    }

    /// Returns the entries of a file of an older form, which is to be written again.
    pub(crate) fn older_entries(&self) -> Option<&[SessionFileEntry]> {
        self.entries.as_deref().filter(|_| self.form == FileForm::Older)
    }

    /// Returns the name that entries give the session; related programs write one there instead of into the header.
    pub(crate) fn name_in_entries(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the name of the session.
    pub(crate) fn session_name(&self) -> Option<String> {
        let title = self.header.title.as_deref().filter(|title| !title.trim().is_empty());
        title.or_else(|| self.name_in_entries()).map(|name| name.trim().to_owned())
    }

    /// Returns the digest of the first `length` bytes of the file as it was read. `None` if it has not as many, or if they cannot be
    /// read any more.
    pub fn digest_of_prefix(&self, length: u64) -> Option<Digest> {
        if length == self.mark.length {
            return Some(self.mark.digest);
        }
        if length > self.mark.length {
            return None;
        }
        let mut hash = Sha256::new();
        hash_pieces(&self.file, 0..length, &mut hash).ok()?;
        Some(Digest::from_bytes(hash.finalize().into()))
    }

    /// Reports the parts of the file that were left out or moved, and the summaries that do not count. `None` if it was
    /// read as it stands.
    pub fn damage_report(&self) -> Option<String> {
        // A last line that was cut off is completed from the log, as after any crash.
        let is_cut = self.whole < self.mark.length;
        let lines = match self.unreadable.saturating_sub(usize::from(is_cut)) {
            0 => None,
            1 => Some("1 line could not be read and was left out".to_owned()),
            more => Some(format!("{more} lines could not be read and were left out")),
        };
        let foreign = match self.not_understood {
            0 => None,
            1 => Some("1 entry could not be understood and counts for nothing".to_owned()),
            more => Some(format!("{more} entries could not be understood and count for nothing")),
        };
        let entries = match self.reattached {
            0 => None,
            1 => Some("1 entry whose parent is not in the file follows the entry before it".to_owned()),
            more => Some(format!("{more} entries whose parents are not in the file follow the entries before them")),
        };
        let circles = match self.looped {
            0 => None,
            1 => Some("1 entry whose parents lead back to it follows the entry before it".to_owned()),
            more => Some(format!("{more} entries whose parents lead back to them follow the entries before them")),
        };
        let parts: Vec<String> = [lines, foreign, entries, circles].into_iter().flatten().collect();
        let path = self.path.display();
        let damage = (!parts.is_empty()).then(|| format!("session file {path} is damaged: {}", parts.join("; ")));
        // It is whole, and another program can read all of it.
        let wordless = match count_wordless(places_on_last_path(&self.notes).map(|at| self.notes[at].cut)) {
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
        if self.unreadable > 0 || self.form != FileForm::Current || length > self.mark.length {
            return None;
        }
        Some(self.lines.partition_point(|line| line.piece.start < length))
    }

    fn note_entry(&mut self, entry: &SessionFileEntry) -> Result<(), SessionFileOpenError> {
        let ids = [Some(&entry.id), entry.parent_id.as_ref(), first_kept_id(entry)];
        if ids.into_iter().flatten().any(|id| id.len() > LONGEST_ID) {
            return Err(SessionFileOpenError::LongId(self.path.clone()));
        }
        if let SessionEntryBody::SessionInfo(info) = &entry.body {
            self.name = info.name.clone().filter(|name| !name.trim().is_empty());
        }
        self.not_understood += usize::from(convert::is_not_understood(entry));
        self.notes.push(EntryNote::from_entry(entry));
        Ok(())
    }

    /// Reads all entries into memory.
    fn read_whole(&mut self) -> Result<(), SessionFileOpenError> {
        let failed = |source| SessionFileOpenError::Io { path: self.path.clone(), source };
        let mut bytes = vec![0; usize::try_from(self.mark.length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        if FileMark::from_bytes(&bytes) != self.mark {
            return Err(failed(changed()));
        }
        let (digest, mut count) = (self.mark.digest, 0_u64);
        let fresh = || {
            count += 1;
            let id = Digest::hash_bytes(format!("{digest} {count}").as_bytes());
            hex::encode(&id.as_bytes()[..4])
        };
        let file = read_session_file(&String::from_utf8_lossy(&bytes), fresh)
            .map_err(|_| SessionFileOpenError::NotASession(self.path.clone()))?;
        drop(bytes);
        (self.header, self.form, self.unreadable) = (file.header, file.form, file.unreadable);
        (self.reattached, self.looped) = (file.reattached, file.looped);
        (self.not_understood, self.name) = (0, None);
        self.notes.clear();
        for entry in &file.entries {
            self.note_entry(entry)?;
        }
        self.entries = Some(file.entries);
        Ok(())
    }
}

fn changed() -> io::Error {
    io::Error::other("another program changed it while it was read")
}

fn hash_line(line: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    hash.write(line);
    hash.finish()
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
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::InvalidInput => SessionFileOpenError::NotASession(path.to_owned()),
        io::ErrorKind::FileTooLarge => SessionFileOpenError::TooLarge(path.to_owned()),
        _ => SessionFileOpenError::Io { path: path.to_owned(), source },
    };
    let not_a_session = |_| SessionFileOpenError::NotASession(path.to_owned());
    let file = match regular::open_file(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if file.metadata().map_err(failed)?.len() > LARGEST {
        return Err(SessionFileOpenError::TooLarge(path.to_owned()));
    }
    let mut opened = OpenedFile {
        path: path.to_owned(),
        header: new_header(&SessionId::new(""), Millis(0), Path::new(""), None),
        form: FileForm::Current,
        mark: FileMark::from_bytes(b""),
        whole: 0,
        unreadable: 0,
        reattached: 0,
        looped: 0,
        not_understood: 0,
        name: None,
        notes: Vec::new(),
        lines: Vec::new(),
        entries: None,
        file: file.try_clone().map_err(failed)?,
    };
    let mut scanner = LineScanner::new(file, LARGEST);
    let mut reader = SessionLineReader::default();
    let (mut is_empty, mut needs_whole_file) = (true, false);
    let mut whole = 0;
    while let Some((piece, line)) = scanner.next_line().map_err(failed)? {
        is_empty &= line.trim_ascii().is_empty();
        if is_whole_line(line) {
            whole = piece.start + piece.length as u64;
        }
        let place = LinePlace { piece, hash: hash_line(line) };
        match reader.read_line(&String::from_utf8_lossy(line)).map_err(not_a_session)? {
            SessionLine::Blank | SessionLine::Beginning => {}
            SessionLine::Entry(entry) => {
                opened.note_entry(&entry)?;
                opened.lines.push(place);
            }
            SessionLine::Unreadable => opened.unreadable += 1,
            SessionLine::NeedsWholeFile => {
                needs_whole_file = true;
                opened.lines.push(place);
            }
        }
    }
    if is_empty {
        return Ok(None);
    }
    (opened.mark, opened.whole) = (scanner.mark(), whole);
    opened.header = reader.finish().map_err(not_a_session)?;
    if needs_whole_file || opened.header.version < VERSION {
        opened.read_whole()?;
    }
    if opened.header.id.len() > LONGEST_ID {
        return Err(SessionFileOpenError::LongId(path.to_owned()));
    }
    Ok(Some(opened))
}

/// Reports whether nothing of a line is missing. A last line without a line end counts if it is complete JSON.
fn is_whole_line(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    line.ends_with(b"\n") || text.is_empty() || serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns the entry that a summary keeps as the oldest one.
const fn first_kept_id(entry: &SessionFileEntry) -> Option<&String> {
    match &entry.body {
        SessionEntryBody::Compaction(body) => Some(&body.first_kept_entry_id),
        _ => None,
    }
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
