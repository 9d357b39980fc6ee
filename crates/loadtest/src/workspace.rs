//! Root and target directory of the workspace, as cargo reports them, and the release build of the product binary.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Directories of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspacePaths {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl WorkspacePaths {
    /// Runs `cargo metadata` in the working directory.
    pub(crate) fn read_metadata() -> anyhow::Result<Self> {
        let output = Command::new(cargo_path())
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata did not print JSON")?;
        let directory =
            |name: &str| metadata[name].as_str().with_context(|| format!("cargo metadata did not print {name}"));
        Ok(Self { root: directory("workspace_root")?.into(), target: directory("target_directory")?.into() })
    }

    /// Builds the release binary into `target`.
    pub(crate) fn build_product(&self, target: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(cargo_path());
        command.args(["build", "--release", "-p", "countersign", "--target-dir"]).arg(target);
        let status = command.current_dir(&self.root).status().context("cannot run cargo")?;
        if !status.success() {
            bail!("the release build failed with {status}");
        }
        Ok(())
    }
}

/// Returns `given` as an absolute path, or builds the release binary and returns its path.
pub(crate) fn product_binary(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(binary) = given {
        return binary.canonicalize().with_context(|| format!("cannot find {}", binary.display()));
    }
    let workspace = WorkspacePaths::read_metadata()?;
    workspace.build_product(&workspace.target)?;
    Ok(workspace.target.join("release/countersign"))
}

/// Returns the path of the cargo that started this process, else `cargo`.
fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
