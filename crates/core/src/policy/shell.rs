//! Judges the shell lines of calls by the results of `countersign-shell-analysis`.
//!
//! It must not know the syntax of a line, nor rules or grants.

pub(crate) use countersign_shell_analysis::{
    GlobForm, LineAnalysis, LinePart, NO_COMMAND, ShellContext, allow_patterns, classes_of, grants_interpreter,
    plain_form,
};
pub use countersign_shell_analysis::{LineClasses, files, reads_open_input};
use countersign_shell_analysis::{MachinePaths, ShellCall, analyze_call};

use super::{evaluate::PathContext, subject::PolicySubject};
use crate::tool::ShellInput;

/// Analyses the shell input of `subject`; none if it has none.
pub(crate) fn line_of(subject: &PolicySubject, path_context: &PathContext) -> Option<LineAnalysis> {
    match &subject.shell {
        ShellInput::Nothing => None,
        ShellInput::Line { .. } | ShellInput::Perhaps { .. } => line_in(subject, &context_of(subject, path_context)),
    }
}

/// Analyses it, as run in `context`.
pub(crate) fn line_in(subject: &PolicySubject, context: &ShellContext) -> Option<LineAnalysis> {
    analyze_call(&call_of(subject), context)
}

/// Returns the context in which the line of `subject` runs.
pub(crate) fn context_of(subject: &PolicySubject, path_context: &PathContext) -> ShellContext {
    let paths = MachinePaths {
        home: path_context.home.as_deref(),
        temporary: &path_context.temporary,
        protected: &path_context.protected,
        unreadable: &path_context.unreadable,
    };
    ShellContext::from_call(&call_of(subject), &paths)
}

/// Returns `subject` as far as its shell line is concerned.
fn call_of(subject: &PolicySubject) -> ShellCall<'_> {
    ShellCall {
        tool: &subject.tool,
        shell: &subject.shell,
        arguments: &subject.arguments,
        cwd: &subject.cwd,
        session_folder: subject.session_folder.as_deref(),
        is_later: subject.is_later,
    }
}
