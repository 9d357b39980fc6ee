//! The exec child: our own program started again, which owns a session's shell and everything that the shell starts.
//!
//! It must not know sessions, tools or policy. It leads a session of its own (no terminal signal reaches it), adopts
//! every orphan of its commands, and holds one end of a socket whose other end only the gateway has. When that closes,
//! even by `kill -9`, it kills all its descendants at once and ends. There is no death signal on it: that would fire
//! when the *thread* that started it ends. If the child itself is killed, the gateway kills what is left of it.

mod agent_processes;
pub(crate) mod child;
pub(crate) mod descendants;
pub(crate) mod frame;
mod guarded_agents;
mod input;
mod mark;
pub(crate) mod namespace;
mod oom_score;
mod pinned;
mod program;
mod reaper;
mod script;
mod shell_process;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

pub use agent_processes::{acting_processes, acts_for_agent, is_gateway_process, is_hidden, nobody_acts};
pub use guarded_agents::{is_guarded, remember_hook, remember_proxy};
pub(crate) use reaper::spawn_tracked;
pub use reaper::{become_subreaper, kill_remaining, reap};
pub(crate) use script::shell_quote;

/// Launcher of the exec child: a program, usually the gateway's own, that calls [`child_main`].
///
/// A test binary serves too: a test that calls [`child_main`] when an argument requests it, started with `--exact NAME`. What the
/// harness prints goes nowhere, since the child communicates over its standard input alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecLauncher {
    /// The program, absolute.
    pub program: PathBuf,
    /// Arguments that make the program call [`child_main`].
    pub leading_args: Vec<OsString>,
}

impl ExecLauncher {
    /// The hidden argument of the gateway's binary.
    pub const ARGUMENT: &'static str = "__exec";

    /// Creates a launcher of the gateway's own binary.
    pub fn new(program: &Path) -> Self {
        Self { program: program.to_owned(), leading_args: vec![Self::ARGUMENT.into()] }
    }
}

/// True if this process ever started an exec child.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Notes that an exec child is started.
pub(crate) fn note_started() {
    BEGUN.store(true, Ordering::SeqCst);
}

/// Returns true if this process ever started an exec child: if not, it does nothing on behalf of a command.
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::SeqCst)
}

/// Runs the exec child. To be called before anything else in the process: it starts no runtime and needs no configuration.
pub fn child_main() -> ExitCode {
    match mark::put_on().and_then(|()| child::serve_gateway()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the exec child failed");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Command, ExitCode, Stdio},
    };

    /// Arguments that start this test binary as the exec child. The last name matches no test: it only shows the purpose.
    pub(crate) const AS_CHILD: [&str; 3] =
        ["--exact", "exec::tests::a_child_whose_gateway_is_gone_ends", "as-the-exec-child"];

    #[test]
    fn a_child_whose_gateway_is_gone_ends() {
        if std::env::args().any(|argument| argument == AS_CHILD[2]) {
            std::process::exit(i32::from(super::child_main() != ExitCode::SUCCESS));
        }
        let (ours, its) = UnixStream::pair().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(AS_CHILD).stdin(OwnedFd::from(its)).stdout(Stdio::null());
        let mut started = child.spawn().unwrap();
        // The other end of the socket is held by the command too.
        drop(child);
        drop(ours);
        assert!(started.wait().unwrap().success());
    }
}
