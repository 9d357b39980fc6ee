//! Packages of npm in the versions that are tried.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Package of npm in the version that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PinnedProgram {
    /// Name in the options, in the folder of all programs, and of the table with its outcomes.
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// File that is run, below `node_modules`.
    pub(crate) file: &'static str,
}

impl PinnedProgram {
    /// Returns the path of the file that is run.
    pub(crate) fn path(self, programs: &Path) -> PathBuf {
        programs.join(self.name).join("node_modules").join(self.file)
    }

    /// Installs the pinned version below `programs`, if it is not there.
    ///
    /// # Errors
    /// npm failed, for example because the registry has no such version.
    pub(crate) fn install(self, programs: &Path) -> anyhow::Result<()> {
        let folder = programs.join(self.name);
        let manifest = folder.join("node_modules").join(self.package).join("package.json");
        let installed = fs::read(&manifest).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if installed.is_some_and(|manifest| manifest["version"] == self.version) && self.path(programs).exists() {
            return Ok(());
        }
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("package.json"), r#"{"private":true}"#)?;
        let package = format!("{}@{}", self.package, self.version);
        println!("installing {package}");
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel=error", &package]).current_dir(&folder);
        let status = npm.status().context("npm could not be started")?;
        if !status.success() {
            bail!("npm install {package} ended with {status}");
        }
        Ok(())
    }
}
