//! Scripts of `sed` that do nothing but edit the text that passes.
//!
//! It must not know more of sed than such scripts need: what is not read here may run a program, write a file or read one.

/// Reports whether the arguments of `sed` hold such scripts and nothing else. None of them for a word that is not literal.
pub(super) fn only_edits(arguments: &[Option<&str>]) -> bool {
    let (mut scripts, mut operands) = (Vec::new(), Vec::new());
    // Number of operands before the last option: to some versions the first of them is the script, and options end there.
    let mut early = 0;
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let Some(word) = *word else {
            operands.push(None);
            continue;
        };
        if word.starts_with('-') && word.len() > 1 {
            early = operands.len();
        }
        match word {
            "--" => operands.extend(rest.by_ref().copied()),
            "--quiet" | "--silent" | "--regexp-extended" | "--separate" | "--null-data" | "--unbuffered"
            | "--posix" | "--sandbox" | "--in-place" | "--version" | "--help" => {}
            "--expression" => scripts.push(rest.next().copied().flatten()),
            _ => match word.strip_prefix("--") {
                Some(long) => match long.split_once('=') {
                    Some(("expression", script)) => scripts.push(Some(script)),
                    Some(("in-place", suffix)) if names_file(suffix) => return false,
                    Some(("in-place" | "line-length", _)) => {}
                    Some(_) | None => return false,
                },
                None => match word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                    Some(letters) => {
                        let flags = letters.trim_start_matches(['n', 'E', 'r', 's', 'u', 'z']);
                        match flags.chars().next() {
                            // A suffix may follow, and is no option.
                            Some('i') if names_file(flags) => return false,
                            None | Some('i') => {}
                            Some('e') if flags.len() == 1 => scripts.push(rest.next().copied().flatten()),
                            Some('e') => scripts.push(flags.get(1..)),
                            Some(_) => return false,
                        }
                    }
                    None => operands.push(Some(word)),
                },
            },
        }
    }
    if scripts.is_empty() {
        let Some(first) = operands.first() else { return true };
        scripts.push(*first);
        // Some versions take the next word for the suffix of `-i`, even an empty one.
        scripts.extend(operands.get(1).copied().filter(|_| *first == Some("")));
    }
    scripts.extend(operands.first().copied().filter(|_| early > 0));
    scripts.into_iter().all(|script| script.is_some_and(|script| check_script(script).is_some()))
}

/// Reports whether the arguments of `sed` have it show its output, and change no file.
pub(super) fn only_shows(arguments: &[Option<&str>]) -> bool {
    let changes_file = |word: &str| match word.strip_prefix("--") {
        Some(long) => long.starts_with("in-place"),
        None => word.strip_prefix('-').is_some_and(|letters| letters.contains('i')),
    };
    arguments.iter().all(|word| word.is_some_and(|word| !changes_file(word))) && only_edits(arguments)
}

/// Returns the positions of scripts among the arguments of `sed`, perhaps joined to an option.
pub(super) fn script_positions(arguments: &[&str]) -> Vec<usize> {
    let (mut scripts, mut operands) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'));
        let flags = letters.map(|letters| letters.trim_start_matches(['n', 'E', 'r', 's', 'u', 'z']));
        match (*word, flags) {
            ("--", _) => {
                operands.extend(at + 1..arguments.len());
                break;
            }
            ("--expression", _) | (_, Some("e")) => {
                at += 1;
                scripts.push(at);
            }
            (word, _) if word.starts_with("--expression=") => scripts.push(at),
            (_, Some(flags)) if flags.starts_with('e') => scripts.push(at),
            (_, Some(_)) => {}
            (word, None) if word.starts_with("--") => {}
            (_, None) => operands.push(at),
        }
        at += 1;
    }
    if scripts.is_empty() {
        scripts.extend(operands.first());
    }
    scripts
}

/// Reports whether a suffix of backups is a name instead, perhaps in another folder: its star is the name that the file has.
fn names_file(suffix: &str) -> bool {
    suffix.contains(['/', '*'])
}

/// Reads a script to its end; none where something in it is not known to be harmless.
fn check_script(script: &str) -> Option<()> {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || matches!(c, ';' | '{' | '}'));
        rest = past_addresses(rest)?;
        let Some(command) = rest.chars().next() else { return Some(()) };
        rest = &rest[command.len_utf8()..];
        match command {
            '{' => {}
            'p' | 'P' | 'd' | 'D' | 'q' | 'Q' | '=' | 'n' | 'N' | 'h' | 'H' | 'g' | 'G' | 'x' | 'l' | 'z' | 'F' => {
                rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
                if !rest.is_empty() && !rest.starts_with([';', '\n', '}']) {
                    return None;
                }
            }
            's' | 'y' => {
                let delimiter = rest.chars().next().filter(is_delimiter)?;
                let put_in = past_delimiter(&rest[delimiter.len_utf8()..], delimiter)?;
                rest = if command == 's' {
                    past_replacement(put_in, delimiter)?
                } else {
                    past_delimiter(put_in, delimiter)?
                };
                rest =
                    rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, 'g' | 'p' | 'i' | 'I' | ' '));
                if !rest.is_empty() && !rest.starts_with([';', '\n', '}']) {
                    return None;
                }
            }
            '#' => rest = rest.find('\n').map_or("", |end| &rest[end..]),
            // Text to the end of the line; a script of more lines may go on in it.
            'a' | 'i' | 'c' if !rest.contains('\n') => return Some(()),
            // A label ends at the end of its line or before; what follows is read as commands all the same.
            ':' | 'b' | 't' | 'T' => rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == ' '),
            _ => return None,
        }
    }
}

