//! A backup becomes a data directory.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail, ensure};
use countersign_runtime::Clock;
use countersign_server::session_file::time::iso;
use serde_json::json;

use super::{
    DATA, Manifest, SETTINGS, checked, is_occupied, lies_in,
    part::{Copying, Need, Part},
    shown, sorted,
};
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
    /// The configuration that the data directory was found by.
    pub(crate) config: Option<PathBuf>,
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
    if let Some(config) = options.config.as_ref().filter(|config| is_there && lies_in(config, &target)) {
        bail!(
            "{} lies in {} and would be put aside with it: move it out of there, or restore into another folder with --data",
            config.display(),
            target.display()
        );
    }
    if is_mount_point(&target) {
        bail!(
            "{} is a mount point, which cannot be put in the place of another folder: restore into a folder below it, \
             and name that one with --data from then on",
            target.display()
        );
    }
    // Held until the folder has changed places: nobody begins with it meanwhile.
    let locks = if is_there { in_use(&target, &place.log)? } else { Vec::new() };
    let made = Part::make(&target)?;
    let mut copying = Copying::default();
    for entry in sorted(&options.from.join(DATA))? {
        let Some(name) = entry.file_name() else { continue };
        let is_log = name == manifest.log.as_str();
        let name = if is_log { place.log.file_name().unwrap_or(name) } else { name };
        copying.copy(&entry, &made.folder().join(name), Need::All)?;
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

/// Whether another file system lies there: a folder of this name can be neither moved away nor put there.
fn is_mount_point(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    let above = path.parent().and_then(|above| fs::metadata(above).ok()).map(|found| found.dev());
    device(path).is_some_and(|device| above.is_some_and(|above| above != device))
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::is_mount_point;

    #[test]
    fn a_mount_point_is_known_before_anything_is_copied_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        fs::create_dir(folder.path().join("inside")).unwrap();
        for (path, want) in [
            (Path::new("/proc"), true),
            (&folder.path().join("inside"), false),
            (&link, false),
            (&folder.path().join("not there"), false),
        ] {
            assert_eq!(is_mount_point(path), want, "{}", path.display());
        }
    }
}
