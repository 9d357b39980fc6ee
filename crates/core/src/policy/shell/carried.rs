//! Lines in which the words of one command may become those of another: what it reads, what it was told last, what a pattern found.
//!
//! It must not know what becomes of the words.

use super::{
    programs::base_name,
    word::{UNKNOWN, Word},
};

/// Programs that make words, or names of files, of what they read.
const READERS: [&str; 9] = ["xargs", "parallel", "read", "mapfile", "readarray", "getopts", "select", "cpio", "pax"];

/// Options that have others do it.
const OPTIONS: [&str; 9] =
    ["files0", "files-from", "--files=", " -@", "--stdin", "-from-file", "stdin-paths", "--batch", "--input-file"];

/// Variables that the shell fills with words of the line.
const FILLED: [&str; 6] = ["$_", "${_", "BASH_REMATCH", "BASH_COMMAND", "BASH_EXECUTION_STRING", "OPTARG"];

/// Programs that say what they read in other words.
const REWRITERS: &str =
    "tr sed cut awk gawk mawk rev base64 base32 basenc xxd openssl uudecode zcat gunzip fold paste join expand column";

/// Whether a command in `text` may read words that stand elsewhere in it. Quotes do not hide it.
pub(super) fn is_carrying(text: &str) -> bool {
    let text = without_quotes(text);
    names(&text).any(is_reader) || FILLED.iter().chain(&OPTIONS).any(|sign| text.contains(sign))
}

/// Whether a command in `text` may say what it reads in other words.
pub(super) fn is_rewriting(text: &str) -> bool {
    names(&without_quotes(text)).any(|word| REWRITERS.split_ascii_whitespace().any(|known| known == word))
}

/// Whether a command in `text` may say what nobody can read before it is decoded.
pub(super) fn is_decoding(text: &str) -> bool {
    const DECODERS: &str = "base64 base32 basenc xxd rev openssl uudecode";
    let text = without_quotes(text);
    names(&text).any(|word| DECODERS.split_ascii_whitespace().any(|known| known == word)) || text.contains("%b")
}

/// Whether a command in `text` may make a link: `ln` where a command begins, or behind a word that runs others.
pub(super) fn is_linking(text: &str) -> bool {
    const RUNNERS: [&str; 9] = ["then", "do", "else", "sudo", "xargs", "exec", "command", "env", "nice"];
    let text = without_quotes(text);
    text.match_indices("ln").any(|(at, name)| {
        let (before, behind) = (text[..at].trim_end_matches([' ', '\t']), &text[at + name.len()..]);
        let begins = before.is_empty() || before.ends_with(|c: char| ";|&({!`\n/".contains(c));
        let is_run = before.split_whitespace().last().is_some_and(|word| RUNNERS.contains(&word));
        (begins || is_run) && behind.starts_with(char::is_whitespace)
    })
}

/// Whether a command in `text` may go to another folder.
pub(super) fn is_going(text: &str) -> bool {
    names(&without_quotes(text)).any(|word| matches!(word, "cd" | "pushd" | "popd" | "chdir"))
}

/// Whether a program makes words of what it reads.
pub(super) fn is_reader(program: &str) -> bool {
    READERS.contains(&program)
}

fn without_quotes(text: &str) -> String {
    // Behind a backslash a line goes on.
    text.replace("\\\n", "").chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect()
}

/// The words of `text` that may be a command's name: not those before or behind a dot, as of `read.rs`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    text.split(move |c| !is_name(c))
}

/// Whether a command does nothing but say its words, or take note of them.
pub(super) fn only_says(argv: &[Word]) -> bool {
    let program = argv.first().and_then(Word::as_literal).map(base_name);
    matches!(program, Some("echo" | "printf" | "true" | "false" | ":"))
}

/// What `word` may say to whoever reads it: its parts, with what stands behind a backslash or a percent sign taken for what it may be.
pub(super) fn texts(word: &Word) -> Vec<String> {
    let parts = |text: &str| said(text).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    word.texts().flat_map(|text| std::iter::once(text.to_owned()).chain(parts(text))).collect()
}

/// `text` as `printf` or `echo -e` says it, as far as that can be told.
fn said(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek().copied()) {
            ('\\', Some('n' | 't' | 'r' | 'f' | 'v' | 'a' | 'b' | 'c' | 'e')) => {
                letters.next();
                said.push(' ');
            }
            ('\\', Some(first @ ('x' | 'u' | 'U' | '0'..='9'))) => {
                letters.next();
                let mut digits = 0;
                let radix = if first.is_ascii_digit() { 8 } else { 16 };
                while letters.next_if(|letter| letter.is_digit(radix)).is_some() {
                    digits += 1;
                }
                // A zero alone ends what it stands in.
                said.push(if first == '0' && digits == 0 { ' ' } else { UNKNOWN });
            }
            ('%', Some(_)) => {
                let is_shape = |letter: &char| !letter.is_ascii_alphabetic() && !"%/ ".contains(*letter);
                while letters.next_if(is_shape).is_some() {}
                letters.next();
                said.push(UNKNOWN);
            }
            _ => said.push(letter),
        }
    }
    said
}
