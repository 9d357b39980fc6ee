//! The lines of a file that could not be read: how many there are, and what is known of their places.
//!
//! It must not know what an entry says.

use serde_json::Deserializer;

/// The longest id that is looked for in a line that cannot be read, in bytes.
const LONGEST_ID: usize = 1024;

/// The lines of a file that are no entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadableLines {
    count: usize,
    /// In the order of the file. Those without any id between the same entries are one.
    pub(super) gaps: Vec<LineGap>,
}

/// Place of a line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineGap {
    /// Number of entries before it.
    pub(super) at: usize,
    /// Id in what is left of the line.
    pub(super) id: Option<String>,
    /// Parent in what is left of the line.
    pub(super) parent_id: Option<String>,
}

impl UnreadableLines {
    /// Adds a line that follows the first `at` entries of the file.
    pub fn add(&mut self, line: &str, at: usize) {
        self.count += 1;
        let gap = LineGap { at, id: find_id(line, "\"id\""), parent_id: find_id(line, "\"parentId\"") };
        let is_nameless = |gap: &LineGap| gap.id.is_none() && gap.parent_id.is_none();
        if self.gaps.last().is_none_or(|last| !(is_nameless(&gap) && is_nameless(last) && last.at == at)) {
            self.gaps.push(gap);
        }
    }

    /// Returns the number of lines.
    pub const fn count(&self) -> usize {
        self.count
    }
}

/// Returns the id in a line that cannot be read, as far as that much is left of it.
pub fn id_of_unreadable(line: &str) -> Option<String> {
    find_id(line, "\"id\"")
}

/// Finds the first member with this name, in quotes, whose value is a whole text.
fn find_id(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(name)?;
    let value = rest.trim_start().strip_prefix(':')?;
    let id = Deserializer::from_str(value).into_iter::<String>().next()?.ok()?;
    (id.len() <= LONGEST_ID).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::{LineGap, UnreadableLines, id_of_unreadable};

    #[test]
    fn an_id_is_found_in_what_is_left_of_a_line() {
        for (line, want) in [
            (r#"{"type":"message","id":"a","par"#, Some("a")),
            (r#"{"type": "message", "id" : "a\"b", "parentId": "x""#, Some("a\"b")),
            (r#"{"id":"a","parentId":"b"}"#, Some("a")),
            (r#"{"type":"message","id":"a"#, None),
            (r#"{"type":"message","parentId":"a"}"#, None),
            (r#"{"id":7,"x":{"id":"a"}}"#, None),
            ("[1,2]", None),
            ("\0\0", None),
        ] {
            assert_eq!(id_of_unreadable(line).as_deref(), want, "{line}");
        }
        assert_eq!(id_of_unreadable(&format!("{{\"id\":\"{}\",", "x".repeat(1025))), None);
    }

    #[test]
    fn lines_that_name_nothing_are_one_gap_between_the_same_entries() {
        let mut lines = UnreadableLines::default();
        for at in [0, 0, 2] {
            lines.add("x", at);
        }
        lines.add(r#"{"parentId":"a","#, 2);
        let gap = |at, parent: Option<&str>| LineGap { at, id: None, parent_id: parent.map(str::to_owned) };
        assert_eq!((lines.count(), lines.gaps), (4, vec![gap(0, None), gap(2, None), gap(2, Some("a"))]));
    }
}
