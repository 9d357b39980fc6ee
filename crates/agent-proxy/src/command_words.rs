//! Words of command lines: to start an agent, and to show a command as a shell would read it.

/// Reason why a command line has no words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// A quote that does not end.
    #[error("a quote does not end: expected a command such as `gemini --acp`")]
    OpenQuote,
    /// Nothing but spaces.
    #[error("the command is empty: expected a command such as `gemini --acp`")]
    Empty,
}

/// Splits a command line into words, with the quotes of a shell and nothing else of it.
///
/// # Errors
/// A quote that does not end, or no word.
pub fn split_words(line: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next().ok_or(WordsError::OpenQuote)? {
                        end if end == letter => break,
                        '\\' if letter == '"' => match letters.next().ok_or(WordsError::OpenQuote)? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        other => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next().ok_or(WordsError::OpenQuote)?),
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.is_empty() { Err(WordsError::Empty) } else { Ok(words) }
}

/// Writes words as a shell would read them.
pub(crate) fn quote_words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote_word).collect::<Vec<_>>().join(" ")
}

fn quote_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns a name without signs that rules do not expect in one.
pub(crate) fn plain_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '_' };
    name.chars().map(plain).collect()
}

/// Shells whose form `SHELL -lc TEXT` runs TEXT and nothing else.
const SHELLS: [&str; 6] = ["bash", "/bin/bash", "/usr/bin/bash", "sh", "/bin/sh", "/usr/bin/sh"];

/// Returns the line that words run: the text after `bash -lc` if they are exactly that, else the words.
pub(crate) fn line_of_words(words: &[&str]) -> String {
    match words {
        [shell, "-lc" | "-c", text] if SHELLS.contains(shell) => (*text).to_owned(),
        words => quote_words(words.iter().copied()),
    }
}

/// Takes `/bin/bash -lc '…'` off a command line, if it is exactly that form with one quoted text. Any other line stays as it is.
pub(crate) fn without_shell(line: &str) -> String {
    match split_plain(line) {
        Some(words) => match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [shell, "-lc" | "-c", text] if SHELLS.contains(shell) => (*text).to_owned(),
            _ => line.to_owned(),
        },
        None => line.to_owned(),
    }
}

/// Splits a line in which nothing but quotes has a meaning for a shell. None if something else has.
fn split_plain(line: &str) -> Option<Vec<String>> {
    let mut quote = None;
    let mut escaped = false;
    for letter in line.chars() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            // An expansion of the outer shell would change the text.
            (Some('"') | None, '$' | '`') => return None,
            (Some('"') | None, '\\') => escaped = true,
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '*' | '?' | '[' | '~' | '#' | '{' | '!' | '\n') => {
                return None;
            }
            (None, _) => {}
        }
    }
    split_words(line).ok()
}

#[cfg(test)]
mod tests {
    use super::{WordsError, line_of_words, quote_words, split_words, without_shell};

    #[test]
    fn a_command_line_has_the_words_of_its_quotes() {
        for (line, want) in [
            ("gemini --acp", Ok(vec!["gemini", "--acp"])),
            ("  a  'b c' \"d \\\" e\" f\\ g ", Ok(vec!["a", "b c", "d \" e", "f g"])),
            ("a''b \"\"", Ok(vec!["ab", ""])),
            ("a 'b", Err(WordsError::OpenQuote)),
            ("a \\", Err(WordsError::OpenQuote)),
            (" ", Err(WordsError::Empty)),
        ] {
            let want = want.map(|words| words.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(split_words(line), want, "{line}");
        }
    }

    #[test]
    fn quoted_words_are_the_same_words_again() {
        for words in [vec!["ls", "-la"], vec!["a b", "", "it's", "$HOME", "x;y", "\n", "é"]] {
            assert_eq!(split_words(&quote_words(words.clone())).unwrap(), words);
        }
    }

    #[test]
    fn a_shell_is_taken_off_only_where_it_is_exactly_that_form() {
        for (line, want) in [
            ("/bin/bash -lc 'touch x && ls'", "touch x && ls"),
            ("bash -c ls", "ls"),
            ("/bin/bash -lc 'echo '\\''a'\\'''", "echo 'a'"),
            ("/bin/bash -lc \"echo a\"", "echo a"),
            ("/bin/bash -lc \"echo $X\"", "/bin/bash -lc \"echo $X\""),
            ("/bin/bash -lc 'ls' x", "/bin/bash -lc 'ls' x"),
            ("/bin/bash -lc 'ls'; rm x", "/bin/bash -lc 'ls'; rm x"),
            ("/bin/bash -lc ls > x", "/bin/bash -lc ls > x"),
            ("X=1 /bin/bash -lc ls", "X=1 /bin/bash -lc ls"),
            ("/tmp/bash -lc ls", "/tmp/bash -lc ls"),
            ("/bin/bash -ic ls", "/bin/bash -ic ls"),
            ("/bin/bash -lc 'ls", "/bin/bash -lc 'ls"),
            ("ls -la", "ls -la"),
        ] {
            assert_eq!(without_shell(line), want, "{line}");
        }
        assert_eq!(line_of_words(&["bash", "-lc", "a b"]), "a b");
        assert_eq!(line_of_words(&["bash", "-lc", "a b", "c"]), "bash -lc 'a b' c");
        assert_eq!(line_of_words(&["touch", "a b"]), "touch 'a b'");
    }
}
