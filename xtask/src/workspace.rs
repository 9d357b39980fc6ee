//! The workspace as cargo describes it: where it is, its packages and what they depend on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Workspace as `cargo metadata --no-deps` reports it, as far as xtask needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a member's dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: DependencyKind,
}

/// Table of cargo with a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DependencyKind {
    Normal,
    Build,
    Dev,
}

impl Workspace {
    /// Asks the cargo that started us.
    pub(crate) fn read_metadata() -> anyhow::Result<Self> {
        let output = Command::new(cargo_path())
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .context("cargo metadata could not be started")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")?;
        Self::from_metadata(&metadata).context("cargo metadata lacks a field that was always there")
    }

    fn from_metadata(metadata: &Value) -> Option<Self> {
        let packages = metadata["packages"].as_array()?.iter().map(Package::from_metadata).collect::<Option<_>>()?;
        Some(Self {
            root: metadata["workspace_root"].as_str()?.into(),
            target: metadata["target_directory"].as_str()?.into(),
            packages,
        })
    }

    /// Returns `path` relative to the root of the workspace.
    pub(crate) fn relative_path<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

impl Package {
    fn from_metadata(package: &Value) -> Option<Self> {
        let dependencies =
            package["dependencies"].as_array()?.iter().map(Dependency::from_metadata).collect::<Option<_>>()?;
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            manifest: package["manifest_path"].as_str()?.into(),
            dependencies,
        })
    }

    /// Returns the folder that holds the package.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(&self.manifest)
    }
}

impl Dependency {
    fn from_metadata(dependency: &Value) -> Option<Self> {
        let kind = match dependency["kind"].as_str() {
            None => DependencyKind::Normal,
            Some("build") => DependencyKind::Build,
            Some("dev") => DependencyKind::Dev,
            Some(_) => return None,
        };
        Some(Self { name: dependency["name"].as_str()?.to_owned(), kind })
    }
}

/// Returns the cargo that started us, else the one on the path.
pub(crate) fn cargo_path() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Returns every Rust file below `folder`, in order, build output aside.
pub(crate) fn rust_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("{} could not be listed", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_of_dependencies_are_distinguished() {
        let metadata = json!({
            "workspace_root": "/w",
            "target_directory": "/w/target",
            "packages": [{
                "name": "a",
                "manifest_path": "/w/a/Cargo.toml",
                "dependencies": [
                    { "name": "x", "kind": null }, { "name": "y", "kind": "dev" }, { "name": "z", "kind": "build" },
                ],
            }],
        });
        let dependency = |name: &str, kind| Dependency { name: name.to_owned(), kind };
        let package = Package {
            name: "a".to_owned(),
            manifest: "/w/a/Cargo.toml".into(),
            dependencies: vec![
                dependency("x", DependencyKind::Normal),
                dependency("y", DependencyKind::Dev),
                dependency("z", DependencyKind::Build),
            ],
        };
        let want = Workspace { root: "/w".into(), target: "/w/target".into(), packages: vec![package] };
        assert_eq!(Workspace::from_metadata(&metadata), Some(want));
    }
}
