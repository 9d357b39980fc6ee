//! Puts into the program what its version says: the number, and in a release the commit and that commit's day; and has a release
//! linked so that it starts with less.
//!
//! Nothing of the machine, the hour or the network is in it: the same commit gives the same text.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    emit_version();
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        pack_addresses();
    }
}

fn emit_version() {
    println!("cargo::rerun-if-env-changed=COUNTERSIGN_COMMIT");
    let number = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    // Where the history is not available, such as in a container, the build environment sets it.
    let from_variable = env::var("COUNTERSIGN_COMMIT").ok().filter(|value| !value.trim().is_empty());
    // Work in progress is built again and again, and its commit says little.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = from_variable.or_else(|| if is_release { of_history() } else { None });
    let version = commit.map_or_else(|| number.clone(), |commit| format!("{number} ({})", commit.trim()));
    println!("cargo::rustc-env=COUNTERSIGN_VERSION={version}");
}

/// Returns the commit and its day, such as `1a2b3c4d5e6f 2026-11-22`; with a mark where files differ from it.
fn of_history() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
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

/// Has the linker write down the program's own addresses in a fiftieth of the room, where that works: the loader reads and maps all of
/// it at every start.
fn pack_addresses() {
    let flag = "-Wl,-z,pack-relative-relocs";
    if is_known(flag).unwrap_or(false) {
        println!("cargo::rustc-link-arg-bins={flag}");
    }
}

/// Reports whether the linker of this build takes a flag, and this machine runs the result: C libraries before 2022 start no program with
/// such a list. A build for another kind of machine cannot be run, and goes without.
fn is_known(flag: &str) -> Option<bool> {
    let target = env::var("TARGET").ok()?;
    let host = env::var("HOST").ok()?;
    let kind = |triple: &str| (triple.split('-').next().map(str::to_owned), triple.contains("-linux-"));
    if kind(&target) != kind(&host) {
        return Some(false);
    }
    let folder = env::var("OUT_DIR").ok()?;
    let (source, program) = (format!("{folder}/asked.rs"), format!("{folder}/asked"));
    fs::write(&source, "fn main() {}").ok()?;
    let mut rustc = Command::new(env::var("RUSTC").ok()?);
    rustc.args(["--edition=2024", "--target", &target, "-C", &format!("link-arg={flag}"), "-o", &program, &source]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    if let Ok(flags) = env::var("CARGO_ENCODED_RUSTFLAGS") {
        rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    }
    Some(rustc.output().ok()?.status.success() && Command::new(&program).status().ok()?.success())
}
