//! End of the program: its exit code, and its text on standard error.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    process::ExitCode,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error_text;

/// Turns how a command ended into an exit code, and tells of an error once.
#[allow(clippy::print_stderr, reason = "this output is for the user")]
pub(crate) fn report_outcome(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // The reader of the output closed the pipe.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("countersign: {}", error_text::without_numbers(&error_text::chain_text(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Reports whether a command failed because the reader of its output has gone.
///
/// A gateway that dies breaks the pipe of its socket too: that error counts only if standard output itself is broken.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let breaks_a_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe);
    breaks_a_pipe && is_closed(std::io::stdout().as_fd())
}

/// Reports whether the pipe or socket that `output` writes to has no reader any more.
fn is_closed(output: BorrowedFd<'_>) -> bool {
    let mut watched = [PollFd::new(output, PollFlags::POLLOUT)];
    let is_polled = poll(&mut watched, PollTimeout::ZERO).is_ok();
    let broken = PollFlags::POLLERR | PollFlags::POLLHUP;
    is_polled && watched[0].revents().is_some_and(|events| events.intersects(broken))
}

/// Writes a line for a person to standard error.
#[allow(clippy::print_stderr, reason = "this output is for the user")]
pub(crate) fn print_notice(line: &str) {
    eprintln!("countersign: {line}");
}

/// Writes a problem to standard error and returns the exit code of a failure.
pub(crate) fn fail_with(problem: &str) -> ExitCode {
    print_notice(problem);
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io, os::fd::AsFd as _};

    use super::{is_broken_pipe, is_closed};

    #[test]
    fn a_pipe_is_closed_when_its_reader_is_gone() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!is_closed(writer.as_fd()));
        drop(reader);
        assert!(is_closed(writer.as_fd()));
        assert!(!is_closed(File::create("/dev/null").unwrap().as_fd()));
    }

    #[test]
    fn a_socket_that_breaks_is_no_closed_output() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("the gateway");
        assert!(!is_broken_pipe(&error), "the output of this test is read");
    }
}
