//! A backup becomes a data directory.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail, ensure};
use countersign_runtime::Clock;
use countersign_server::session_file::time::iso;
use serde_json::json;

use super::{DATA, Manifest, Part, SETTINGS, checked, is_occupied, part, shown, sorted};
use crate::{
    audit::{Form, parse_head},
    owner,
    paint::{Paint, Tone},
    place::Place,
};

/// From where, and what becomes of what is there.
pub(crate) struct Options {
    pub(crate) from: PathBuf,
    /// Whether a data directory that is there is put aside.
    pub(crate) replace: bool,
}

/// `restore`.
pub(crate) fn restore(place: &Place, options: &Options, form: Form) -> anyhow::Result<ExitCode> {
    let manifest = Manifest::read(&options.from)?;
    manifest.check(&options.from)?;
    let head = parse_head(&manifest.head).map_err(|why| anyhow::anyhow!("the backup's head: {why}"))?;
    let target = std::path::absolute(&place.folder)?;
    let is_there = is_occupied(&target)?;
    if is_there && !options.replace {
        bail!(
            "{} holds something: restore into another folder with --data, or put that aside with --replace",
            target.display()
        );
    }
    // Held until the folder has changed places: nobody begins with it meanwhile.
    let locks = if is_there { in_use(&target, &place.log)? } else { Vec::new() };
    let made = Part::make(&target)?;
    for entry in sorted(&options.from.join(DATA))? {
        let Some(name) = entry.file_name() else { continue };
        let is_log = name == manifest.log.as_str();
        let name = if is_log { place.log.file_name().unwrap_or(name) } else { name };
        part::copy(&entry, &made.folder().join(name))?;
    }
    let log = made.folder().join(place.log.file_name().context("the record has no name")?);
    let report = checked(&log, Some(head))?;
    ensure!(
        (report.head, report.records) == (head, manifest.records),
        "the backup has {} entries, and {} were restored",
        manifest.records,
        report.records
    );
    // The gateway is whoever the folder belonged to.
    if let Some(owner) = owner::of(&target) {
        owner::give(made.folder(), owner)?;
    }
    let old = if is_there {
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let time = iso(Clock::system().now()).replace([':', '.'], "-");
        let old = target.with_file_name(format!("{name}.before-{time}"));
        made.put_in_place_of(&target, &old)?;
        Some(old)
    } else {
        made.put_in_place(&target)?;
        None
    };
    drop(locks);
    let settings = Some(options.from.join(SETTINGS)).filter(|folder| folder.is_dir());
    let mut out = std::io::stdout().lock();
    if form == Form::Json {
        let told = json!({ "data": target, "head": shown(report.head), "records": report.records, "before": old, "settings": settings });
        writeln!(out, "{told}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "restored  {}", Paint::stdout().tone(Tone::Strong, target.display()))?;
    writeln!(out, "record    {} entries, every one fits", report.records)?;
    writeln!(out, "head      {}", shown(report.head))?;
    if let Some(old) = old {
        writeln!(out, "before    {} is what was there", old.display())?;
    }
    if let Some(settings) = settings {
        writeln!(out, "settings  {}: put them where you want them", settings.display())?;
    }
    if !manifest.secrets {
        writeln!(
            out,
            "secrets   none were in the backup: who was logged in logs in again, secrets of the gsv door are set again"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes what a gateway or session would have, and fails if one has it.
fn in_use(folder: &Path, log: &Path) -> anyhow::Result<Vec<File>> {
    let mut name = log.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let mut held = Vec::new();
    for name in [name, "countersign.sock.lock".into()] {
        let path = folder.join(name);
        let file = match OpenOptions::new().write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        match file.try_lock() {
            Ok(()) => held.push(file),
            Err(TryLockError::WouldBlock) => bail!("{} is in use: end the gateway first", folder.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    // A socket that answers without a lock would be an older gateway's.
    if fs::exists(folder.join("countersign.sock"))? && crate::local::Local::connect(folder).is_some() {
        bail!("{} is in use: end the gateway first", folder.display());
    }
    Ok(held)
}
