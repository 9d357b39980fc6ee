//! What always asks and what is never done, for tools other than the shell.

use crate::{
    policy::{evaluate::Surroundings, path, shell, subject::Subject},
    tool::{Effect, Shell},
};

/// The protected path that `subject` would write, if it would write one.
pub(super) fn protected(subject: &Subject, surroundings: &Surroundings) -> Option<String> {
    if subject.effect != Effect::Changes {
        return None;
    }
    resolved(subject, surroundings).find(|path| lies_in(&surroundings.protected, path))
}

/// The unreadable path that `subject` would read or write, if it would.
pub(super) fn unreadable(subject: &Subject, surroundings: &Surroundings) -> Option<String> {
    if surroundings.unreadable.is_empty() {
        return None;
    }
    resolved(subject, surroundings).find(|path| lies_in(&surroundings.unreadable, path))
}

/// What destroys beyond the working folder, in words that follow "because it".
pub(super) fn reason(subject: &Subject, surroundings: &Surroundings) -> Option<String> {
    // A shell call whose command is not a text cannot be judged at all.
    if matches!(subject.shell, Shell::Line { .. }) {
        return Some(shell::NO_COMMAND.to_owned());
    }
    if subject.effect != Effect::Changes {
        return None;
    }
    resolved(subject, surroundings).find(|path| path::is_device(path)).map(|path| format!("writes to {path}"))
}

fn lies_in(roots: &[String], path: &str) -> bool {
    roots.iter().any(|root| path::is_within(&path::resolve("/", root), path))
}

fn resolved(subject: &Subject, surroundings: &Surroundings) -> impl Iterator<Item = String> {
    let home = surroundings.home.as_deref();
    subject.paths.iter().map(move |path| match path.strip_prefix("~/").zip(home) {
        Some((rest, home)) => path::resolve(home, &format!("./{rest}")),
        None => path::resolve(&subject.cwd, path),
    })
}
