//! `backup` and `restore`: a data directory as a folder that can be put elsewhere, and back.
//!
//! Each works in a folder next to its target, which gets its name once all of it is on the disk and was checked: an interruption
//! before leaves only that folder, and the next attempt removes it.

mod copy_job;
mod folder;
mod manifest;
mod restore;
mod settings;
mod staging_folder;
mod target;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use countersign_runtime::Clock;
use countersign_store::{Log as _, LogHead, Partition, VerifyReport};
use countersign_view::{LineMode, escape, time::format_iso};
use serde_json::json;

use crate::{
    audit::{OutputFormat, block_on, open_located, open_record},
    data_dir::DataDir,
    error_text,
    record_location::EVENT_FORMAT,
    storage::copy_from_database,
    style::{ColourMode, TextStyle},
};

use copy_job::{CopyJob, CopyPolicy, CopySource};
use folder::FolderHandle;
use manifest::BackupManifest;
pub(crate) use restore::{RestoreOptions as Restore, restore_backup};
pub(crate) use settings::SettingsFiles;
use staging_folder::StagingFolder;

/// Entries of a data directory that are left out: those of a process, and those that can be rebuilt.
const PASSING: [&str; 4] = ["countersign.sock", "countersign.sock.lock", "tokens.json.lock", "mcp-approvals.json.lock"];
/// Entries that are copied only with `--secrets`.
const SECRET: [&str; 3] = ["web.key", "secrets.yaml", countersign_tools::secrets::FOLDER];
/// Folder of the agents' workspaces: a file there that cannot be read or named must not keep the rest from being copied.
const WORKSPACES: &str = "agents";
/// Folder of the rules and the configuration in a backup.
const SETTINGS: &str = "settings";
/// Folder of the rest of a data directory in a backup, the record included.
const DATA: &str = "data";

/// Options of a backup.
pub(crate) struct BackupOptions {
    /// The folder that is made.
    pub(crate) to: PathBuf,
    pub(crate) settings: SettingsFiles,
    pub(crate) secrets: bool,
}

