//! Reads a session file line by line, so that a long one is never in memory as a whole.
//!
//! It must not touch a file, nor change what a line says.

use std::collections::HashSet;

use countersign_protocol::{
    omp::session_file::{
        NotASession, ParentMember, SessionEntryBody, SessionFileEntry, SessionHeader, TitleLine, VERSION,
    },
    replace_lone_surrogates,
};

/// One line of a session file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SessionLine {
    /// Nothing but white space.
    Blank,
    /// The header, or the title line before it.
    Beginning,
    /// An entry, as it stands, and whether it names a parent.
    Entry(Box<SessionFileEntry>, ParentMember),
    /// No entry: it is left out.
    Unreadable,
    /// What this line means depends on other lines: an id occurs twice, or a line names no parent, or a parent or an entry to keep that
    /// is not before it. No later line is read.
    Damaged,
    /// A line of a file of a version before 3. It is not read.
    Older,
}

/// Reader of the lines of a file in order. It keeps only the ids of the entries.
///
/// A file without a [`SessionLine::Damaged`] or [`SessionLine::Older`] has the entries that [`read_session_file`] finds in it, none of them moved, and
/// as many unreadable lines.
///
/// [`read_session_file`]: countersign_protocol::omp::session_file::read_session_file
#[derive(Debug, Default)]
pub(super) struct SessionLineReader {
    is_begun: bool,
    title_line: Option<String>,
    header: Option<SessionHeader>,
    ids: HashSet<String>,
    check: LinkCheck,
    is_older: bool,
}

/// Whether a reader compares the ids of a line with those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinkCheck {
    /// It does, and none was wrong.
    #[default]
    Checked,
    /// One was wrong.
    Failed,
    /// It does not, as it is known that some are wrong.
    Skipped,
}

impl SessionLineReader {
    /// Creates the reader of a file that is known to be damaged: it reads every entry as it stands.
    pub(super) fn damaged() -> Self {
        Self { check: LinkCheck::Skipped, ..Self::default() }
    }

    /// Reads the next line, with or without its line break.
    ///
    /// # Errors
    /// [`NotASession`] if the header is expected and this is none.
    pub(super) fn read_line(&mut self, line: &str) -> Result<SessionLine, NotASession> {
        let line = if std::mem::replace(&mut self.is_begun, true) {
            line
        } else {
            line.strip_prefix('\u{feff}').unwrap_or(line)
        };
        let line = line.strip_suffix('\n').unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return Ok(SessionLine::Blank);
        }
        if self.header.is_none() {
            return self.read_beginning(line);
        }
        if self.is_older {
            return Ok(SessionLine::Older);
        }
        if self.check == LinkCheck::Failed {
            return Ok(SessionLine::Damaged);
        }
        let Ok((entry, parent)) = SessionFileEntry::parse_with_parent(line) else {
            return Ok(SessionLine::Unreadable);
        };
        if entry.is_header() {
            return Ok(SessionLine::Unreadable);
        }
        if self.check == LinkCheck::Checked && !self.is_linked(&entry, parent) {
            self.check = LinkCheck::Failed;
            return Ok(SessionLine::Damaged);
        }
        Ok(SessionLine::Entry(Box::new(entry), parent))
    }

    /// Adds the id of an entry. True if no entry before it has that id, and those that it names are before it.
    fn is_linked(&mut self, entry: &SessionFileEntry, parent: ParentMember) -> bool {
        let is_after_parent = entry.parent_id.as_ref().is_none_or(|parent| self.ids.contains(parent));
        if parent == ParentMember::Missing || !is_after_parent || !self.ids.insert(entry.id.clone()) {
            return false;
        }
        match &entry.body {
            SessionEntryBody::Compaction(body) => self.ids.contains(&body.first_kept_entry_id),
            _ => true,
        }
    }

    fn read_beginning(&mut self, line: &str) -> Result<SessionLine, NotASession> {
        let line = replace_lone_surrogates(line).into_owned();
        if self.title_line.is_none() && TitleLine::parse(line.strip_prefix('\u{feff}').unwrap_or(&line)).is_some() {
            self.title_line = Some(line);
            return Ok(SessionLine::Beginning);
        }
        let header = SessionHeader::parse(&mut self.title_line.take().into_iter().chain([line])).ok_or(NotASession)?;
        self.is_older = header.version < VERSION;
        self.header = Some(header);
        Ok(SessionLine::Beginning)
    }

    /// Returns the header behind the last line.
    ///
    /// # Errors
    /// [`NotASession`] if there was none.
    pub(super) fn finish(self) -> Result<SessionHeader, NotASession> {
        self.header.ok_or(NotASession)
    }
}

