//! Puts into the program what its version says: the number, and in a release the commit and that commit's day. And has the
//! linker put the functions side by side that a start calls, where it knows how.
//!
//! Nothing of the machine, the hour or the network is in it: the same commit gives the same text.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The functions that a start calls, as `cargo xtask order` saw them.
const ORDER: &str = "start.order";

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
    println!("cargo::rerun-if-changed={ORDER}");
    if is_release && let Some(arguments) = ordering() {
        arguments.iter().for_each(|argument| println!("cargo::rustc-link-arg-bins={argument}"));
    }
}

/// What tells the linker of the order, if the one that is at work here takes it. Without it the program is the same, with more
/// of its file in memory.
fn ordering() -> Option<[String; 2]> {
    let list = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).join(ORDER);
    let arguments =
        [format!("-Wl,--symbol-ordering-file={}", list.display()), "-Wl,--no-warn-symbol-ordering".to_owned()];
    let folder = PathBuf::from(env::var_os("OUT_DIR")?);
    let source = folder.join("probe.rs");
    fs::write(&source, "fn main() {}\n").ok()?;
    let mut probe = Command::new(env::var_os("RUSTC")?);
    probe.arg("--target").arg(env::var_os("TARGET")?).arg("--out-dir").arg(&folder).arg(&source);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut chosen = OsString::from("linker=");
        chosen.push(linker);
        probe.arg("-C").arg(chosen);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    probe.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    probe.args(arguments.iter().flat_map(|argument| ["-C".to_owned(), format!("link-arg={argument}")]));
    probe.output().is_ok_and(|told| told.status.success()).then_some(arguments)
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