/// Runs `backup`.
pub(crate) fn create_backup(place: &DataDir, options: &BackupOptions, form: OutputFormat) -> anyhow::Result<ExitCode> {
    let log = place.log.file_name().context("the path of the record has no file name")?.to_owned();
    let to = may_be_made(&options.to, &place.folder)?;
    // Says in words of its own why there is nothing to read.
    drop(open_located(&place.record())?);
    let part = StagingFolder::for_target(&to)?;
    let data = part.staged_folder().make_folder(DATA.as_ref()).with_context(|| cannot("create", &to))?;
    // SQLite fills a file that is empty, and leaves its mode.
    drop(data.make_file(&log).with_context(|| cannot("create", &to))?);
    let copied = part.path().join(DATA).join(&log);
    match &place.database {
        None => {
            countersign_store::copy_log(&place.log, &copied, EVENT_FORMAT)
                .with_context(|| cannot("copy", &place.log))?;
        }
        Some(settings) => {
            let copy = copy_from_database(settings, &copied).context("cannot copy the record from the database")?;
            anyhow::ensure!(copy.resumed == 0, "{} was written by another process", display_path(&copied));
        }
    }
    let report = verify_log(&copied, None, &place.log)?;
    // Objects lie there before the record names them, so those of the copy are there by now.
    let (mut left, mut links) = (Vec::new(), Vec::new());
    // Rules and configuration have a place of their own, and may have to stay out.
    let mut copying = CopyJob::excluding_files(options.settings.file_ids());
    let source = FolderHandle::open(&place.folder).with_context(|| cannot("open", &place.folder))?;
    for entry in source.entry_names().with_context(|| cannot("read", &place.folder))? {
        let path = place.folder.join(&entry);
        let name = entry.to_str().unwrap_or_default().to_owned();
        if is_of_the_log(&name, &log.to_string_lossy()) || PASSING.contains(&name.as_str()) || name.ends_with(".new") {
            continue;
        }
        if SECRET.contains(&name.as_str()) && !options.secrets {
            left.push(name);
            continue;
        }
        if path.is_symlink() {
            links.push(name.clone());
        }
        let need = if name == WORKSPACES { CopyPolicy::WhatCanBeRead } else { CopyPolicy::All };
        copying.copy_entry(CopySource { folder: &source, name: &entry, path }, &data, &entry, need)?;
    }
    let settings = options.settings.copy_files(part.staged_folder(), SETTINGS, options.secrets)?;
    left.extend(settings.left);
    let manifest = BackupManifest {
        form: manifest::FORM,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made: format_iso(Clock::system().now()),
        log: log.to_string_lossy().into_owned(),
        head: format_head(report.head),
        records: report.records,
        redacted: report.redacted,
        secrets: options.secrets,
        files: manifest::list_files(part.staged_folder())?,
    };
    manifest.write_to(part.staged_folder())?;
    manifest.check_files(part.staged_folder())?;
    part.put_in_place()?;
    for missed in &copying.missed {
        writeln!(std::io::stderr(), "not copied: {missed}")?;
    }
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let left_out = [left, links].concat();
        let summary = json!({ "backup": options.to, "head": manifest.head, "records": manifest.records,
            "files": manifest.files.len(), "left_out": left_out, "not_copied": copying.missed });
        writeln!(out, "{summary}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let paint = ColourMode::for_stdout();
    writeln!(
        out,
        "backup    {}, {} {}",
        paint.apply_style(TextStyle::Strong, display_path(&options.to)),
        manifest.files.len(),
        if manifest.files.len() == 1 { "file" } else { "files" }
    )?;
    let entries = if manifest.records == 1 { "entry" } else { "entries" };
    writeln!(out, "record    {} {entries}, chain verified", manifest.records)?;
    writeln!(out, "head      {}", manifest.head)?;
    if !left.is_empty() {
        let reason = match left.len() {
            1 => "it contains secrets; --secrets includes it",
            _ => "they contain secrets; --secrets includes them",
        };
        writeln!(out, "left out  {}: {reason}", one_line(&left.join(", ")))?;
    }
    if !links.is_empty() {
        writeln!(out, "left out  targets of symlinks: {}", one_line(&links.join(", ")))?;
    }
    for (file, place) in &settings.renamed {
        writeln!(
            out,
            "settings  {} is {} in the backup, because its name was taken",
            display_path(file),
            display_path(place)
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Walks along the chain of a copied record, and refuses one that does not fit. Errors name `source`, of which it is a copy.
fn verify_log(copy: &Path, expected: Option<LogHead>, source: &Path) -> anyhow::Result<VerifyReport> {
    let shown_source = display_path(source);
    let report = block_on(async {
        let log = open_record(copy)?;
        let report = log.verify_chain(Partition::ZERO, expected).await?;
        log.close().await;
        Ok(report)
    });
    let report = report.map_err(|error| {
        anyhow::Error::msg(error_text::chain_text(&error).replace(&copy.display().to_string(), &shown_source))
    })?;
    match &report.flaw {
        None => Ok(report),
        Some(flaw) => bail!("{shown_source}: {flaw}"),
    }
}

/// Returns the text of a failed action on a path.
fn cannot(action: &str, path: &Path) -> String {
    format!("cannot {action} {}", display_path(path))
}

fn format_head(head: LogHead) -> String {
    format!("{}:{}", head.lsn, head.chain)
}

/// Returns the path of the backup, if one may be made there. It is checked before anything is copied.
fn may_be_made(named: &Path, data: &Path) -> anyhow::Result<PathBuf> {
    let to = target::resolve_target(named)?;
    let shown_to = display_path(named);
    if target::is_occupied(&to)? {
        if to.is_dir() {
            bail!("{shown_to} is not empty: choose an empty folder or a new one");
        }
        bail!("{shown_to} is a file, not a folder: choose an empty folder or a new one");
    }
    if target::is_here(&to) {
        bail!("{shown_to} is your working folder: choose a folder that does not exist");
    }
    if target::is_mount_point(&to) {
        bail!("{shown_to} is a mount point, which cannot be replaced: choose a folder in it");
    }
    if target::lies_in(&to, data) {
        let data = display_path(data);
        bail!(
            "{shown_to} is in the data directory {data}, and the backup would contain itself: choose a folder outside of it"
        );
    }
    Ok(to)
}

/// Returns a path as people may see it: agents choose names too.
fn display_path(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Returns a text as people may see it, in one line.
fn one_line(text: &str) -> String {
    escape(text, LineMode::One).into_owned()
}

/// Reports whether a file is the record's own, or SQLite's, or reserved space for it.
fn is_of_the_log(name: &str, log: &str) -> bool {
    let own = ["", "-wal", "-shm", "-journal", ".lock"];
    let ballast = Path::new(log).with_extension("ballast");
    own.iter().any(|end| name == format!("{log}{end}")) || ballast.as_os_str() == name
}
