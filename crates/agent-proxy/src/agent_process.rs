//! Process of an agent, in a process group of its own that ends whole.

use std::{io, process::ExitStatus, time::Duration};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Time between the end of the input and the first signal.
const FAREWELL: Duration = Duration::from_secs(5);
/// Time between the two signals.
const GRACE: Duration = Duration::from_secs(2);

/// Reason why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentProcessError {
    /// The system could not start it.
    #[error("cannot start {program}: expected a program in PATH, or its path")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// It has no pipes.
    #[error("{program} has no standard input or output")]
    NoPipes {
        /// The program.
        program: String,
    },
}

/// Running agent. Dropping it kills all processes of its group.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    group: Option<Pid>,
}

impl AgentProcess {
    /// Starts an agent. Its standard error is ours.
    ///
    /// # Errors
    /// The system could not start it.
    pub fn start(command: std::process::Command) -> Result<(Self, ChildStdin, ChildStdout), AgentProcessError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut command = Command::from(command);
        let pipe = std::process::Stdio::piped;
        command.stdin(pipe()).stdout(pipe()).process_group(0).kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|cause| AgentProcessError::Start { program: program.clone(), cause })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok((Self { child, group }, input, output)),
            _ => Err(AgentProcessError::NoPipes { program }),
        }
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it after its input was closed: by itself, at SIGTERM, or at SIGKILL. Then all of its group are killed.
    pub async fn end(mut self) -> Option<ExitStatus> {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let limit = if signal == Signal::SIGTERM { FAREWELL } else { GRACE };
            if let Ok(ended) = tokio::time::timeout(limit, self.child.wait()).await {
                return ended.ok();
            }
            self.signal(signal);
        }
        self.child.wait().await.ok()
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended already.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
