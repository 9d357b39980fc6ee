//! A backup becomes a data directory.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail, ensure};
use countersign_runtime::Clock;
use countersign_view::time::format_iso;
use serde_json::json;

use super::{
    BackupManifest, DATA, SETTINGS, WORKSPACES, cannot,
    copy_job::{CopyJob, CopyPolicy, CopySource},
    display_path,
    folder::FolderHandle,
    format_head,
    staging_folder::StagingFolder,
    target::{is_mount_point, is_occupied, lies_in, resolve_target},
    verify_log,
};
use crate::{
    audit::{OutputFormat, parse_head},
    data_dir::DataDir,
    privileges,
    storage::copy_to_database,
    style::{ColourMode, TextStyle},
};

/// From where, and what becomes of what is there.
pub(crate) struct RestoreOptions {
    pub(crate) from: PathBuf,
    /// True if an existing data directory is put aside.
    pub(crate) replace: bool,
    /// The configuration that the data directory was found by.
    pub(crate) config: Option<PathBuf>,
}

/// Runs `restore`.
pub(crate) fn restore_backup(
    place: &DataDir,
    options: &RestoreOptions,
    form: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let no_backup = || format!("{} is not a backup", display_path(&options.from));
    let backup = FolderHandle::open(&options.from).map_err(|error| explain_unreadable_backup(&options.from, error))?;
    let manifest = BackupManifest::read_from(&backup, &options.from)?;
    let head = parse_head(&manifest.head)
        .map_err(|why| anyhow::anyhow!("invalid head of the backup: {}", super::one_line(&why.to_string())))?;
    let target = resolve_target(&place.folder)?;
    let is_there = is_occupied(&target)?;
    ensure_restorable(&target, is_there, options)?;
    manifest.check_files(&backup)?;
    // Held until the folder has changed places: no other process starts with it meanwhile.
    let locks = if is_there { lock_data_dir(&target, &place.log)? } else { Vec::new() };
    let made = StagingFolder::for_target(&target)?;
    let mut copying = CopyJob::for_restore();
    let data = backup.open_folder(DATA.as_ref()).with_context(no_backup)?;
    for name in data.entry_names().with_context(no_backup)? {
        let is_log = name.to_str() == Some(manifest.log.as_str());
        let named = if is_log { place.log.file_name().unwrap_or(&name) } else { &name };
        // Its content was copied once; entries that cannot be made here must not keep the record from coming back.
        let need = if name == WORKSPACES { CopyPolicy::WhatCanBeRead } else { CopyPolicy::All };
        let path = options.from.join(DATA).join(&name);
        copying.copy_entry(CopySource { folder: &data, name: &name, path }, made.staged_folder(), named, need)?;
    }
    let log = made.path().join(place.log.file_name().context("the path of the record has no file name")?);
    let report = verify_log(&log, Some(head), &options.from.join(DATA).join(&manifest.log))?;
    ensure!(
        (report.head, report.records) == (head, manifest.records),
        "the backup has {} entries, but {} were restored",
        manifest.records,
        report.records
    );
    if let Some(settings) = &place.database {
        // A backup holds the record as a file, wherever it was.
        copy_to_database(&log, settings).context("cannot copy the record to the database")?;
        fs::remove_file(&log).with_context(|| cannot("remove", &log))?;
    }
    // The gateway is the owner of the folder; of one that did not exist, the owner of the one around it.
    let around = target.ancestors().find(|folder| folder.exists()).unwrap_or(&target);
    if let Some(owner) = privileges::folder_owner(around) {
        made.staged_folder().change_owner(owner).with_context(|| cannot("change the owner of", &target))?;
    }
    let old = if is_there {
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let time = format_iso(Clock::system().now()).replace([':', '.'], "-");
        let old = format!("{name}.before-{time}");
        made.put_in_place_of(old.as_ref())?;
        Some(target.with_file_name(old))
    } else {
        made.put_in_place()?;
        None
    };
    drop(locks);
    for missed in &copying.missed {
        writeln!(std::io::stderr(), "not restored: {missed}")?;
    }
    let settings = Some(options.from.join(SETTINGS)).filter(|folder| folder.is_dir());
    let mut out = std::io::stdout().lock();
    if form == OutputFormat::Json {
        let summary = json!({ "data": target, "head": format_head(report.head), "records": report.records, "before": old,
            "settings": settings, "not_restored": copying.missed });
        writeln!(out, "{summary}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "restored  {}", ColourMode::for_stdout().apply_style(TextStyle::Strong, display_path(&target)))?;
    let entries = if report.records == 1 { "entry" } else { "entries" };
    writeln!(out, "record    {} {entries}, chain verified", report.records)?;
    writeln!(out, "head      {}", format_head(report.head))?;
    if let Some(old) = old {
        writeln!(out, "before    {} is the previous data directory", display_path(&old))?;
    }
    if let Some(settings) = settings {
        writeln!(out, "settings  {}: copy them to where you need them", display_path(&settings))?;
    }
    if !manifest.secrets {
        writeln!(
            out,
            "secrets   not in the backup: users log in again; set the secrets of agents (`countersign secret`) and of the gsv adapter again"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains why the folder of a backup cannot be opened.
fn explain_unreadable_backup(from: &Path, error: io::Error) -> anyhow::Error {
    let shown_from = display_path(from);
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow::anyhow!("{shown_from} does not exist: pass a folder that `countersign backup` created")
        }
        io::ErrorKind::NotADirectory => {
            anyhow::anyhow!("{shown_from} is a file, not a folder: pass a folder that `countersign backup` created")
        }
        _ => anyhow::Error::from(error).context(cannot("read", from)),
    }
}

/// Refuses what would be found out only after all was copied, or would be put aside with what is there.
fn ensure_restorable(target: &Path, is_there: bool, options: &RestoreOptions) -> anyhow::Result<()> {
    let shown_target = display_path(target);
    if is_there && !target.is_dir() {
        bail!("{shown_target} is a file, not a folder: restore into a folder with --data");
    }
    if is_there && !options.replace {
        bail!("{shown_target} is not empty: restore into another folder with --data, or rename it with --replace");
    }
    for path in options.config.iter().chain([&options.from]).filter(|_| is_there) {
        if lies_in(path, target) {
            bail!(
                "{} is in {shown_target} and would be renamed with it: move it out of there, or restore into another folder \
                 with --data",
                display_path(path)
            );
        }
    }
    if lies_in(target, &options.from) {
        bail!("{shown_target} is in the backup and would become part of it: restore into another folder with --data");
    }
    if is_mount_point(target) {
        bail!(
            "{shown_target} is a mount point, which cannot be replaced: restore into a folder in it, and pass that folder with \
             --data from then on"
        );
    }
    Ok(())
}

/// Takes the locks of a gateway or session, and fails if one has them. Missing ones are made: a process that starts a moment later
/// would otherwise find no lock, and lose the folder under it.
fn lock_data_dir(path: &Path, log: &Path) -> anyhow::Result<Vec<File>> {
    let folder = FolderHandle::open(path).with_context(|| cannot("open", path))?;
    let owner = privileges::folder_owner(path);
    let mut name = log.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let mut held = Vec::new();
    for name in [name, "countersign.sock.lock".into()] {
        let at = path.join(&name);
        let file = match folder.lock_file(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = folder.make_file(&name).with_context(|| cannot("create", &at))?;
                if let Some((user, group)) = owner {
                    // The gateway could not open root's, once this folder is put back.
                    nix::unistd::fchown(&made, Some(user), Some(group))
                        .with_context(|| cannot("change the owner of", &at))?;
                }
                made
            }
            opened => opened.with_context(|| cannot("open", &at))?,
        };
        match file.try_lock() {
            Ok(()) => held.push(file),
            Err(TryLockError::WouldBlock) => bail!("{} is in use: stop the gateway first", display_path(path)),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| cannot("lock", &at)),
        }
    }
    // A socket that answers without a lock would be an older gateway's.
    if fs::exists(path.join("countersign.sock"))? && crate::control_client::ControlClient::connect(path).is_some() {
        bail!("{} is in use: stop the gateway first", display_path(path));
    }
    Ok(held)
}
