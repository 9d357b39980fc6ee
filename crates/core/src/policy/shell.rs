//! Judges a shell command line by every simple command in it, without running or expanding anything.
//!
//! It must not know rules or grants, only what a line is made of: its [`Line`] says which texts a rule is matched against, what keeps an allow rule from covering it,
//! and what it would destroy. Where it cannot tell, it says so, and nobody but a person or a bare `*` lets that pass.

mod awk;
mod calls;
mod carried;
mod classes;
mod containers;
mod cut;
mod declared;
mod delete;
mod descriptors;
mod disk;
mod elsewhere;
mod feed;
pub mod files;
mod find;
mod git;
mod grammar;
mod here;
mod here_documents;
mod limits;
mod line;
mod loops;
mod narrow;
mod options;
mod perhaps;
mod posix;
mod programs;
mod protect;
mod roundabout;
mod runners;
mod sed;
mod simple;
mod spelled;
mod told;
mod unwrap;
mod variables;
mod walk;
mod wild;
mod word;

use super::{evaluate::Surroundings, subject::Subject};
use crate::tool::Shell;

pub use self::classes::Classes;
pub(crate) use self::classes::of_line as classes_of;
pub(crate) use self::line::{Line, Piece, Place};
pub(super) use self::perhaps::NO_COMMAND;
pub(crate) use self::programs::grants_interpreter;
pub(crate) use self::wild::Wild;
pub(crate) use self::word::shown;

/// What a line is called that the grammar does not read.
pub(crate) const UNPARSABLE: &str = "text that cannot be parsed";

/// Judges what a shell reads of `subject`; none if it reads nothing.
pub(crate) fn line_of(subject: &Subject, surroundings: &Surroundings) -> Option<Line> {
    match &subject.shell {
        Shell::Nothing => None,
        Shell::Line { .. } | Shell::Perhaps { .. } => line_in(subject, &Place::of(subject, surroundings)),
    }
}

/// The same, as run in `place`.
pub(crate) fn line_in(subject: &Subject, place: &Place) -> Option<Line> {
    match &subject.shell {
        Shell::Nothing => None,
        Shell::Line { argument, .. } => match subject.line() {
            Some((_, line)) => Some(judge(line, place)),
            None => subject.arguments.get(&**argument).and_then(|value| perhaps::judge_words(value, place)),
        },
        Shell::Perhaps { .. } => perhaps::judge(&subject.arguments, place),
    }
}

/// Judges `command` as run in `place`.
pub(crate) fn judge(command: &str, place: &Place) -> Line {
    walk::Walk::judge(command, place)
}

/// What `command` says when quoting, white space, comments and wrappers that change nothing are taken off. Text that cannot be parsed stays as it is.
pub(crate) fn plain_form(command: &str) -> String {
    let line = judge(command, &Place::default());
    match (&line.opaque, line.plain.is_empty()) {
        (None, false) => line.plain.join("\n"),
        (Some(_), _) | (_, true) => command.trim().to_owned(),
    }
}

/// Patterns for more calls like this one: its program and subcommand, where it is one plain command without power over others.
pub(crate) fn patterns(command: &str, place: &Place) -> Vec<String> {
    let line = judge(command, place);
    let [only] = line.commands.as_slice() else { return Vec::new() };
    let Some([text]) = only.covers.first().map(Vec::as_slice) else { return Vec::new() };
    // What a rule has to name no pattern with a free end does.
    if line.opaque.is_some() || line.floor.is_some() || !only.narrow.is_empty() {
        return Vec::new();
    }
    let tool = place.tool.as_str();
    let inner = text.strip_prefix(tool).and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.strip_suffix(')'));
    // What has a meaning in a pattern would not mean itself.
    let Some(inner) = inner.filter(|_| !tool.contains(['*', '?', '[', ']', '('])) else { return Vec::new() };
    let words: Vec<&str> = inner.split(' ').collect();
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c));
    let (Some(program), sub) = (words.first().filter(|word| plain(word)), words.get(1)) else { return Vec::new() };
    if programs::is_interpreter(program)
        || programs::is_opaque_wrapper(program)
        || programs::deserves_each_look(program)
    {
        return Vec::new();
    }
    match sub {
        Some(sub) if plain(sub) && !sub.starts_with('-') => vec![format!("{tool}({program} {sub}*)")],
        None => vec![format!("{tool}({program}*)")],
        Some(_) => Vec::new(),
    }
}