/// Reports whether a sign may stand between the parts of a command. Signs that are not ASCII may be other letters to sed, or the same as
/// others.
fn is_delimiter(sign: &char) -> bool {
    sign.is_ascii_punctuation() && !"\\;".contains(*sign)
}

/// Returns the text after addresses and `!`.
fn past_addresses(mut text: &str) -> Option<&str> {
    loop {
        text = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '$' | ',' | '!' | '+' | '~' | ' '));
        let (delimiter, pattern) = match (text.strip_prefix('/'), text.strip_prefix('\\')) {
            (Some(pattern), _) => ('/', pattern),
            (None, Some(rest)) => {
                let delimiter = rest.chars().next().filter(is_delimiter)?;
                (delimiter, &rest[delimiter.len_utf8()..])
            }
            (None, None) => return Some(text),
        };
        text = past_delimiter(pattern, delimiter)?.trim_start_matches(['I', 'M']);
    }
}

/// Returns the text after the next `delimiter` that no backslash escapes. In brackets some versions do not take it for the end: a text in
/// which that matters is not read.
fn past_delimiter(text: &str, delimiter: char) -> Option<&str> {
    let mut letters = text.char_indices();
    let mut bracket = false;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()?),
            '\n' => return None,
            letter if letter == delimiter => return (!bracket).then(|| &text[at + letter.len_utf8()..]),
            '[' => bracket = true,
            ']' => bracket = false,
            _ => {}
        }
    }
    None
}

/// Returns the same of what is put in: brackets are plain there.
fn past_replacement(text: &str, delimiter: char) -> Option<&str> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()?),
            '\n' => return None,
            letter if letter == delimiter => return Some(&text[at + letter.len_utf8()..]),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::only_edits;

    fn read(words: &[&str]) -> bool {
        let words: Vec<Option<&str>> = words.iter().map(|word| Some(*word)).collect();
        only_edits(&words)
    }

    #[test]
    fn a_script_that_only_edits_is_known() {
        for words in [
            &["s/a/b/", "x"][..],
            &["-n", "1,20p", "x"],
            &["-n", "$p;/a b/,/c/{=;p}", "x"],
            &["-i.bak", "s|/usr/lib|/opt|g", "x"],
            &["-E", "-e", "s/(a)/\\1/gI", "-e", "/^#/d", "x"],
            &["-ne", "5q;d", "x"],
            &["--expression=s,a,b,2", "x"],
            &[":a;N;$!ba;s/\\n/ /g"],
            &["1a; e is text"],
            &["s/[^a-z]//g"],
            &["s/^/[/;s/$/]/"],
            &["\\,usr/lib,d"],
            &["# a comment; e is text\np"],
            &["-e", "#x", "-e", "p"],
            &["--version"],
            &[],
        ] {
            assert!(read(words), "{words:?}");
        }
    }

    #[test]
    fn scripts_are_distinguished_from_files() {
        for (words, want) in [
            (&["/x/d", "/etc/d"][..], vec![0]),
            (&["-n", "-e", "/x/p", "/etc/d"], vec![2]),
            (&["-ne", "/x/p", "-es/a/b/", "/etc/d"], vec![1, 2]),
            (&["--expression=/x/p", "--", "/etc/d"], vec![0]),
            (&["-i", "--", "/x/d", "/etc/d"], vec![2]),
        ] {
            assert_eq!(super::script_positions(words), want, "{words:?}");
        }
    }

    #[test]
    fn a_script_that_may_do_more_is_not() {
        for words in [
            &["s_.*_evil_e", "a.txt"][..],
            &["s+.*+evil+e"],
            &["-n", "1eevil"],
            &["--expr=1eevil"],
            &["-n", "/x/{e evil\n}"],
            &["-n", "s/.*/evil/MIg1pe"],
            &["s/a/b/gw out"],
            &["w out"],
            &["r /etc/passwd"],
            &["1a\\\ntext\ne evil"],
            &["-f", "script"],
            &["--file=script"],
            &["-nf", "script"],
            &["-es/a/b/e"],
            &["s/[/]/e evil/"],
            &["# a comment\ne evil"],
            &["\\,x,e evil"],
            &["\\\u{fffd}x\u{fffd}d"],
            &["s\u{fffd}a\u{fffd}b\u{fffd}"],
            &["s/a/[/e evil"],
            &["s/a/b"],
            &["p e"],
            &["-s", "--debug", "p"],
            &["-i", "", "w out", "x"],
        ] {
            assert!(!read(words), "{words:?}");
        }
        assert!(!only_edits(&[None, Some("x")]));
        assert!(!only_edits(&[Some("-e"), None]));
    }
}
