//! Changes of a text, as lines with numbers for a person.
//!
//! It must not be applied again: it is for reading only.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// Unchanged lines around a change.
const AROUND: usize = 4;

/// A change of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineDiff {
    /// Lines `-12 old`, `+12 new` and ` 12 same`, with ` ...` where lines are left out. Removed lines have their old
    /// number, others their new one.
    pub(crate) text: String,
    /// The first line of the new text that differs; absent if nothing does.
    pub(crate) first_changed_line: Option<usize>,
}

/// Compares two texts, less well where that takes long.
pub(crate) fn compute_diff(old: &str, new: &str) -> LineDiff {
    let compared = TextDiff::configure().timeout(Duration::from_secs(1)).diff_lines(old, new);
    let width = old.lines().count().max(new.lines().count()).max(1).to_string().len();
    let mut made = LineDiff::default();
    let mut last_shown = 0;
    for group in compared.grouped_ops(AROUND) {
        if group.first().is_some_and(|op| op.new_range().start > last_shown) {
            made.text.push_str(&format!(" {:>width$} ...\n", ""));
        }
        for op in &group {
            last_shown = op.new_range().end;
            for change in compared.iter_changes(op) {
                let (sign, index) = match change.tag() {
                    ChangeTag::Equal => (' ', change.new_index()),
                    ChangeTag::Insert => ('+', change.new_index()),
                    ChangeTag::Delete => ('-', change.old_index()),
                };
                if change.tag() != ChangeTag::Equal && made.first_changed_line.is_none() {
                    made.first_changed_line = Some(op.new_range().start + 1);
                }
                let line = change.value().trim_end_matches(['\n', '\r']);
                made.text.push_str(&format!("{sign}{:>width$} {line}\n", index.map_or(0, |index| index + 1)));
            }
        }
    }
    if last_shown < new.lines().count() && !made.text.is_empty() {
        made.text.push_str(&format!(" {:>width$} ...\n", ""));
    }
    made.text.truncate(made.text.trim_end_matches('\n').len());
    made
}

#[cfg(test)]
mod tests {
    use super::{LineDiff, compute_diff};

    #[test]
    fn a_change_is_shown_with_numbers_and_its_surroundings() {
        let old: String = (1..=12).map(|line| format!("l{line}\n")).collect();
        let new = old.replace("l6\n", "six\nsix and a half\n");
        let text = "    ...\n  2 l2\n  3 l3\n  4 l4\n  5 l5\n- 6 l6\n+ 6 six\n+ 7 six and a half\n  8 l7\n  9 l8\n 10 l9\n 11 l10\n    ...";
        assert_eq!(compute_diff(&old, &new), LineDiff { text: text.to_owned(), first_changed_line: Some(6) });
    }

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(compute_diff("a\n", "a\n"), LineDiff::default());
        assert_eq!(compute_diff("", "a\n"), LineDiff { text: "+1 a".to_owned(), first_changed_line: Some(1) });
    }
}
