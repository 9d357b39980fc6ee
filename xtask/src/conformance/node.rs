//! Node.js: an installed one that is new enough, else one that npm provides.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

/// Oldest major version that the suites run on.
const OLDEST: u32 = 22;

/// Returns the path of Node.js, of version 22 or newer.
pub(super) fn find_node() -> anyhow::Result<PathBuf> {
    let installed = Command::new("node").arg("--version").output();
    if let Ok(output) = installed
        && major_version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|major| major >= OLDEST)
    {
        return Ok("node".into());
    }
    println!("Node.js {OLDEST} comes from npm");
    let package = format!("node@{OLDEST}");
    let output = Command::new("npx")
        .args(["--yes", "--package", &package, "--call", "node --print process.execPath"])
        .output()
        .context("npx could not be started")?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !path.is_file() {
        bail!("npm provides no Node.js {OLDEST}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(path)
}

fn major_version(text: &str) -> Option<u32> {
    text.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major_version;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major_version("v22.23.3\n"), Some(22));
        assert_eq!((major_version("22"), major_version("")), (None, None));
    }
}
