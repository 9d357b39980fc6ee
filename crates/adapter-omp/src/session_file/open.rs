//! Opens a session file that is there.
//!
//! It must not decide what a context is made of, nor write: an older form is rewritten by the code that continues it.

mod damage_report;
mod repair;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{File, OpenOptions},
    hash::{DefaultHasher, Hasher as _},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use countersign_core::{digest::Digest, id::SessionId, time::Millis};
use countersign_protocol::omp::session_file::{
    EntryLinks, FileForm, SessionEntryBody, SessionFileEntry, SessionHeader, VERSION,
};
use countersign_runtime::tools::regular;
use countersign_view::time::format_iso;
use sha2::{Digest as _, Sha256};

use super::{
    entry_damage::EntryDamage,
    entry_note::EntryNote,
    line_reader::{SessionLine, SessionLineReader},
    line_scanner::{FilePiece, LineScanner, hash_pieces},
    mark::FileMark,
};

/// The largest file that is read, in bytes.
pub(super) const LARGEST: u64 = 1 << 30;

/// Maximum length of an id, in bytes: ids are in the records of the log.
const LONGEST_ID: usize = 1024;

/// A file as it was read. What its entries say stays on disk and is read by position. Only the entries of the forms before version 3
/// are in memory.
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
    /// Number of entries that count without some of their content.
    incomplete: usize,
    name: Option<String>,
    notes: Vec<EntryNote>,
    /// The lines of its entries, unless those are in memory.
    lines: Vec<LinePlace>,
    /// The ids in entries that differ from those in their lines, by place.
    changed: BTreeMap<usize, EntryLinks>,
    /// All entries of a file of a version before 3.
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

    /// Reports whether the last line was cut off in the middle.
    pub const fn is_torn(&self) -> bool {
        self.whole < self.mark.length
    }

    /// Returns what is left of a last line that was cut off in the middle; nothing if it is whole.
    ///
    /// # Errors
    /// [`SessionFileOpenError::Io`]
    pub(super) fn read_torn_end(&self) -> Result<Vec<u8>, SessionFileOpenError> {
        let failed = |source| SessionFileOpenError::Io { path: self.path.clone(), source };
        let mut end = vec![0; usize::try_from(self.mark.length - self.whole).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut end, self.whole).map_err(failed)?;
        Ok(end)
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
        let mut entry = entry.map_err(|error| failed(io::Error::other(error)))?;
        if let Some(links) = self.changed.get(&at) {
            entry.set_links(links);
        }
        Ok(Cow::Owned(entry))
    }

    /// Returns the length of the line of an entry, in bytes; 0 if all entries are in memory.
    pub(crate) fn line_length(&self, at: usize) -> usize {
        if self.entries.is_some() { 0 } else { self.lines[at].piece.length }
    }

    /// Reads the entries of a file of an older form one after the other, as it is to be written again.
    pub(crate) fn older_entries(&self) -> Option<impl Iterator<Item = io::Result<Cow<'_, SessionFileEntry>>>> {
        let read = move |at| {
            self.read_entry(at).map_err(|error| match error {
                SessionFileOpenError::Io { source, .. } => source,
                other => io::Error::other(other),
            })
        };
        (self.form == FileForm::Older).then(|| (0..self.notes.len()).map(read))
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

    /// Returns the number of entries in the first `length` bytes of the file, if it can be determined.
    pub fn entries_within(&self, length: u64) -> Option<usize> {
        if self.unreadable > 0 || self.form != FileForm::Current || length > self.mark.length {
            return None;
        }
        Some(self.lines.partition_point(|line| line.piece.start < length))
    }

    fn note_entry(&mut self, entry: &SessionFileEntry) -> Result<(), SessionFileOpenError> {
        // A parent with a longer id is not in the file, so the entry follows the one before it.
        let ids = [Some(&entry.id), first_kept_id(entry)];
        if ids.into_iter().flatten().any(|id| id.len() > LONGEST_ID) {
            return Err(SessionFileOpenError::LongId(self.path.clone()));
        }
        if let SessionEntryBody::SessionInfo(info) = &entry.body {
            self.name = info.name.clone().filter(|name| !name.trim().is_empty());
        }
        match EntryDamage::from_entry(entry) {
            EntryDamage::None => {}
            EntryDamage::Partial => self.incomplete += 1,
            EntryDamage::Total => self.not_understood += 1,
        }
        self.notes.push(EntryNote::from_entry(entry));
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

/// Reads the file at `path`. `None` if it is not there or blank: a session may begin there. Entries that have no id of their
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
        incomplete: 0,
        name: None,
        notes: Vec::new(),
        lines: Vec::new(),
        changed: BTreeMap::new(),
        entries: None,
        file: file.try_clone().map_err(failed)?,
    };
    let mut scanner = LineScanner::new(file, LARGEST);
    let mut reader = SessionLineReader::default();
    let (mut is_empty, mut is_damaged) = (true, false);
    let mut whole = 0;
    while let Some((piece, line)) = scanner.next_line().map_err(failed)? {
        is_empty &= is_blank_line(line, piece);
        if is_whole_line(line) {
            whole = piece.start + piece.length as u64;
        }
        let place = LinePlace { piece, hash: hash_line(line) };
        match reader.read_line(&String::from_utf8_lossy(line)).map_err(not_a_session)? {
            SessionLine::Blank | SessionLine::Beginning | SessionLine::Older => {}
            SessionLine::Entry(entry, _) => {
                opened.note_entry(&entry)?;
                opened.lines.push(place);
            }
            SessionLine::Unreadable => opened.unreadable += 1,
            SessionLine::Damaged => is_damaged = true,
        }
    }
    if is_empty {
        return Ok(None);
    }
    (opened.mark, opened.whole) = (scanner.mark(), whole);
    opened.header = reader.finish().map_err(not_a_session)?;
    if opened.header.version < VERSION {
        opened.read_whole()?;
    } else if is_damaged {
        opened.read_damaged()?;
    }
    if opened.header.id.len() > LONGEST_ID {
        return Err(SessionFileOpenError::LongId(path.to_owned()));
    }
    Ok(Some(opened))
}

/// Reports whether a line has nothing but white space, after the byte order mark of a file.
fn is_blank_line(line: &[u8], piece: FilePiece) -> bool {
    let mark = b"\xef\xbb\xbf";
    let text = if piece.start == 0 { line.strip_prefix(mark).unwrap_or(line) } else { line };
    text.trim_ascii().is_empty()
}

/// Reports whether the file at `path` is not there or blank, so that a session may begin in it.
///
/// # Errors
/// Errors of the system.
pub(super) fn is_blank(path: &Path) -> io::Result<bool> {
    let file = match regular::open_file(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut lines = LineScanner::new(file, LARGEST);
    while let Some((piece, line)) = lines.next_line()? {
        if !is_blank_line(line, piece) {
            return Ok(false);
        }
    }
    Ok(true)
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
