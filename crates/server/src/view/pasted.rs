//! What a person is to paste into a shell.

use std::fmt;

/// A path as a shell and its commands take it for one word: as it is where nothing in it means anything, else in quotes.
///
/// What cannot be seen in it is not shown: pass the command through [`crate::view::escape()`].
pub fn pasted(path: impl fmt::Display) -> String {
    let text = path.to_string();
    // It would be an option.
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@%:,=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::pasted;

    #[test]
    fn a_text_is_one_word_of_the_shell() {
        for (text, want) in [
            ("/tmp/a-b/record.db", "/tmp/a-b/record.db"),
            ("/tmp/a b/record.db", "'/tmp/a b/record.db'"),
            ("/tmp/it's/$x", r"'/tmp/it'\''s/$x'"),
            ("", "''"),
            ("-x.yaml", "./-x.yaml"),
        ] {
            assert_eq!(pasted(text), want);
        }
    }
}
