//! Code that says that it is not finished, and tests that do not run.

use crate::tidy::{
    TidyFinding,
    source::{RustSource, is_word},
};

const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "what is not written yet is an issue, not code"),
    ("unimplemented!", "what is not written yet is an issue, not code"),
    ("dbg!", "it was for one afternoon: use tracing"),
    ("#[ignore", "a test that does not run shows nothing: mend it or remove it"),
];

pub(crate) fn findings(source: &RustSource<'_>) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for (line, code) in source.code_lines() {
        for &(word, why) in FORBIDDEN {
            if contains_word(code, word) {
                found.push(TidyFinding { file: source.file.to_path_buf(), line, what: word.to_owned(), why });
            }
        }
    }
    found
}

/// Reports whether `word` is in `code` and is not the tail of a longer name.
pub(crate) fn contains_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(is_word))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn unfinished_code_is_found_outside_comments_and_strings() {
        for (text, want) in [
            ("fn a() {\n    todo!()\n}", vec![(2, "todo!")]),
            ("unimplemented!(\"x\")", vec![(1, "unimplemented!")]),
            ("dbg!(a)", vec![(1, "dbg!")]),
            ("#[ignore = \"slow\"]", vec![(1, "#[ignore")]),
            ("// todo!()\n\"dbg!(a)\"", vec![]),
            ("my_todo!()\ntodo_write()", vec![]),
        ] {
            let found = findings(&RustSource::new(Path::new("src/a.rs"), text));
            let found: Vec<_> = found.iter().map(|finding| (finding.line, finding.what.as_str())).collect();
            assert_eq!(found, want, "{text}");
        }
    }
}
