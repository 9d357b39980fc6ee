//! Calls that always ask and calls that are never allowed, for tools other than the shell.

use crate::{
    policy::{
        evaluate::PathContext,
        obeyed, path, shell,
        subject::{EffectReach, PolicySubject},
    },
    tool::{ShellInput, ToolEffect},
};

/// Returns the protected path that `subject` would write, if it would write one.
pub(super) fn protected_path(subject: &PolicySubject, path_context: &PathContext) -> Option<String> {
    if subject.effect != ToolEffect::Changes {
        return None;
    }
    reached_paths(subject, path_context).into_iter().find(|path| lies_in(&path_context.protected, path))
}

/// Returns the unreadable path that `subject` would read or write, if it would.
pub(super) fn unreadable_path(subject: &PolicySubject, path_context: &PathContext) -> Option<String> {
    if path_context.unreadable.is_empty() {
        return None;
    }
    reached_paths(subject, path_context).into_iter().find(|path| lies_in(&path_context.unreadable, path))
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

/// Returns every path that the call may use, absolute: those that it names, where links lead, and any text that may be one.
fn reached_paths(subject: &PolicySubject, path_context: &PathContext) -> Vec<String> {
    let named = subject.paths.iter().chain(&subject.leads_to).map(|path| (path.as_str(), true));
    // A host has paths of its own, and own tools have no path in another argument.
    let is_unknown = subject.reach == EffectReach::Beyond || subject.tool.starts_with("mcp__");
    let has_others = is_unknown && subject.classes.is_empty();
    let line = subject.shell_line().map(|(argument, _)| argument);
    let others = if has_others { obeyed::path_texts(&subject.arguments, line) } else { Vec::new() };
    let others = others.into_iter().map(|found| (found.text, false));
    let mut reached = Vec::new();
    for (text, is_named) in named.chain(others) {
        // The text itself too: a name may begin with a space, and have a percent sign in it.
        for spelled in obeyed::path_spellings(text).into_iter().chain([text.to_owned()]) {
            let is_absolute = spelled.starts_with('/') || spelled.starts_with('~');
            // Without a folder, only the texts that are surely paths count from the root.
            if is_absolute || is_named || subject.cwd.starts_with('/') {
                reached.push(resolved_path(&spelled, subject, path_context));
            }
        }
    }
    reached.sort_unstable();
    reached.dedup();
    reached
}

fn resolved_paths(subject: &PolicySubject, path_context: &PathContext) -> impl Iterator<Item = String> {
    subject.paths.iter().map(|path| resolved_path(path, subject, path_context))
}

fn resolved_path(path: &str, subject: &PolicySubject, path_context: &PathContext) -> String {
    match path.strip_prefix('~').zip(path_context.home.as_deref()) {
        Some((rest, home)) if rest.is_empty() || rest.starts_with('/') => path::resolve(home, &format!("./{rest}")),
        _ => path::resolve(&subject.cwd, path),
    }
}
