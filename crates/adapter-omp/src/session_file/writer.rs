//! Writes a session file: nothing before the first answer of a model, then only at its end.
//!
//! It must not know the engine; it gets entries to write and returns the state of the file.

use std::{
    borrow::Cow,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use countersign_core::{digest::Digest, time::Millis};
use countersign_files::replace::{FileAccess, replace_file, replace_file_with};
use countersign_protocol::{
    encode_line,
    omp::{
        AgentMessage,
        session_file::{SessionEntryBody, SessionFileEntry, SessionHeader},
    },
};
use countersign_runtime::tools::regular;
use countersign_view::time::format_iso;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    BlobStore, FileMark,
    blobs::may_need_blobs,
    line_scanner::{LineScanner, hash_pieces},
    open::{LARGEST, is_blank},
};

/// Why nothing was written. What was to be written is kept and can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum SessionFileWriteError {
    /// The file is not as we left it: read it and import what is new.
    #[error("{path} was changed by somebody else", path = .0.display())]
    Changed(PathBuf),
    /// There is a file already where a session begins.
    #[error("{path} exists already", path = .0.display())]
    Exists(PathBuf),
    /// The system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or the blob's folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The one who writes a session file.
#[derive(Debug)]
pub struct EntryWriter {
    path: PathBuf,
    blobs: BlobStore,
    header: SessionHeader,
    /// Lines that are not in the file yet, the header's not among them.
    waiting: Vec<Vec<u8>>,
    file: FileState,
    unanswered: UnansweredPolicy,
    /// True if a waiting entry is a message or an action, and not only the choice of a model.
    is_worth_a_file: bool,
    /// True if the file does not end with a line break, which the next entry needs before it.
    lacks_line_break: bool,
}

/// The fate of a session that ends before a model has answered in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnansweredPolicy {
    /// There is no file of it.
    #[default]
    Left,
    /// The file is made when it ends, if it has a name or a message or an action.
    Written,
}

#[derive(Debug)]
enum FileState {
    /// No model has answered: there is no file.
    Held,
    /// The next flush makes the file.
    Due,
    /// The file is there; the length and the running digest of what it holds.
    There { length: u64, hash: Sha256 },
}

impl EntryWriter {
    /// Begins a session at `path`. Nothing is on disk before a model has answered and [`Self::flush`] is called.
    pub const fn new(path: PathBuf, header: SessionHeader, blobs: BlobStore) -> Self {
        Self {
            path,
            blobs,
            header,
            waiting: Vec::new(),
            file: FileState::Held,
            unanswered: UnansweredPolicy::Left,
            is_worth_a_file: false,
            lacks_line_break: false,
        }
    }

    /// Creates the writer of the file at `path`, if its length and digest are those of `mark`. Writes nothing.
    ///
    /// # Errors
    /// [`SessionFileWriteError::Io`]; [`SessionFileWriteError::Changed`] if the file is another one by now.
    pub fn take_over(
        path: PathBuf,
        header: SessionHeader,
        blobs: BlobStore,
        mark: FileMark,
    ) -> Result<Self, SessionFileWriteError> {
        let failed = |source| SessionFileWriteError::Io { path: path.clone(), source };
        let file = regular::open_file(&path, OpenOptions::new().read(true)).map_err(failed)?;
        let hash = hash_unchanged(&file, mark, mark.length).map_err(failed)?;
        let Some(hash) = hash else { return Err(SessionFileWriteError::Changed(path)) };
        Ok(Self { file: FileState::There { length: mark.length, hash }, ..Self::new(path, header, blobs) })
    }

