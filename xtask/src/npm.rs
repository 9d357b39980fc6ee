//! Packages of npm that a folder with a lock file needs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::process::run_checked;

/// Installs the packages of the lock, unless they are installed and not older than it.
pub(crate) fn install_packages(folder: &Path) -> anyhow::Result<()> {
    if is_installed(folder) {
        return Ok(());
    }
    run_checked(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder))
}

fn is_installed(folder: &Path) -> bool {
    let age = |path: PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    match (age(folder.join("package-lock.json")), age(folder.join("node_modules/.package-lock.json"))) {
        (Some(lock), Some(installed)) => installed >= lock,
        _ => false,
    }
}
