//! `cargo xtask bench`, `load` and `kill`: builds and starts `countersign-loadtest`, which does the work.
//!
//! Its clients must be fast, so the commands use the release build.

use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context as _, bail};

use crate::workspace::{Workspace, cargo_path};

const PACKAGE: &str = "countersign-loadtest";

/// Runs `command` with `arguments` and returns its exit code.
pub(crate) fn run(command: &str, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let status = Command::new(cargo_path())
        .args(["run", "--release", "--package", PACKAGE, "--", command])
        .args(arguments)
        .status()
        .context("cargo could not be started")?;
    Ok(exit_code(status))
}

/// Kills the debug binary for twelve seconds, at the same moments each time. The tests of both packages have built the binaries.
pub(crate) fn kill_briefly(workspace: &Workspace) -> anyhow::Result<()> {
    let debug = workspace.target.join("debug");
    let status = Command::new(debug.join(PACKAGE))
        .args(["kill", "--minutes", "0.2", "--seed", "7", "--binary"])
        .arg(debug.join("countersign"))
        .status()
        .with_context(|| format!("{PACKAGE} could not be started"))?;
    if !status.success() {
        bail!("kill ended with {status}");
    }
    Ok(())
}

fn exit_code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
