//! `cargo xtask package`: files that packages carry in addition to the binary, into `target/package`: the manual, completions, and the list
//! of everything that the binary is made of; and where there is `dpkg-deb`, a Debian package of all that.
//!
//! The same commit and lock file give the same files: no hour, machine or chance is in them.

mod deb;
mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};

use crate::workspace::{Workspace, cargo_path};

/// Each shell with the name of its file.
const SHELLS: [(&str, &str); 3] = [("bash", "countersign.bash"), ("zsh", "_countersign"), ("fish", "countersign.fish")];

/// Options of the command.
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
            _ => bail!("usage: cargo xtask package [--binary FILE]"),
        }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            command_output(Command::new(cargo_path()).args([
                "build",
                "--profile",
                "dist",
                "--locked",
                "-p",
                "countersign",
            ]))?;
            workspace.target.join("dist/countersign")
        }
    };
    let folder = workspace.target.join("package");
    let manual = folder.join("man");
    if manual.exists() {
        fs::remove_dir_all(&manual)?;
    }
    fs::create_dir_all(&manual)?;
    command_output(Command::new(&binary).arg("man").arg(&manual))?;
    for (shell, file) in SHELLS {
        write_file(&folder.join(file), &command_output(Command::new(&binary).args(["completions", shell]))?)?;
    }
    let metadata = command_output(Command::new(cargo_path()).args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
    let parts = sbom::for_package(&metadata, "countersign")?;
    write_file(&folder.join("countersign.cdx.json"), &serde_json::to_vec_pretty(&parts)?)?;
    if let Some(package) = deb::make_package(workspace, &metadata, &binary, &folder)? {
        println!("{}", package.display());
    }
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Runs a command and gives what it printed.
fn command_output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
