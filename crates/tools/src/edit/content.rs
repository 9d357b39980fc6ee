//! The text of a file as edits see it: without byte-order mark, every line end one character; and back, with the file's
//! own.
//!
//! It must not know which edit is made.

use std::{io::Read as _, ops::Range};

use crate::{
    arguments,
    disk::{self, FileStamp},
    outcome::CallFailure,
    text,
    tool::ToolContext,
};

/// The largest file that is edited.
const MOST: u64 = 64 << 20;
const MARK: &str = "\u{FEFF}";

/// The text of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileText {
    /// Text as on the disk, less the mark.
    original: String,
    has_mark: bool,
    text: String,
    /// Positions in `text` at which a line end represents two characters, in order.
    shortened: Vec<usize>,
    stamp: FileStamp,
}

impl FileText {
    /// Reads a file; [`None`] if there is none.
    pub(crate) fn read_if_exists(path: &str, cx: &ToolContext) -> Result<Option<Self>, CallFailure> {
        let failed = |error: std::io::Error| CallFailure::Failed(format!("{path}: {error}"));
        let place = arguments::locate_to_change(path, cx)?;
        if !place.exists() {
            return Ok(None);
        }
        let file = disk::open_file(&place).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(CallFailure::Failed(format!("{path} is not a regular file")));
        }
        if found.len() > MOST {
            let size = text::format_size(found.len());
            return Err(CallFailure::Failed(format!("{path} is too large to be edited: {size}, above 64 MiB")));
        }
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).map_err(failed)?;
        let whole = String::from_utf8(bytes).map_err(|_| {
            CallFailure::Failed(format!(
                "{path} is not UTF-8 text and would be damaged by an edit; use a command instead"
            ))
        })?;
        Ok(Some(Self::new(&whole, FileStamp::from_metadata(&found))))
    }

    /// Reads a file that has to be there.
    pub(crate) fn read_existing(path: &str, cx: &ToolContext) -> Result<Self, CallFailure> {
        Self::read_if_exists(path, cx)?
            .ok_or_else(|| CallFailure::Failed(format!("{path} does not exist; use write to make it")))
    }

    fn new(whole: &str, stamp: FileStamp) -> Self {
        let (has_mark, original) = whole.strip_prefix(MARK).map_or((false, whole), |rest| (true, rest));
        let text = normalise_text(original);
        let shortened = original.match_indices("\r\n").enumerate().map(|(before, (at, _))| at - before).collect();
        Self { original: original.to_owned(), has_mark, text, shortened, stamp }
    }

    /// Returns the text that edits are matched against: its line ends are `\n` alone.
    pub(crate) fn normalised_text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn file_stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Replaces ranges of [`FileText::normalised_text`] by texts; the ranges must be in order and apart. New line ends are as most
    /// of the old ones are; the rest stays unchanged, byte by byte.
    pub(crate) fn splice(&self, edits: &[(Range<usize>, String)]) -> String {
        let line_ends = self.text.bytes().filter(|byte| *byte == b'\n').count();
        let long = self.shortened.len() * 2 > line_ends;
        let mut made = String::from(if self.has_mark { MARK } else { "" });
        let mut from = 0;
        for (range, new) in edits {
            made.push_str(&self.original[from..self.original_at(range.start)]);
            let new = normalise_text(new);
            made.push_str(&if long { new.replace('\n', "\r\n") } else { new });
            from = self.original_at(range.end);
        }
        made.push_str(&self.original[from..]);
        made
    }

    fn original_at(&self, at: usize) -> usize {
        at + self.shortened.partition_point(|shortened| *shortened < at)
    }

    /// Returns the start of each line, followed by the end of the text: one more than there are lines.
    pub(super) fn line_starts(&self) -> Vec<usize> {
        let mut starts = vec![0];
        starts.extend(self.text.match_indices('\n').map(|(at, _)| at + 1));
        if starts.last() != Some(&self.text.len()) {
            starts.push(self.text.len());
        }
        starts
    }
}

/// Returns the text without byte-order mark and with `\n` as line ends.
pub(crate) fn normalise_text(text: &str) -> String {
    text.strip_prefix(MARK).unwrap_or(text).replace("\r\n", "\n")
}

#[cfg(test)]
impl FileText {
    pub(super) fn for_test(whole: &str) -> Self {
        let here = std::fs::metadata(".").unwrap();
        Self::new(whole, FileStamp::from_metadata(&here))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::FileText;

    proptest! {
        #[test]
        fn replacing_a_part_by_itself_changes_no_byte_where_line_ends_are_alike(
            lines in prop::collection::vec("[ab\\u{e4}]{0,3}", 0..6), long: bool, mark: bool, from in 0..20_usize, length in 0..20_usize,
        ) {
            let whole = lines.join(if long { "\r\n" } else { "\n" });
            let whole = if mark { format!("\u{FEFF}{whole}") } else { whole };
            let content = FileText::for_test(&whole);
            let text = content.normalised_text();
            let from = text.floor_char_boundary(from);
            let to = text.floor_char_boundary(from + length).max(from);
            prop_assert_eq!(content.splice(&[(from..to, text[from..to].to_owned())]), whole);
        }
    }

    #[test]
    fn what_is_not_replaced_stays_byte_by_byte() {
        for (whole, old, new, want) in [
            ("a\r\nb\r\nc\r\n", "b\n", "x\ny\n", "a\r\nx\r\ny\r\nc\r\n"),
            ("a\nb\nc\n", "b", "x\r\ny", "a\nx\ny\nc\n"),
            ("\u{FEFF}a\r\nb\r\n", "a", "x", "\u{FEFF}x\r\nb\r\n"),
            ("a\r\nb\nc\r\n", "b\nc", "x\ny", "a\r\nx\r\ny\r\n"),
            ("a\rb\n", "a\rb", "x", "x\n"),
            ("a\r\n", "\n", "", "a"),
        ] {
            let content = FileText::for_test(whole);
            let at = content.normalised_text().find(old).unwrap();
            assert_eq!(content.splice(&[(at..at + old.len(), new.to_owned())]), want, "{whole:?}");
        }
    }

    #[test]
    fn lines_begin_behind_line_ends() {
        for (text, want) in [("", vec![0]), ("a", vec![0, 1]), ("a\n", vec![0, 2]), ("a\nb", vec![0, 2, 3])] {
            assert_eq!(FileText::for_test(text).line_starts(), want, "{text:?}");
        }
    }
}
