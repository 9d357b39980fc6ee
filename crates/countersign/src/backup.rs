//! `backup` and `restore`: a data directory as a folder that can be put elsewhere, and back.
//!
//! Each is done in a folder beside its target, which gets its name once all of it is on the disk and was checked: whatever ends
//! it before leaves nothing but that folder, and the next attempt takes it away.

mod manifest;
mod part;
mod restore;

use std::{
    fs,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use countersign_runtime::Clock;
use countersign_server::session_file::time::iso;
use countersign_store::{Head, Log as _, Partition, Report};
use serde_json::json;

use crate::{
    audit::{EVENT_FORMAT, Form, block_on, open},
    paint::{Paint, Tone},
    place::Place,
};

use manifest::Manifest;
use part::{Copying, Need, Part};
pub(crate) use restore::{Options as Restore, restore};

/// What is left out wherever it lies in a data directory: what belongs to a process, and what can be made again.
const PASSING: [&str; 3] = ["countersign.sock", "countersign.sock.lock", "tokens.json.lock"];
/// What is taken along only by `--secrets`.
const SECRET: [&str; 3] = ["web.key", "secrets.yaml", countersign_tools::secrets::FOLDER];
/// Where agents write what they want: a file of theirs that cannot be read or named must not keep the rest from being copied.
const WORKSPACES: &str = "agents";
/// Where rules and configuration lie in a backup.
const SETTINGS: &str = "settings";
/// Where the rest of a data directory lies in a backup, the record included.
const DATA: &str = "data";

/// What is taken along.
pub(crate) struct Options {
    /// The folder that is made.
    pub(crate) to: PathBuf,
    /// Files of rules and configuration, with whether they may hold secrets.
    pub(crate) settings: Vec<(PathBuf, bool)>,
    pub(crate) secrets: bool,
}

/// `backup`.
pub(crate) fn backup(place: &Place, options: &Options, form: Form) -> anyhow::Result<ExitCode> {
    let log = place.log.file_name().context("the record has no name")?.to_owned();
    if is_occupied(&options.to)? {
        bail!("{} is there already: name a folder that is not", options.to.display());
    }
    if lies_in(&options.to, &place.folder) {
        let (to, folder) = (options.to.display(), place.folder.display());
        bail!("{to} lies in the data directory {folder} and would be a copy of itself: name a folder outside of it");
    }
    // Says in words of its own why there is nothing to read.
    drop(open(&place.log)?);
    let part = Part::make(&options.to)?;
    let data = part.folder().join(DATA);
    part::own_folder(&data)?;
    // SQLite fills a file that is empty, and leaves its mode.
    part::own_file(&data.join(&log), b"")?;
    countersign_store::copy(&place.log, data.join(&log), EVENT_FORMAT)
        .with_context(|| format!("{} could not be copied", place.log.display()))?;
    let report = checked(&data.join(&log), None)?;
    // Objects lie there before the record names them, so those of the copy are there by now.
    let (mut left, mut links) = (Vec::new(), Vec::new());
    // Rules and configuration have a place of their own, and may have to stay out.
    let settings = options.settings.iter().filter_map(|(file, _)| fs::metadata(file).ok());
    let mut copying =
        Copying { leave: settings.map(|found| (found.dev(), found.ino())).collect(), ..Copying::default() };
    for entry in sorted(&place.folder)? {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if is_of_the_log(&name, &log.to_string_lossy()) || PASSING.contains(&name.as_str()) || name.ends_with(".new") {
            continue;
        }
        if SECRET.contains(&name.as_str()) && !options.secrets {
            left.push(name);
            continue;
        }
        if entry.is_symlink() {
            links.push(name.clone());
        }
        let need = if name == WORKSPACES { Need::WhatCanBeRead } else { Need::All };
        copying.copy(&entry, &data.join(&name), need)?;
    }
    let settings = part.folder().join(SETTINGS);
    for (file, may_be_secret) in &options.settings {
        let Some(name) = file.file_name().filter(|_| file.is_file()) else { continue };
        if *may_be_secret && !options.secrets {
            left.push(name.to_string_lossy().into_owned());
            continue;
        }
        if !settings.exists() {
            part::own_folder(&settings)?;
        }
        Copying::default().copy(file, &settings.join(name), Need::All)?;
    }
    let manifest = Manifest {
        form: manifest::FORM,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made: iso(Clock::system().now()),
        log: log.to_string_lossy().into_owned(),
        head: shown(report.head),
        records: report.records,
        redacted: report.redacted,
        secrets: options.secrets,
        files: manifest::files(part.folder())?,
    };
    manifest.write(part.folder())?;
    manifest.check(part.folder())?;
    part.put_in_place(&options.to)?;
    for missed in &copying.missed {
        writeln!(std::io::stderr(), "not copied {missed}")?;
    }
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        let left_out = [left, links].concat();
        let told = json!({ "backup": options.to, "head": manifest.head, "records": manifest.records,
            "files": manifest.files.len(), "left_out": left_out, "not_copied": copying.missed });
        writeln!(out, "{told}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    writeln!(out, "backup    {}, {} files", paint.tone(Tone::Strong, options.to.display()), manifest.files.len())?;
    writeln!(out, "record    {} entries, every one fits", manifest.records)?;
    writeln!(out, "head      {}", manifest.head)?;
    if !left.is_empty() {
        writeln!(out, "left out  {}: they hold secrets, and --secrets takes them along", left.join(", "))?;
    }
    if !links.is_empty() {
        writeln!(out, "left out  what lies behind links: {}", links.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Walks along the chain of a record, and refuses one that does not fit.
fn checked(log: &Path, expected: Option<Head>) -> anyhow::Result<Report> {
    let report = block_on(async {
        let log = open(log)?;
        let report = log.verify(Partition::ZERO, expected).await?;
        log.close().await;
        Ok(report)
    })?;
    match &report.flaw {
        None => Ok(report),
        Some(flaw) => bail!("{}: {flaw}", log.display()),
    }
}

fn shown(head: Head) -> String {
    format!("{}:{}", head.lsn, head.chain)
}

/// Whether something lies at `path` that must not be lost.
fn is_occupied(path: &Path) -> anyhow::Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Whether a path lies in `folder`, or will once it is made.
fn lies_in(path: &Path, folder: &Path) -> bool {
    let real = |path: &Path| std::path::absolute(path).ok()?.ancestors().find_map(|above| above.canonicalize().ok());
    let Ok(folder) = folder.canonicalize() else { return false };
    real(path).is_some_and(|path| path.starts_with(folder))
}

/// Whether a file is the record's own, or SQLite's, or space that is kept for it.
fn is_of_the_log(name: &str, log: &str) -> bool {
    let own = ["", "-wal", "-shm", "-journal", ".lock"];
    let ballast = Path::new(log).with_extension("ballast");
    own.iter().any(|end| name == format!("{log}{end}")) || ballast.as_os_str() == name
}

/// What lies in a folder, in the order of its names.
fn sorted(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut entries = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    Ok(entries)
}
