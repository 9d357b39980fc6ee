//! Variables of loops: between `do` and `done` they hold the words after `in`, unless something else sets them.

use brush_parser::ast;

use super::word::{ShellWord, UNKNOWN};

/// Reports whether a `for` in `text` gives all possible values of its variable: nothing else in the text may set it, and each of `values`
/// is known.
pub(super) fn settles_variable(text: &str, clause: &ast::ForClauseCommand, values: &[ShellWord]) -> bool {
    let is_known = |word: &ShellWord| !word.value.contains(UNKNOWN) && word.runs.is_empty() && !word.disguised;
    clause.values.is_some() && values.iter().all(is_known) && count_mentions(text, &clause.variable_name) == Some(1)
}

/// Counts the mentions of a variable in `text` other than reads. Quotes do not hide them; None if something else may.
fn count_mentions(text: &str, name: &str) -> Option<usize> {
    if text.contains("$'") {
        return None;
    }
    let text: String = text.chars().filter(|c| !matches!(c, '\\' | '\'' | '"' | '\n')).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = text.match_indices(name).filter(|(at, _)| {
        let (before, behind) = (&text[..*at], &text[at + name.len()..]);
        let is_set = behind.starts_with('=') || behind.starts_with(":=");
        let is_read = before.ends_with('$') || before.ends_with("${") && !is_set;
        !before.ends_with(is_name) && !behind.starts_with(is_name) && !is_read
    });
    Some(found.count())
}
