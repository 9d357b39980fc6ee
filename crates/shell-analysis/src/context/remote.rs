//! Context of a line for the shell of another machine: its folders are unknown, and so is the kind of shell.
//!
//! Harm beyond the working folder is recognised by the line itself: a path from the root or from a home, and any path that leads out of the
//! folder in which it begins.

use serde_json::Value;

use super::{ShellCall, ShellContext as Place, StartFolder};
use crate::{path, word::WORKING};

/// The arguments of calls that change nothing about what a line does.
const HARMLESS_ARGUMENTS: [&str; 5] = ["timeout", "timeoutMs", "timeout_ms", "background", "yieldMs"];

/// The arguments that say where a line begins.
const FOLDERS: [&str; 4] = ["workdir", "cwd", "workingDirectory", "working_directory"];

/// Signs that shells with an unknown grammar take for a command or for a pattern that runs one.
const READ_OTHERWISE: [&str; 6] = ["?(", "*(", "+(", "@(", "!(", "=("];

/// Returns the context of the line of `subject`.
pub(super) fn remote_context(subject: &ShellCall<'_>) -> Place {
    let (mut start, mut beside) = (StartFolder::Working, None);
    let line = subject.shell_line();
    for (name, value) in subject.arguments {
        match (name.as_str(), value) {
            (name, _) if HARMLESS_ARGUMENTS.contains(&name) || line.is_some_and(|(argument, _)| argument == name) => {}
            (name, Value::Null) if FOLDERS.contains(&name) => {}
            (name, Value::String(folder)) if FOLDERS.contains(&name) => {
                // Two of them are no known folder.
                start = if start == StartFolder::Working { begins_in(folder) } else { StartFolder::Unknown };
            }
            _ => beside = beside.or_else(|| Some(format!("the argument {name}"))),
        }
    }
    if line.is_some_and(|(_, line)| is_read_otherwise(line)) {
        beside = Some("text that other shells read in another way".to_owned());
    }
    Place {
        tool: subject.tool.to_owned(),
        cwd: WORKING.to_owned(),
        start,
        temporary: vec!["/tmp".to_owned(), "/var/tmp".to_owned()],
        beside,
        ..Place::default()
    }
}

fn begins_in(folder: &str) -> StartFolder {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+ ".contains(letter);
    match folder.trim() {
        "" | "." => StartFolder::Working,
        folder if folder.chars().all(is_plain) => StartFolder::Folder(path::resolve(WORKING, folder)),
        _ => StartFolder::Unknown,
    }
}

/// Reports whether the shell of another machine may find other commands in a line than the one whose grammar is known.
fn is_read_otherwise(line: &str) -> bool {
    READ_OTHERWISE.iter().any(|signs| line.contains(signs))
        || line.contains('\'') && line.contains('\\') && !backslashes_read_alike(line)
}

/// Reports whether each backslash means the same to every shell: in single quotes some take it for a sign before a quote or another
/// backslash, outside of quotes some read the letters after it.
fn backslashes_read_alike(line: &str) -> bool {
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '#') => return false,
            (None, '$') if matches!(letters.peek(), Some('\'' | '"')) => return false,
            (None, '\\') => match letters.next() {
                Some(next) if next.is_ascii_punctuation() && !"'\"\\".contains(next) || next == ' ' => {}
                Some(_) | None => return false,
            },
            (Some('\''), '\\') if matches!(letters.peek(), Some('\'' | '\\') | None) => return false,
            (Some('"'), '\\') if !letters.next().is_some_and(|next| next.is_alphanumeric()) => return false,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    quote.is_none()
}