    /// Continues the file at `path`, which is still as `mark` says and of which the first `keep` bytes count; the bytes after them (a
    /// torn line) are cut off. A missing line break is added with the next entry.
    ///
    /// # Errors
    /// [`SessionFileWriteError::Io`]; [`SessionFileWriteError::Changed`] if the file is another one by now. It is then untouched.
    pub fn resume(
        path: PathBuf,
        header: SessionHeader,
        blobs: BlobStore,
        mark: FileMark,
        keep: u64,
    ) -> Result<Self, SessionFileWriteError> {
        let failed = |source| SessionFileWriteError::Io { path: path.clone(), source };
        let file = regular::open_file(&path, OpenOptions::new().read(true)).map_err(failed)?;
        let hash = hash_unchanged(&file, mark, keep).map_err(failed)?;
        let Some(hash) = hash else { return Err(SessionFileWriteError::Changed(path)) };
        if mark.length > keep {
            let file = regular::open_file(&path, OpenOptions::new().write(true)).map_err(failed)?;
            file.set_len(keep).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        let mut last = [b'\n'];
        if let Some(end) = keep.checked_sub(1) {
            file.read_exact_at(&mut last, end).map_err(failed)?;
        }
        let file = FileState::There { length: keep, hash };
        Ok(Self { file, lacks_line_break: last != [b'\n'], ..Self::new(path, header, blobs) })
    }

    /// Returns the same, for a session of which this becomes if no model ever answers.
    #[must_use]
    pub fn when_unanswered(self, unanswered: UnansweredPolicy) -> Self {
        Self { unanswered, ..self }
    }

    /// Notes that the session ends. True if the next flush makes a file that there would not be otherwise.
    pub fn close(&mut self) -> bool {
        let is_worth = self.is_worth_a_file || self.header.title.is_some();
        let makes = matches!(self.file, FileState::Held) && self.unanswered == UnansweredPolicy::Written && is_worth;
        if makes {
            self.file = FileState::Due;
        }
        makes
    }

    /// Returns the file, whether or not it is there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the header that the file has, or will have.
    pub const fn header(&self) -> &SessionHeader {
        &self.header
    }

    /// Returns the current state of the file; `None` while there is none.
    pub fn current_mark(&self) -> Option<FileMark> {
        match &self.file {
            FileState::Held | FileState::Due => None,
            FileState::There { length, hash } => {
                Some(FileMark { length: *length, digest: Digest::from_bytes(hash.clone().finalize().into()) })
            }
        }
    }

    /// Adds an entry. It is in the file after the next [`Self::flush`] that finds an answer of a model among all added
    /// entries.
    ///
    /// # Errors
    /// [`SessionFileWriteError::Io`] if an image of it cannot be stored outside; it is then not added.
    pub fn push(&mut self, entry: &SessionFileEntry) -> Result<(), SessionFileWriteError> {
        let failed = |source| SessionFileWriteError::Io { path: self.path.clone(), source };
        let mut line = self.encode_entry(entry).map_err(failed)?;
        if std::mem::take(&mut self.lacks_line_break) {
            line.insert(0, b'\n');
        }
        self.waiting.push(line);
        self.is_worth_a_file |= !is_setting(entry);
        if matches!(self.file, FileState::Held) && is_answer(entry) {
            self.file = FileState::Due;
        }
        Ok(())
    }

    /// Writes what waits, in one piece. Gives what the file was after each line of it; nothing where nothing was
    /// written.
    ///
    /// It does not wait for the disk: a power cut may take the end, which is then found when it is opened. The first
    /// lines come all or not at all.
    ///
    /// # Errors
    /// [`SessionFileWriteError`]; waiting entries still wait.
    pub fn flush(&mut self) -> Result<Vec<FileMark>, SessionFileWriteError> {
        let failed = |source| SessionFileWriteError::Io { path: self.path.clone(), source };
        match &self.file {
            FileState::Held => return Ok(Vec::new()),
            FileState::Due => {
                if !is_blank(&self.path).map_err(failed)? {
                    return Err(SessionFileWriteError::Exists(self.path.clone()));
                }
                let mut all = vec![self.header.encode()];
                all.extend(self.waiting.iter().cloned());
                replace_file(&self.path, &all.concat(), FileAccess::Private).map_err(failed)?;
                let (marks, file) = marks_after(0, Sha256::new(), &all);
                self.file = file;
                self.waiting.clear();
                return Ok(marks);
            }
            FileState::There { .. } if self.waiting.is_empty() => return Ok(Vec::new()),
            FileState::There { .. } => {}
        }
        let FileState::There { length, hash } = &self.file else { return Ok(Vec::new()) };
        let mut file =
            regular::open_file(&self.path, OpenOptions::new().append(true)).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => SessionFileWriteError::Changed(self.path.clone()),
                _ => failed(source),
            })?;
        if file.metadata().map_err(failed)?.len() != *length {
            return Err(SessionFileWriteError::Changed(self.path.clone()));
        }
        if let Err(source) = file.write_all(&self.waiting.concat()) {
            // Half a line must not stay before the next try.
            let _ = file.set_len(*length);
            return Err(failed(source));
        }
        let (marks, file) = marks_after(*length, hash.clone(), &self.waiting);
        self.file = file;
        self.waiting.clear();
        Ok(marks)
    }

    /// Sets the title of the session, as it was named `at` a time. An existing file is replaced as a whole; returns its state after each
    /// line, as after a rewrite all earlier marks are void.
    ///
    /// # Errors
    /// [`SessionFileWriteError`]; the file then has its old name, and the writer too.
    pub fn set_title(&mut self, title: Option<String>, at: Millis) -> Result<Vec<FileMark>, SessionFileWriteError> {
        let mut header = self.header.clone();
        header.set_title(title, &format_iso(at));
        self.replace_header(header)
    }

    /// Puts `header`, which has a title line if the file's has one, in place of the file's. An existing file is replaced as a whole;
    /// returns its state after each line, as after a rewrite all earlier marks are void.
    ///
    /// # Errors
    /// [`SessionFileWriteError`]; the file and the writer then have the old header.
    pub fn replace_header(&mut self, header: SessionHeader) -> Result<Vec<FileMark>, SessionFileWriteError> {
        let old = std::mem::replace(&mut self.header, header);
        let written = self.rewrite_header();
        if written.is_err() {
            self.header = old;
        }
        written
    }

    fn rewrite_header(&mut self) -> Result<Vec<FileMark>, SessionFileWriteError> {
        let FileState::There { length, hash } = &self.file else { return Ok(Vec::new()) };
        let failed = |source| SessionFileWriteError::Io { path: self.path.clone(), source };
        let old = match regular::open_file(&self.path, OpenOptions::new().read(true)) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => {
                return Err(SessionFileWriteError::Changed(self.path.clone()));
            }
            opened => opened.map_err(failed)?,
        };
        let ours = FileMark { length: *length, digest: Digest::from_bytes(hash.clone().finalize().into()) };
        let mut lines = LineScanner::new(old, LARGEST);
        // The title line and the header count as one, as they are written.
        let mut beginning = 1 + usize::from(self.header.title_line.is_some());
        let mut copied = MarkedLines::default();
        let mut is_ours = true;
        let written = replace_file_with(&self.path, FileAccess::Private, |file| {
            let mut file = BufWriter::new(file);
            copied.write_line(&self.header.encode(), &mut file)?;
            while let Some((_, line)) = lines.next_line()? {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                match beginning.checked_sub(1) {
                    Some(rest) => beginning = rest,
                    None => copied.write_line(line, &mut file)?,
                }
            }
            is_ours = lines.mark() == ours;
            if is_ours { file.flush() } else { Err(io::ErrorKind::InvalidData.into()) }
        });
        if !is_ours {
            return Err(SessionFileWriteError::Changed(self.path.clone()));
        }
        written.map_err(failed)?;
        self.file = FileState::There { length: copied.length, hash: copied.hash };
        Ok(copied.marks)
    }

    /// Puts a whole new content in place of the file, as after a migration or a redaction; waiting entries are dropped. No more than one of
    /// the entries is in memory.
    ///
    /// # Errors
    /// [`SessionFileWriteError::Io`], also if an entry cannot be read; the file is then as it was.
    pub fn rewrite_entries<'a>(
        &mut self,
        entries: impl IntoIterator<Item = io::Result<Cow<'a, SessionFileEntry>>>,
    ) -> Result<Vec<FileMark>, SessionFileWriteError> {
        let mut written = MarkedLines::default();
        let replaced = replace_file_with(&self.path, FileAccess::Private, |file| {
            let mut file = BufWriter::new(file);
            written.write_line(&self.header.encode(), &mut file)?;
            for entry in entries {
                let entry = entry?;
                written.write_line(&self.encode_entry(&entry)?, &mut file)?;
            }
            file.flush()
        });
        replaced.map_err(|source| SessionFileWriteError::Io { path: self.path.clone(), source })?;
        self.waiting.clear();
        self.lacks_line_break = false;
        self.file = FileState::There { length: written.length, hash: written.hash };
        Ok(written.marks)
    }

    fn encode_entry(&self, entry: &SessionFileEntry) -> io::Result<Vec<u8>> {
        let line = encode_line(entry).to_vec();
        if !may_need_blobs(&line) {
            return Ok(line);
        }
        let Ok(mut value) = serde_json::from_slice::<Value>(&line) else { return Ok(line) };
        self.blobs.externalise_images(&mut value)?;
        Ok(encode_line(&value).to_vec())
    }
}

