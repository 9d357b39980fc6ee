//! How the program ends: its exit code, and what people are told on standard error.

use std::process::ExitCode;

use crate::error_text;

/// Turns how a command ended into an exit code, and tells of an error once.
#[allow(clippy::print_stderr, reason = "this is how a person is told")]
pub(crate) fn report_outcome(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("countersign: {}", error_text::without_numbers(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Whether a command failed because whoever read its output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Writes a line for a person to standard error.
#[allow(clippy::print_stderr, reason = "this is how a person is told")]
pub(crate) fn print_notice(line: &str) {
    eprintln!("countersign: {line}");
}

/// Writes a problem to standard error and returns the exit code of a failure.
pub(crate) fn fail_with(problem: &str) -> ExitCode {
    print_notice(problem);
    ExitCode::FAILURE
}
