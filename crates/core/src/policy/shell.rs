//! Judges the shell lines of calls: what `countersign-shell-analysis` finds in them.
//!
//! It must not know what a line is made of, nor rules or grants.

pub use countersign_shell_analysis::{Classes, files};
pub(crate) use countersign_shell_analysis::{
    Line, NO_COMMAND, Piece, ShellContext, Wild, classes_of, grants_interpreter, patterns, plain_form,
};
use countersign_shell_analysis::{MachinePaths, ShellCall, analyze_call};

use super::{evaluate::Surroundings, subject::Subject};
use crate::tool::Shell;

/// Judges what a shell reads of `subject`; none if it reads nothing.
pub(crate) fn line_of(subject: &Subject, surroundings: &Surroundings) -> Option<Line> {
    match &subject.shell {
        Shell::Nothing => None,
        Shell::Line { .. } | Shell::Perhaps { .. } => line_in(subject, &context_of(subject, surroundings)),
    }
}

/// The same, as run in `context`.
pub(crate) fn line_in(subject: &Subject, context: &ShellContext) -> Option<Line> {
    analyze_call(&call_of(subject), context)
}

/// Returns the place in which the line of `subject` runs.
pub(crate) fn context_of(subject: &Subject, surroundings: &Surroundings) -> ShellContext {
    let paths = MachinePaths {
        home: surroundings.home.as_deref(),
        temporary: &surroundings.temporary,
        protected: &surroundings.protected,
        unreadable: &surroundings.unreadable,
    };
    ShellContext::from_call(&call_of(subject), &paths)
}

/// Returns `subject` as far as its shell line is concerned.
fn call_of(subject: &Subject) -> ShellCall<'_> {
    ShellCall {
        tool: &subject.tool,
        shell: &subject.shell,
        arguments: &subject.arguments,
        cwd: &subject.cwd,
        session_folder: subject.session_folder.as_deref(),
        is_later: subject.is_later,
    }
}