/// Returns the digest of the first `keep` bytes of a file; `None` if the file is not as `mark` says.
fn hash_unchanged(file: &File, mark: FileMark, keep: u64) -> io::Result<Option<Sha256>> {
    if file.metadata()?.len() != mark.length || keep > mark.length {
        return Ok(None);
    }
    let mut hash = Sha256::new();
    hash_pieces(file, 0..keep, &mut hash)?;
    let kept = hash.clone();
    hash_pieces(file, keep..mark.length, &mut hash)?;
    Ok((Digest::from_bytes(hash.finalize().into()) == mark.digest).then_some(kept))
}

/// Reports whether an entry only sets an option of the session.
fn is_setting(entry: &SessionFileEntry) -> bool {
    matches!(
        entry.body,
        SessionEntryBody::ModelChange(_)
            | SessionEntryBody::ThinkingLevelChange(_)
            | SessionEntryBody::ServiceTierChange(_)
            | SessionEntryBody::ModeChange(_)
            | SessionEntryBody::SessionInit(_)
    )
}

fn is_answer(entry: &SessionFileEntry) -> bool {
    matches!(&entry.body, SessionEntryBody::Message(message) if matches!(message.message, AgentMessage::Assistant(_)))
}

fn marks_after(length: u64, hash: Sha256, lines: &[Vec<u8>]) -> (Vec<FileMark>, FileState) {
    let mut marked = MarkedLines { length, hash, marks: Vec::with_capacity(lines.len()) };
    lines.iter().for_each(|line| marked.add_line(line));
    (marked.marks, FileState::There { length: marked.length, hash: marked.hash })
}

/// The state of a file after each of its lines.
#[derive(Default)]
struct MarkedLines {
    length: u64,
    hash: Sha256,
    marks: Vec<FileMark>,
}

impl MarkedLines {
    fn add_line(&mut self, line: &[u8]) {
        self.length += line.len() as u64;
        self.hash.update(line);
        let digest = Digest::from_bytes(self.hash.clone().finalize().into());
        self.marks.push(FileMark { length: self.length, digest });
    }

    fn write_line(&mut self, line: &[u8], file: &mut impl io::Write) -> io::Result<()> {
        file.write_all(line)?;
        self.add_line(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
