//! The exec child: our own program started again, which owns a session's shell and everything that the shell starts.
//!
//! It must not know sessions, tools or policy. It leads a session of its own (no terminal signal reaches it), adopts every orphan of its commands, and holds one end of
//! a socket whose other end only the gateway has. When that closes, even by `kill -9`, it kills all its descendants at once and ends. There is no
//! death signal on it: that would fire when the *thread* that started it ends.

pub(crate) mod child;
mod descendants;
pub(crate) mod frame;
mod script;
mod starting;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// How to start the exec child: a program, usually the gateway's own, that calls [`child_main`].
///
/// A test binary serves too: an ignored test that calls [`child_main`], started with `--ignored --exact NAME`. What the harness prints goes
/// nowhere, for the child talks over its standard input alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program, absolute.
    pub program: PathBuf,
    /// What makes the program call [`child_main`].
    pub leading_args: Vec<OsString>,
}

impl Launcher {
    /// The hidden argument of the gateway's binary.
    pub const ARGUMENT: &'static str = "__exec";

    /// The gateway's own binary.
    pub fn new(program: &Path) -> Self {
        Self { program: program.to_owned(), leading_args: vec![Self::ARGUMENT.into()] }
    }
}

/// Is the exec child. To be called before anything else in the process: it starts no runtime and needs no configuration.
pub fn child_main() -> ExitCode {
    match child::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the exec child gave up");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[ignore = "is the exec child of other tests"]
    fn exec_child() {
        std::process::exit(i32::from(super::child_main() != std::process::ExitCode::SUCCESS));
    }
}