#[cfg(test)]
mod tests {
    use countersign_protocol::omp::session_file::{FileForm, SessionFileEntry, read_session_file};

    use super::{SessionLine, SessionLineReader};

    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/w"}"#;

    fn label(id: &str, parent: &str) -> String {
        format!(r#"{{"type":"label","id":"{id}","parentId":{parent},"timestamp":"t","targetId":"x"}}"#)
    }

    /// Returns the entries and the number of unreadable lines; `None` if the file is damaged or older.
    fn read_lines(text: &str) -> Option<(Vec<SessionFileEntry>, usize)> {
        let mut reader = SessionLineReader::default();
        let (mut entries, mut unreadable) = (Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            match reader.read_line(line).unwrap() {
                SessionLine::Blank | SessionLine::Beginning => {}
                SessionLine::Entry(entry, _) => entries.push(*entry),
                SessionLine::Unreadable => unreadable += 1,
                SessionLine::Damaged | SessionLine::Older => return None,
            }
        }
        reader.finish().unwrap();
        Some((entries, unreadable))
    }

    #[test]
    fn a_file_that_is_read_by_lines_has_what_it_has_as_a_whole() {
        let (a, b, alien) =
            (label("a", "null"), label("b", "\"a\""), r#"{"type":"alien","id":"c","parentId":"a","x":1}"#);
        let title = r#"{"type":"title","v":1,"title":"T","updatedAt":"2026-02-28T12:00:00.000Z","pad":""}"#;
        for text in [
            format!("{HEADER}\n"),
            format!("\u{feff}\n{HEADER}\r\n{a}\r\n\n{b}"),
            format!("{title}\n{HEADER}\n{a}\n{b}\n"),
            format!("{HEADER}\n{a}\nno json\n{HEADER}\n{alien}\n{b}\n{{\"type\""),
            format!("{HEADER}\n{}\n", r#"{"type":"alien","id":"\ud800","parentId":null,"x":"\ud800"}"#),
        ] {
            let whole = read_session_file(&text, String::new).unwrap();
            assert_eq!(whole.form, FileForm::Current, "{text}");
            assert_eq!(read_lines(&text), Some((whole.entries, whole.unreadable)), "{text}");
        }
    }

    #[test]
    fn a_line_whose_meaning_depends_on_others_is_told() {
        let first = label("a", "null");
        for line in [
            label("a", "null"),
            label("b", "\"b\""),
            label("b", "\"gone\""),
            r#"{"type":"label","id":"b","timestamp":"t","targetId":"x"}"#.to_owned(),
            r#"{"type":"compaction","id":"b","parentId":"a","timestamp":"t","summary":"s","firstKeptEntryId":"gone","tokensBefore":1}"#.to_owned(),
        ] {
            assert_eq!(read_lines(&format!("{HEADER}\n{first}\n{line}\n")), None, "{line}");
        }
        assert_eq!(read_lines(&format!("{}\n{first}\n", HEADER.replace(":3,", ":2,"))), None);
    }

    #[test]
    fn what_is_kept_of_the_lines_does_not_grow_with_their_length() {
        for (length, entries) in [(10, 1_000), (100_000, 10)] {
            let mut reader = SessionLineReader::default();
            reader.read_line(HEADER).unwrap();
            for at in 0..entries {
                let line = label(&at.to_string(), "null").replace("\"x\"", &format!("\"{}\"", "x".repeat(length)));
                assert!(matches!(reader.read_line(&line).unwrap(), SessionLine::Entry(..)));
            }
            let kept: usize = reader.ids.iter().map(String::len).sum();
            assert!(reader.ids.len() == entries && kept <= 4 * entries, "{length}");
        }
    }
}
