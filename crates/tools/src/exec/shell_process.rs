//! A new shell, in a process group of its own, with nothing but its text as input.
//!
//! It must not know what it will run.

use std::{
    fs::File,
    io,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::signal::{SigSet, SigmaskHow},
    unistd::{Pid, pipe2},
};

/// A shell that was started.
pub(super) struct ShellProcess {
    pub(super) pid: Pid,
    pub(super) input: File,
    /// Not yet taken by the shell.
    pub(super) pending: Vec<u8>,
}

impl ShellProcess {
    /// Starts a shell in `cwd` if that is there, else where this process is.
    pub(super) fn start(cwd: Option<&Path>) -> io::Result<Self> {
        let (program, arguments) = find_shell();
        let (output, input) = pipe2(OFlag::O_CLOEXEC)?;
        let flags = OFlag::O_NONBLOCK;
        fcntl(&input, FcntlArg::F_SETFL(flags))?;
        let mut command = Command::new(&program);
        command.args(arguments).stdin(output).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        if let Some(cwd) = cwd.filter(|cwd| cwd.is_dir()) {
            command.current_dir(cwd).env("PWD", cwd);
        }
        let child = with_signals_unblocked(|| command.spawn());
        let child = child.map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        Ok(Self { pid: Pid::from_raw(pid), input: File::from(input), pending: Vec::new() })
    }
}

/// Runs `start` with all signals unblocked: a new process has the mask of the thread that starts it, and this process blocks
/// most.
pub(super) fn with_signals_unblocked<T>(start: impl FnOnce() -> T) -> T {
    let deaf = SigSet::empty().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let started = start();
    if let Ok(deaf) = deaf {
        // Fails for no set that the system gave.
        let _ = deaf.thread_set_mask();
    }
    started
}

/// Returns the path and arguments of bash if it exists, else of the system's shell.
fn find_shell() -> (PathBuf, &'static [&'static str]) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let candidates = folders.chain(["/bin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    let runs = |program: &PathBuf| program.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    match candidates.map(|folder| folder.join("bash")).find(runs) {
        Some(bash) => (bash, &["--noprofile", "--norc"]),
        None => (PathBuf::from("/bin/sh"), &[]),
    }
}
