//! How a file differs from what was written to it.
//!
//! It must not touch a file. Source: ARCHITECTURE.md, The file and the log.

use countersign_core::digest::Digest;
use countersign_protocol::omp::session_file::Entry;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What a file was after a write: how long, and the digest of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Bytes.
    pub length: u64,
    /// SHA-256 of them.
    pub digest: Digest,
}

impl Mark {
    /// The mark of a file that holds `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len() as u64, digest: Digest::of(bytes) }
    }
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// Nothing.
    Same,
    /// Its end is missing, as after a crash: what was written after the mark at `marks - 1` (or everything, at 0) must
    /// be written again, behind the first `keep` bytes.
    Prefix {
        /// How many bytes are as they were written, up to the end of an entry.
        keep: u64,
        /// How many of the marks that still fit.
        marks: usize,
    },
    /// Somebody wrote more.
    Longer {
        /// What they wrote, as far as it could be read.
        tail: Vec<Entry>,
        /// How many of their lines are no entries.
        unreadable: usize,
    },
    /// Something else: import it as a new branch.
    Different,
}

/// Compares the bytes of a file with `marks`: what it was after each write since its last rewrite, oldest first.
///
/// With the last mark alone a file whose end is missing counts as [`Comparison::Different`], for nothing proves that it
/// is a beginning.
pub fn compare(bytes: &[u8], marks: &[Mark]) -> Comparison {
    let Some(last) = marks.last() else {
        return if bytes.is_empty() { Comparison::Same } else { Comparison::Different };
    };
    let fitting = fitting(bytes, marks);
    if fitting == marks.len() {
        return longer(bytes, *last);
    }
    if bytes.is_empty() {
        return Comparison::Prefix { keep: 0, marks: 0 };
    }
    let Some(mark) = fitting.checked_sub(1).map(|at| marks[at]) else { return Comparison::Different };
    let rest = &bytes[usize::try_from(mark.length).unwrap_or(bytes.len())..];
    // One write may have held several lines; of a torn one only the beginning may be there.
    let within = (bytes.len() as u64) < marks[fitting].length;
    if within && !rest.contains(&b'\n') {
        return Comparison::Prefix { keep: mark.length, marks: fitting };
    }
    Comparison::Different
}

/// How many of the marks, from the first, are those of beginnings of `bytes`.
fn fitting(bytes: &[u8], marks: &[Mark]) -> usize {
    let mut hash = Sha256::new();
    let mut at = 0;
    for (count, mark) in marks.iter().enumerate() {
        let piece = usize::try_from(mark.length).ok().and_then(|end| Some((bytes.get(at..end)?, end)));
        let Some((piece, end)) = piece else { return count };
        hash.update(piece);
        at = end;
        if Digest::from_bytes(hash.clone().finalize().into()) != mark.digest {
            return count;
        }
    }
    marks.len()
}

fn longer(bytes: &[u8], last: Mark) -> Comparison {
    let tail = &bytes[usize::try_from(last.length).unwrap_or(bytes.len())..];
    if tail.trim_ascii().is_empty() {
        // A blank line end is no change of the conversation, but the next append must know of it.
        return if tail.is_empty() { Comparison::Same } else { Comparison::Longer { tail: Vec::new(), unreadable: 0 } };
    }
    let text = String::from_utf8_lossy(tail);
    let (mut entries, mut unreadable) = (Vec::new(), 0);
    for line in text.split('\n').filter(|line| !line.trim_ascii().is_empty()) {
        match Entry::parse(line) {
            Ok(entry) => entries.push(entry),
            Err(_) => unreadable += 1,
        }
    }
    Comparison::Longer { tail: entries, unreadable }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Comparison, Mark, compare};

    const HEADER: &str = "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"\",\"cwd\":\"/\"}\n";
    const LABEL: &str = "{\"type\":\"label\",\"id\":\"e1\",\"parentId\":null,\"timestamp\":\"\",\"targetId\":\"x\"}\n";

    fn marks() -> Vec<Mark> {
        [HEADER.to_owned(), format!("{HEADER}{LABEL}")].iter().map(|text| Mark::of(text.as_bytes())).collect()
    }

    #[test]
    fn a_file_is_the_same_a_beginning_longer_or_different() {
        let whole = format!("{HEADER}{LABEL}");
        let prefix = |keep: &str, marks| Comparison::Prefix { keep: keep.len() as u64, marks };
        let longer = |tail: usize, unreadable| (tail, unreadable);
        for (case, bytes, want) in [
            ("same", whole.clone(), Ok(Comparison::Same)),
            ("cut at an entry", HEADER.to_owned(), Ok(prefix(HEADER, 1))),
            ("torn line", format!("{HEADER}{}", &LABEL[..20]), Ok(prefix(HEADER, 1))),
            ("torn line end", whole.trim_end().to_owned(), Ok(prefix(HEADER, 1))),
            ("empty", String::new(), Ok(prefix("", 0))),
            ("other line of its length", format!("{HEADER}{}", LABEL.replace("e1", "e2")), Ok(Comparison::Different)),
            ("other header", whole.replace("\"s\"", "\"t\""), Ok(Comparison::Different)),
            ("torn header", HEADER[..9].to_owned(), Ok(Comparison::Different)),
            ("longer", format!("{whole}{LABEL}"), Err(longer(1, 0))),
            ("longer and torn", format!("{whole}{LABEL}nothing\n{}", &LABEL[..20]), Err(longer(1, 2))),
            ("longer without a line end", format!("{whole}{}", LABEL.trim_end()), Err(longer(1, 0))),
            ("blank line", format!("{whole}\n"), Err(longer(0, 0))),
        ] {
            let got = match compare(bytes.as_bytes(), &marks()) {
                Comparison::Longer { tail, unreadable } => Err((tail.len(), unreadable)),
                other => Ok(other),
            };
            assert_eq!(got, want, "{case}");
        }
        assert_eq!(compare(b"", &[]), Comparison::Same);
        assert_eq!(compare(b"x", &[]), Comparison::Different);
        assert_eq!(compare(HEADER.as_bytes(), &marks()[1..]), Comparison::Different);
    }

    proptest! {
        #[test]
        fn every_cut_of_what_was_written_is_kept_up_to_an_entry(cut in 0_usize..100) {
            let whole = format!("{HEADER}{LABEL}");
            let cut = HEADER.len() + cut.min(LABEL.len() - 1);
            let want = Comparison::Prefix { keep: HEADER.len() as u64, marks: 1 };
            prop_assert_eq!(compare(&whole.as_bytes()[..cut], &marks()), want);
        }
    }
}
