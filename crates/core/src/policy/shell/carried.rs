//! Lines in which the words of one command may become those of another: what it reads, what it was told last, what a pattern found.
//!
//! It must not know what becomes of the words.

/// Programs that make words of what they read.
const READERS: [&str; 7] = ["xargs", "parallel", "read", "mapfile", "readarray", "getopts", "select"];

/// Variables that the shell fills with words of the line.
const FILLED: [&str; 6] = ["$_", "${_", "BASH_REMATCH", "BASH_COMMAND", "BASH_EXECUTION_STRING", "OPTARG"];

/// Whether a command in `text` may read words that stand elsewhere in it. Quotes do not hide it.
pub(super) fn is_carrying(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_name(c)).any(|word| READERS.contains(&word)) || FILLED.iter().any(|name| text.contains(name))
}
