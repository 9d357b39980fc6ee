//! `cargo xtask browser`: drives the console of the debug binary through a real browser.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use crate::workspace::{Workspace, cargo};

/// Where Chromium is looked for, behind the variable `CHROMIUM`.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// A binary that is there; none builds one.
    binary: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        match arguments {
            [] => Ok(Self::default()),
            [flag, file] if flag == "--binary" => Ok(Self { binary: Some(std::path::absolute(file)?) }),
            _ => bail!("usage: cargo xtask browser [--binary FILE]"),
        }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let folder = workspace.root.join("tests/browser");
    let browser =
        browser().context("there is no Chromium here: install it (Debian: chromium) or name it in CHROMIUM")?;
    if !is_installed(&folder) {
        must(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder))?;
    }
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            must(Command::new(cargo()).args(["build", "-p", "countersign"]).current_dir(&workspace.root))?;
            workspace.target.join("debug/countersign")
        }
    };
    let shots = workspace.target.join("browser");
    let status = Command::new("node")
        .args(["--test", "--test-reporter=spec", "--test-timeout=900000", "console.test.mjs"])
        .env("COUNTERSIGN_BINARY", binary)
        .env("CHROMIUM", browser)
        .env("SHOTS", &shots)
        .current_dir(&folder)
        .status()
        .context("node could not be started")?;
    println!("pictures of every page: {}", shots.display());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|found| found.is_file())
}

/// Whether what the lock names is there, and not older than it.
fn is_installed(folder: &Path) -> bool {
    let age = |path: PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    match (age(folder.join("package-lock.json")), age(folder.join("node_modules/.package-lock.json"))) {
        (Some(lock), Some(installed)) => installed >= lock,
        _ => false,
    }
}

fn must(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{name} could not be started"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn a_binary_that_is_there_can_be_named() {
        let options =
            |arguments: &[&str]| Options::parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(options(&[]).unwrap(), Options::default());
        assert!(options(&["--binary", "x"]).unwrap().binary.is_some_and(|file| file.is_absolute()));
        assert!(options(&["--fast"]).is_err());
    }
}
