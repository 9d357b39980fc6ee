//! Lines in which the words of one command may become those of another: its input, the last argument (`$_`), the match of a pattern.
//!
//! It must not know what becomes of the words.

use super::{
    programs::base_name,
    word::{ShellWord, UNKNOWN},
};

/// Programs that make words, or names of files, of what they read.
const READERS: &str = "xargs parallel read mapfile readarray getopts select cpio pax";

/// Options that have others do it.
const OPTIONS: [&str; 9] =
    ["files0", "files-from", "--files=", " -@", "--stdin", "-from-file", "stdin-paths", "--batch", "--input-file"];

/// Variables that the shell fills with words of the line.
const FILLED: [&str; 6] = ["$_", "${_", "BASH_REMATCH", "BASH_COMMAND", "BASH_EXECUTION_STRING", "OPTARG"];

/// Programs that say what they read in other words.
const REWRITERS: &str =
    "tr sed cut awk gawk mawk rev base64 base32 basenc xxd openssl uudecode zcat gunzip fold paste join expand column";

/// Programs whose output is unreadable before it is decoded.
const DECODERS: &str = "base64 base32 basenc xxd rev openssl uudecode";

/// Possible flows of words between the commands of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowSigns {
    /// A command may read words from elsewhere in the line, so that its output may be a path that another uses.
    pub(super) carries: bool,
    /// Words may be others before another command has them.
    pub(super) rewrites: bool,
    /// True if the output of the line may be decoded before another command gets it.
    pub(super) decodes: bool,
    /// It goes to other folders.
    pub(super) goes: bool,
    /// True if it makes names for folders: after one of them `..` leads to an unknown folder.
    pub(super) links: bool,
}

impl FlowSigns {
    /// Returns the signs of a text. Quotes do not hide them.
    pub(super) fn from_text(text: &str) -> Self {
        let text = without_quotes(text);
        let all = command_names(&text)
            .fold(Self::default(), |all, name| all.merged_with(Self { links: false, ..Self::of_program(name) }));
        all.merged_with(Self {
            carries: FILLED.iter().chain(&OPTIONS).any(|sign| text.contains(sign)),
            decodes: text.contains("%b"),
            links: is_linking(&text),
            ..Self::default()
        })
    }

    /// Returns the signs of a program that is run.
    pub(super) fn of_program(name: &str) -> Self {
        let is_one_of = |known: &str| known.split_ascii_whitespace().any(|known| known == name);
        Self {
            carries: is_one_of(READERS),
            rewrites: is_one_of(REWRITERS),
            decodes: is_one_of(DECODERS),
            goes: matches!(name, "cd" | "pushd" | "popd" | "chdir"),
            links: name == "ln",
        }
    }

    /// Returns the signs of both.
    #[must_use]
    pub(super) const fn merged_with(self, other: Self) -> Self {
        Self {
            carries: self.carries || other.carries,
            rewrites: self.rewrites || other.rewrites,
            decodes: self.decodes || other.decodes,
            goes: self.goes || other.goes,
            links: self.links || other.links,
        }
    }
}

/// Reports whether a command in `text` may make a link: `ln` at the beginning of a command, or after a word that runs others.
fn is_linking(text: &str) -> bool {
    const RUNNERS: [&str; 9] = ["then", "do", "else", "sudo", "xargs", "exec", "command", "env", "nice"];
    text.match_indices("ln").any(|(at, name)| {
        let (before, behind) = (text[..at].trim_end_matches([' ', '\t']), &text[at + name.len()..]);
        let begins = before.is_empty() || before.ends_with(|c: char| ";|&({!`\n/".contains(c));
        let is_run = before.split_whitespace().last().is_some_and(|word| RUNNERS.contains(&word));
        (begins || is_run) && behind.starts_with(char::is_whitespace)
    })
}

fn without_quotes(text: &str) -> String {
    // After a backslash a line continues.
    text.replace("\\\n", "").chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect()
}

/// Returns the words of `text` that may be a command's name: not those before or after a dot, as of `read.rs`.
fn command_names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    text.split(move |c| !is_name(c))
}

/// Reports whether a command only prints its words, or stores them.
pub(super) fn only_says(argv: &[ShellWord]) -> bool {
    let program = argv.first().and_then(ShellWord::as_literal).map(base_name);
    matches!(program, Some("echo" | "printf" | "true" | "false" | ":"))
}

/// Returns the possible readings of `word`: its parts, with escapes after a backslash or a percent sign taken for their meaning.
pub(super) fn readable_texts(word: &ShellWord) -> Vec<String> {
    let parts = |text: &str| printed_text(text).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    word.all_texts().flat_map(|text| std::iter::once(text.to_owned()).chain(parts(text))).collect()
}

/// Returns `text` as `printf` or `echo -e` prints it, as far as it can be determined.
fn printed_text(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek().copied()) {
            ('\\', Some('n' | 't' | 'r' | 'f' | 'v' | 'a' | 'b' | 'c' | 'e')) => {
                letters.next();
                printed.push(' ');
            }
            ('\\', Some(first @ ('x' | 'u' | 'U' | '0'..='9'))) => {
                letters.next();
                let mut digits = 0;
                let radix = if first.is_ascii_digit() { 8 } else { 16 };
                while letters.next_if(|letter| letter.is_digit(radix)).is_some() {
                    digits += 1;
                }
                // A zero alone ends what it stands in.
                printed.push(if first == '0' && digits == 0 { ' ' } else { UNKNOWN });
            }
            ('%', Some(_)) => {
                let is_shape = |letter: &char| !letter.is_ascii_alphabetic() && !"%/ ".contains(*letter);
                while letters.next_if(is_shape).is_some() {}
                letters.next();
                printed.push(UNKNOWN);
            }
            _ => printed.push(letter),
        }
    }
    printed
}
