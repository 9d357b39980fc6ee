//! A long-lived program with pipes in place of a shell: confined like the commands of runs, ended with everything that it started.
//!
//! It must not know what the program reads and writes.

use std::{io, os::fd::OwnedFd, path::Path};

use tokio::{net::UnixStream, process::ChildStderr};

use super::{
    ShellError,
    child_link::{ChildLink, ChildUse, launch_child},
};
use crate::{
    environment::CommandEnvironment,
    exec::{
        ExecLauncher,
        frame::{ChildReport, ProgramCommand},
    },
    live_questions::CallQuestions,
    sandbox::{CallNeeds, Sandbox},
};

/// A program that runs until it ends or this is dropped.
///
/// *Cancellation*: dropping it kills the program and everything that it started. The end of the gateway does so as well, even by
/// `kill -9`.
#[derive(Debug)]
pub struct PipedProgram {
    link: ChildLink,
}

/// The gateway's ends of a program's pipes.
#[derive(Debug)]
pub struct ProgramPipes {
    /// The other end of its input and output. To shut down the writing side ends its input.
    pub stream: UnixStream,
    /// Its error output.
    pub errors: ChildStderr,
}

impl PipedProgram {
    /// Starts `program` with `args` in `cwd`, confined by `sandbox`, which also lets it write below `home`. A name without a slash is searched in the `PATH` of
    /// `environment`. [`PipedProgram::wait_exit`] reports a program that cannot be started.
    ///
    /// # Errors
    /// [`ShellError::Start`] if no exec child can be started, [`ShellError::Sandbox`] if it cannot be confined as it must be.
    pub async fn start(
        launcher: &ExecLauncher,
        sandbox: &Sandbox,
        program: &str,
        args: &[String],
        (cwd, home): (&Path, &Path),
        environment: &CommandEnvironment,
    ) -> Result<(Self, ProgramPipes), ShellError> {
        let start = |error: io::Error| ShellError::Start(error.to_string());
        let needs = CallNeeds { write: vec![home.to_string_lossy().into_owned()], ..CallNeeds::default() };
        let bounds = sandbox.widened_bounds(cwd, cwd, environment, &needs)?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(start)?;
        ours.set_nonblocking(true).map_err(start)?;
        let command = ProgramCommand { program: program.to_owned(), args: args.to_vec() };
        let child_use = ChildUse::Program(command, OwnedFd::from(theirs));
        let mut link = launch_child(launcher, cwd, environment, child_use, bounds).map_err(start)?;
        let errors = link.child.stderr.take();
        let errors = errors.ok_or_else(|| ShellError::Start("the exec child has no error output".to_owned()))?;
        link.open_proxy().await?;
        link.begin_call("", CallQuestions::default());
        let stream = UnixStream::from_std(ours).map_err(start)?;
        Ok((Self { link }, ProgramPipes { stream, errors }))
    }

    /// Waits until the program has ended and returns its exit code: 128 and the signal if a signal ended it.
    ///
    /// *Cancellation*: nothing is lost; not to be called after it returned.
    ///
    /// # Errors
    /// [`ShellError::Start`] if the program was not started, [`ShellError::Broken`] if its end is not known.
    pub async fn wait_exit(&mut self) -> Result<i32, ShellError> {
        match self.link.next().await {
            Ok(ChildReport::Ended(ended)) => Ok(ended.code),
            Ok(ChildReport::Failed(reason)) => Err(ShellError::Start(reason)),
            Ok(ChildReport::Output(_) | ChildReport::Taken(_) | ChildReport::Changed(_) | ChildReport::Network(_)) => {
                Err(ShellError::Broken(io::Error::other("the exec child sent a report of a shell")))
            }
            Err(error) => Err(ShellError::Broken(error)),
        }
    }
}

#[cfg(test)]
mod tests;
