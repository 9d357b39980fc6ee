//! Calls that always ask and calls that are never allowed, for tools other than the shell.

use crate::{
    policy::{evaluate::PathContext, path, shell, subject::PolicySubject},
    tool::{ShellInput, ToolEffect},
};

/// Returns the protected path that `subject` would write, if it would write one.
pub(super) fn protected_path(subject: &PolicySubject, path_context: &PathContext) -> Option<String> {
    if subject.effect != ToolEffect::Changes {
        return None;
    }
    resolved_paths(subject, path_context).find(|path| lies_in(&path_context.protected, path))
}

/// Returns the unreadable path that `subject` would read or write, if it would.
pub(super) fn unreadable_path(subject: &PolicySubject, path_context: &PathContext) -> Option<String> {
    if path_context.unreadable.is_empty() {
        return None;
    }
    resolved_paths(subject, path_context).find(|path| lies_in(&path_context.unreadable, path))
}

/// Returns the destructive effect beyond the working folder, or that of a tool which always asks, in words that follow "because it".
pub(super) fn floor_reason(subject: &PolicySubject, path_context: &PathContext) -> Option<String> {
    // A shell call whose command is not a text cannot be judged at all.
    if matches!(subject.shell, ShellInput::Line { .. }) {
        return Some(shell::NO_COMMAND.to_owned());
    }
    if let Some((_, reason)) = path_context.always_asked.iter().find(|(tool, _)| *tool == subject.tool) {
        return Some(reason.clone());
    }
    if subject.effect != ToolEffect::Changes {
        return None;
    }
    resolved_paths(subject, path_context).find(|path| path::is_device(path)).map(|path| format!("writes to {path}"))
}

fn lies_in(roots: &[String], path: &str) -> bool {
    roots.iter().any(|root| path::is_within(&path::resolve("/", root), path))
}

fn resolved_paths(subject: &PolicySubject, path_context: &PathContext) -> impl Iterator<Item = String> {
    let home = path_context.home.as_deref();
    subject.paths.iter().map(move |path| match path.strip_prefix("~/").zip(home) {
        Some((rest, home)) => path::resolve(home, &format!("./{rest}")),
        None => path::resolve(&subject.cwd, path),
    })
}
