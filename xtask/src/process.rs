//! Programs that a command starts and waits for.

use std::process::Command;

use anyhow::{Context as _, bail};

/// Runs a program to its end, with our own streams.
pub(crate) fn run_checked(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{name} could not be started"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}
