//! Quoting of paths that a person pastes into a shell.

use std::fmt;

use super::{LineMode, escape};

/// Formats a path that a shell and its commands take for one word: unchanged if nothing in it has a meaning, else in quotes.
/// Invisible characters in it are written byte by byte, as bash, ksh and zsh read them.
///
/// Nothing in it is hidden, so that [`escape()`] leaves it unchanged.
pub fn shell_quote(path: impl fmt::Display) -> String {
    let text = path.to_string();
    // It would be an option.
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    if escape(&text, LineMode::One) != text {
        return format!("$'{}'", text.chars().map(byte_by_byte).collect::<String>());
    }
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@%:,=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn byte_by_byte(letter: char) -> String {
    let mut bytes = [0; 4];
    let text = letter.encode_utf8(&mut bytes);
    let is_as_it_is = !matches!(letter, '\'' | '\\') && escape(text, LineMode::One) == *text;
    if is_as_it_is { text.to_owned() } else { text.bytes().map(|byte| format!("\\{byte:03o}")).collect() }
}

#[cfg(test)]
mod tests {
    use super::{LineMode, escape, shell_quote};

    #[test]
    fn a_text_is_one_word_of_the_shell() {
        for (text, want) in [
            ("/tmp/a-b/record.db", "/tmp/a-b/record.db"),
            ("/tmp/a b/record.db", "'/tmp/a b/record.db'"),
            ("/tmp/it's/$x", r"'/tmp/it'\''s/$x'"),
            ("", "''"),
            ("-x.yaml", "./-x.yaml"),
            ("\u{3164}/a b", r"$'\343\205\244/a b'"),
            ("it's\n", r"$'it\047s\012'"),
            (r"a\u{3164}", r"$'a\134u{3164}'"),
            (r"a\b", r"'a\b'"),
        ] {
            assert_eq!(shell_quote(text), want);
            assert_eq!(escape(want, LineMode::One), want);
        }
    }
}
