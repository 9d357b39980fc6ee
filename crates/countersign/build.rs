//! Puts into the program what its version says: the number, and in a release the commit and that commit's day.
//!
//! Nothing of the machine, the hour or the network is in it: the same commit gives the same text.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=COUNTERSIGN_COMMIT");
    let number = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Where the history is not at hand, such as in a container, whoever builds says it.
    let said = env::var("COUNTERSIGN_COMMIT").ok().filter(|said| !said.trim().is_empty());
    // Work in progress is built again and again, and its commit says little.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = said.or_else(|| if is_release { of_history() } else { None });
    let version = commit.map_or_else(|| number.clone(), |commit| format!("{number} ({})", commit.trim()));
    println!("cargo::rustc-env=COUNTERSIGN_VERSION={version}");
}

/// The commit and its day, such as `1a2b3c4d5e6f 2026-11-22`; with a mark where files differ from it.
fn of_history() -> Option<String> {
    let git = |arguments: &[&str]| {
        let told = Command::new("git").args(arguments).output().ok().filter(|told| told.status.success())?;
        String::from_utf8(told.stdout).ok().map(|text| text.trim().to_owned())
    };
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["log", "-1", "--abbrev=12", "--format=%h %cs"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}, changed") })
}
