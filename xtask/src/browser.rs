//! `cargo xtask browser`: drives the console of the debug binary, and a front end of hermes, through a real browser.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use crate::{
    npm,
    process::run_checked,
    workspace::{Workspace, cargo_path},
};

/// Names of Chromium for the lookup, after the variable `CHROMIUM`.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Options of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// A binary that is there; none builds one.
    binary: Option<PathBuf>,
    /// A copy of the front end of hermes, which is not part of this repository; without one it is not walked through.
    webui: Option<PathBuf>,
}

const USAGE: &str = "usage: cargo xtask browser [--binary FILE] [--webui DIR]";
/// Names a copy of the front end where no flag does.
const WEBUI: &str = "HERMES_WEBUI";

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { webui: std::env::var_os(WEBUI).map(Into::into), ..Self::default() };
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let path = rest.next().map(std::path::absolute).transpose()?.context(USAGE)?;
            match flag.as_str() {
                "--binary" => options.binary = Some(path),
                "--webui" if path.is_dir() => options.webui = Some(path),
                "--webui" => bail!("--webui {}: there is no such folder", path.display()),
                _ => bail!(USAGE),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let folder = workspace.root.join("tests/browser");
    let browser =
        find_browser().context("there is no Chromium here: install it (Debian: chromium) or name it in CHROMIUM")?;
    npm::install_packages(&folder)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            run_checked(Command::new(cargo_path()).args(["build", "-p", "countersign"]).current_dir(&workspace.root))?;
            workspace.target.join("debug/countersign")
        }
    };
    let shots = workspace.target.join("browser");
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "--test-timeout=900000", "console.test.mjs"]);
    match &options.webui {
        Some(folder) => drop(node.arg("hermes.test.mjs").env(WEBUI, folder)),
        None => println!("the front end of hermes is not walked through: name a copy with --webui DIR or {WEBUI}"),
    }
    let status = node
        .env("COUNTERSIGN_BINARY", binary)
        .env("CHROMIUM", browser)
        .env("SHOTS", &shots)
        .current_dir(&folder)
        .status()
        .context("node could not be started")?;
    println!("pictures of every page: {}", shots.display());
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find_browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|found| found.is_file())
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn a_binary_that_is_there_can_be_named() {
        let options =
            |arguments: &[&str]| Options::parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(options(&[]).unwrap().binary, None);
        assert!(options(&["--webui", "/"]).unwrap().webui.is_some_and(|folder| folder.is_absolute()));
        assert!(options(&["--webui", "/nowhere/at/all"]).is_err() && options(&["--binary"]).is_err());
        assert!(options(&["--binary", "x"]).unwrap().binary.is_some_and(|file| file.is_absolute()));
        assert!(options(&["--fast"]).is_err());
    }
}
