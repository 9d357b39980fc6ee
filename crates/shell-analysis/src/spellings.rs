//! Commands in other spellings of the paths that their words name.
//!
//! It must not know programs: a word is a path by how it looks.

use super::{
    cwd::PossibleCwd,
    line::Place,
    word::{GLOB, ShellWord, UNKNOWN},
};
use crate::{
    path,
    path_style::{STYLES, StyleFolders},
};

/// The most folders from which the paths of a command are looked at.
const MOST_FOLDERS: usize = 4;

/// The most words that are taken for paths although nothing shows that they are.
const MOST_SINGLE: usize = 4;

/// Returns `argv` with every path tidied that holds steps up, dots or doubled slashes. None if no word does.
pub(super) fn normalised_argv(argv: &[ShellWord]) -> Option<Vec<ShellWord>> {
    let tidied: Vec<ShellWord> = argv.iter().map(|word| respell_word(word, &tidied_word)).collect();
    (tidied != argv).then_some(tidied)
}

/// Returns `argv` in the other spellings of its paths, for rules that deny: each from the working folder, from the root and from the home.
pub(super) fn other_spellings(place: &Place, here: &PossibleCwd, argv: &[ShellWord]) -> Vec<Vec<ShellWord>> {
    let folders = StyleFolders { working: &place.cwd, home: place.home.as_deref() };
    let mut found: Vec<Vec<ShellWord>> = Vec::new();
    let Some((program, words)) = argv.split_first() else { return found };
    let mut keep = |words: Vec<ShellWord>, was: &[ShellWord]| {
        let argv: Vec<ShellWord> = std::iter::once(program.clone()).chain(words).collect();
        if argv[1..] != *was && !found.contains(&argv) {
            found.push(argv);
        }
    };
    for from in here.likely_dirs().take(MOST_FOLDERS) {
        for style in STYLES {
            let in_style = |text: &str| {
                let path = folders.resolve_text(from, text).filter(|_| is_path(text))?;
                folders.format_path(&path, style)
            };
            keep(words.iter().map(|word| respell_word(word, &in_style)).collect(), words);
        }
        // A text that looks like a word may be the name of a file.
        let single =
            |word: &&(usize, &ShellWord)| word.1.as_literal().is_some_and(|text| !is_path(text) && is_name(text));
        let all: Vec<(usize, &ShellWord)> = words.iter().enumerate().collect();
        for (at, word) in all.iter().filter(single).rev().take(MOST_SINGLE) {
            for text in folders.resolve_text(from, &word.value).iter().flat_map(|path| folders.all_spellings(path)) {
                let mut other = words.to_vec();
                other[*at] = ShellWord::from_text(&text);
                keep(other, words);
            }
        }
    }
    found
}

/// Returns `word` with its text, and its possible texts, changed by `spell` where that gives something.
fn respell_word(word: &ShellWord, spell: &dyn Fn(&str) -> Option<String>) -> ShellWord {
    let one = |text: &str| {
        let value = value_of(text)?;
        let begin = &text[..text.len() - value.len()];
        spell(value).map(|spelled| format!("{begin}{spelled}"))
    };
    let perhaps = word.perhaps.iter().map(|text| one(text).unwrap_or_else(|| text.clone())).collect();
    match one(&word.value).filter(|text| *text != word.value) {
        None => ShellWord { perhaps, ..word.clone() },
        Some(value) => {
            let raw = value.replace(GLOB, "*").replace(UNKNOWN, "");
            ShellWord { raw, value, perhaps, ..word.clone() }
        }
    }
}

/// Returns the part of a word that may be a path: all of it, or the part after the sign that gives an option or a variable its value. None
/// for another option and for an address.
fn value_of(text: &str) -> Option<&str> {
    if text.contains("://") {
        return None;
    }
    match text.split_once('=') {
        Some((name, value)) if !name.contains('/') => Some(value),
        Some(_) | None => (!text.starts_with('-')).then_some(text),
    }
}

fn is_path(text: &str) -> bool {
    !text.contains(char::is_whitespace) && (text.contains('/') || text == "." || text == ".." || text.starts_with('~'))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace) && !text.contains('=')
}

/// Returns the path `text` tidied. None if it is tidy. A part that is only known when the line runs may hold steps of its own: the target
/// of a step up after it is unknown.
fn tidied_word(text: &str) -> Option<String> {
    if !is_path(text) {
        return None;
    }
    let parts: Vec<&str> = text.split('/').collect();
    let unknown = parts.iter().position(|part| part.contains(UNKNOWN));
    if unknown.is_some_and(|at| parts[at..].contains(&"..")) {
        return Some(UNKNOWN.to_string());
    }
    let tidied = path::normalised_path(text);
    (tidied != text).then_some(tidied)
}

#[cfg(test)]
mod tests {
    use super::normalised_argv;
    use crate::word::ShellWord;

    #[test]
    fn a_command_is_tidied_where_its_words_are_paths() {
        for (line, want) in [
            ("rm src/../a", Some("rm a")),
            ("rm src/a", None),
            ("rm ./src/a ..", None),
            ("cat --file=src/../../x", Some("cat --file=../x")),
            ("curl https://x/a/../b", None),
            ("sed s/a/../b", Some("sed s/b")),
            ("git log a..b", None),
            ("./x/../y", Some("./y")),
        ] {
            let argv: Vec<ShellWord> = line.split(' ').map(ShellWord::from_text).collect();
            let got = normalised_argv(&argv)
                .map(|argv| argv.iter().map(|word| word.value.clone()).collect::<Vec<_>>().join(" "));
            assert_eq!(got.as_deref(), want, "{line}");
        }
    }
}
