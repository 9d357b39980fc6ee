//! Tells what becomes of the last line of a session file if it was cut off in the middle.
//!
//! It must not write the file.

use countersign_protocol::{
    encode_line,
    omp::session_file::{SessionFileEntry, id_of_unreadable},
};

use super::{OpenedFile, SessionFileOpenError};

/// What becomes of a last line that was cut off in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornEnd {
    /// The log has its entry, which is written again in its place.
    Restored,
    /// It stays in the file and is no entry.
    LeftOut,
}

impl TornEnd {
    /// Compares the last line of a file with the entries that the log has and the file lacks, in their order.
    ///
    /// # Errors
    /// [`SessionFileOpenError::Io`]
    pub(crate) fn compare(opened: &OpenedFile, missing: &[SessionFileEntry]) -> Result<Self, SessionFileOpenError> {
        let Some(first) = missing.first().filter(|_| opened.is_torn()) else { return Ok(Self::LeftOut) };
        let end = opened.read_torn_end()?;
        // A file that was longer than what reached the disk ends with zeros.
        let is_written = end.iter().any(|byte| *byte != 0);
        let is_restored = match id_of_unreadable(&String::from_utf8_lossy(&end)) {
            Some(id) => missing.iter().any(|entry| entry.id == id),
            None => !is_written || encode_line(first).starts_with(&end),
        };
        Ok(if is_restored { Self::Restored } else { Self::LeftOut })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use countersign_protocol::{encode_line, omp::session_file::SessionFileEntry};

    use super::TornEnd;
    use crate::session_file::open_file;

    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;

    fn entry(id: &str) -> SessionFileEntry {
        let line = format!(r#"{{"type":"label","id":"{id}","parentId":null,"timestamp":"","targetId":"x"}}"#);
        SessionFileEntry::parse(&line).unwrap()
    }

    #[test]
    fn a_line_is_restored_if_the_log_has_its_entry() {
        let missing = [entry("a"), entry("b")];
        let line = String::from_utf8(encode_line(&missing[0]).to_vec()).unwrap();
        for (end, missing, want) in [
            ("", &missing[..], TornEnd::LeftOut),
            (&line[..line.len() - 2], &missing, TornEnd::Restored),
            (&line[..5], &missing, TornEnd::Restored),
            (r#"{ "type": "label", "id": "b", "#, &missing, TornEnd::Restored),
            (r#"{ "type": "label", "id": "c", "#, &missing, TornEnd::LeftOut),
            ("garbage", &missing, TornEnd::LeftOut),
            ("\0\0\0", &missing, TornEnd::Restored),
            ("\0\0\0", &[], TornEnd::LeftOut),
            (&line[..line.len() - 2], &[], TornEnd::LeftOut),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("s.jsonl");
            fs::write(&path, format!("{HEADER}\n{end}")).unwrap();
            let opened = open_file(&path).unwrap().unwrap();
            assert_eq!(opened.is_torn(), !end.is_empty(), "{end:?}");
            assert_eq!(TornEnd::compare(&opened, missing).unwrap(), want, "{end:?}");
        }
    }
}
