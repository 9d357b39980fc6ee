//! Judges a shell command line by every simple command in it, without running or expanding anything.
//!
//! It must not know rules or grants, only what a line is made of: its [`Line`] says which texts a rule is matched against, what keeps an allow rule from covering it,
//! and what it would destroy. Where it cannot tell, it says so, and nobody but a person or a bare `*` lets that pass.

mod classes;
mod delete;
mod disk;
mod feed;
mod here;
mod limits;
mod line;
mod programs;
mod protect;
mod simple;
mod unwrap;
mod variables;
mod walk;
mod word;

pub use self::classes::Classes;
pub(crate) use self::classes::of_line as classes_of;
pub(crate) use self::line::{Line, Piece, Place};
pub(crate) use self::programs::grants_interpreter;

/// What a line is called that the grammar does not read.
pub(crate) const UNPARSABLE: &str = "text that cannot be parsed";

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
    let [text] = only.cover.as_slice() else { return Vec::new() };
    if line.opaque.is_some() || line.floor.is_some() {
        return Vec::new();
    }
    let words: Vec<&str> = text.trim_start_matches("bash(").trim_end_matches(')').split(' ').collect();
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c));
    let (Some(program), sub) = (words.first().filter(|word| plain(word)), words.get(1)) else { return Vec::new() };
    if programs::is_interpreter(program)
        || programs::is_opaque_wrapper(program)
        || programs::deserves_each_look(program)
    {
        return Vec::new();
    }
    match sub {
        Some(sub) if plain(sub) && !sub.starts_with('-') => vec![format!("bash({program} {sub}*)")],
        None => vec![format!("bash({program}*)")],
        Some(_) => Vec::new(),
    }
}
