//! Reads the files of which a line means something else than it says.
//!
//! It must not write: an older form is rewritten by the code that continues it.

use std::{io::Seek as _, os::unix::fs::FileExt as _};

use countersign_core::digest::Digest;
use countersign_protocol::omp::session_file::{
    EntryLinks, EntryReference, LinkRepair, UnreadableLines, read_session_file, repair_links,
};

use super::{LARGEST, LONGEST_ID, LinePlace, OpenedFile, SessionFileOpenError, changed, hash_line};
use crate::session_file::{
    FileMark,
    line_reader::{SessionLine, SessionLineReader},
    line_scanner::LineScanner,
};

impl OpenedFile {
    /// Reads the lines of a damaged file, and the ids that their entries have and name. What the entries say stays on disk.
    pub(super) fn read_damaged(&mut self) -> Result<(), SessionFileOpenError> {
        let path = self.path.clone();
        let failed = |source| SessionFileOpenError::Io { path: path.clone(), source };
        let mut file = self.file.try_clone().map_err(failed)?;
        file.rewind().map_err(failed)?;
        self.clear_notes();
        self.lines.clear();
        let mut links: Vec<EntryLinks> = Vec::new();
        let mut unreadable = UnreadableLines::default();
        let mut scanner = LineScanner::new(file, LARGEST);
        let mut reader = SessionLineReader::damaged();
        while let Some((piece, line)) = scanner.next_line().map_err(failed)? {
            let place = LinePlace { piece, hash: hash_line(line) };
            let line = String::from_utf8_lossy(line);
            match reader.read_line(&line).map_err(|_| failed(changed()))? {
                SessionLine::Entry(entry, parent) => {
                    self.note_entry(&entry)?;
                    self.lines.push(place);
                    let mut link = entry.links(parent);
                    // No entry has such an id.
                    if matches!(&link.reference, EntryReference::Target(id) if id.len() > LONGEST_ID) {
                        link.reference = EntryReference::None;
                    }
                    links.push(link);
                }
                SessionLine::Unreadable => unreadable.add(&line, links.len()),
                SessionLine::Blank | SessionLine::Beginning | SessionLine::Damaged | SessionLine::Older => {}
            }
        }
        if scanner.mark() != self.mark {
            return Err(failed(changed()));
        }
        let LinkRepair { form, reattached, looped, changed } = repair_links(&mut links, &unreadable, self.fresh_ids());
        (self.form, self.reattached, self.looped, self.unreadable) = (form, reattached, looped, unreadable.count());
        for at in changed {
            let link = links[at].clone();
            self.notes[at].id.clone_from(&link.id);
            self.notes[at].parent.clone_from(&link.parent_id);
            self.changed.insert(at, link);
        }
        Ok(())
    }

    /// Reads all entries into memory.
    pub(super) fn read_whole(&mut self) -> Result<(), SessionFileOpenError> {
        let failed = |source| SessionFileOpenError::Io { path: self.path.clone(), source };
        let mut bytes = vec![0; usize::try_from(self.mark.length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        if FileMark::from_bytes(&bytes) != self.mark {
            return Err(failed(changed()));
        }
        let file = read_session_file(&String::from_utf8_lossy(&bytes), self.fresh_ids())
            .map_err(|_| SessionFileOpenError::NotASession(self.path.clone()))?;
        drop(bytes);
        (self.header, self.form, self.unreadable) = (file.header, file.form, file.unreadable);
        (self.reattached, self.looped) = (file.reattached, file.looped);
        self.clear_notes();
        for entry in &file.entries {
            self.note_entry(entry)?;
        }
        self.entries = Some(file.entries);
        Ok(())
    }

    /// Returns new ids for entries. They are the same for the same file.
    fn fresh_ids(&self) -> impl FnMut() -> String + use<> {
        let (digest, mut count) = (self.mark.digest, 0_u64);
        move || {
            count += 1;
            let id = Digest::hash_bytes(format!("{digest} {count}").as_bytes());
            hex::encode(&id.as_bytes()[..4])
        }
    }

    fn clear_notes(&mut self) {
        (self.not_understood, self.incomplete, self.name) = (0, 0, None);
        self.notes.clear();
    }
}
