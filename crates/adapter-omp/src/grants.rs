//! The file of grants that outlive their sessions: one a line, appended under a lock, and taken out by a person with an editor.
//!
//! It must not know a session: it turns a file into grants and adds one. All of it may wait for the disk or for another process.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};

use countersign_core::policy::Grant;
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::regular;

/// Its name in the agent directory.
pub const FILE: &str = countersign_agent_dir::agent_dir::GRANTS_FILE;

/// Maximum time for which another process may hold the file.
const LOCKED: Duration = Duration::from_secs(2);
/// Time between two tries of the lock.
const TRIED: Duration = Duration::from_millis(25);

/// Content of the file, and its state.
#[derive(Debug, Default)]
struct GrantsFile {
    grants: Vec<Grant>,
    /// The lines that are worth keeping, each with its end.
    lines: Vec<u8>,
    /// True if the file has a line twice or one that is no JSON.
    is_damaged: bool,
}

/// Returns the grants of the file at `path`, each once. Lines that are no grants are passed over: a lost one is requested again. A file
/// with redundant lines is rewritten.
///
/// # Errors
/// Error of the system, except if there is no file.
pub fn load_grants(path: &Path) -> io::Result<Vec<Grant>> {
    let found = match regular::open_file(path, OpenOptions::new().read(true)) {
        Ok(file) => read_grants(file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if !found.is_damaged {
        return Ok(found.grants);
    }
    // Again under the lock, so that nothing which is added meanwhile is lost.
    let healed = open_locked(path).and_then(|file| {
        let found = read_grants(&file)?;
        replace_file(path, &found.lines, FileAccess::Private)
    });
    if let Err(failed) = healed {
        tracing::warn!(error = %failed, "the grants file has invalid lines and could not be rewritten");
    }
    Ok(found.grants)
}

/// Adds a grant, once.
///
/// # Errors
/// Error of the system, [`io::ErrorKind::WouldBlock`] if another process holds the file too long. The grant then holds for its session
/// only.
pub fn save_grant(path: &Path, grant: &Grant) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut file = open_locked(path)?;
    if read_grants(&file)?.grants.iter().any(|kept| kept.id == grant.id) {
        return Ok(());
    }
    let mut line = Vec::new();
    if !ends_well(&mut file)? {
        line.push(b'\n');
    }
    serde_json::to_writer(&mut line, grant)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.sync_data()
}

/// Removes the grants that `is_outdated` reports. A file without any is left as it is.
///
/// # Errors
/// Error of the system, [`io::ErrorKind::WouldBlock`] if another process holds the file too long. The file is then as it was.
pub fn remove_grants(path: &Path, is_outdated: impl Fn(&Grant) -> bool) -> io::Result<()> {
    if !load_grants(path)?.iter().any(&is_outdated) {
        return Ok(());
    }
    // Again under the lock, so that nothing which is added meanwhile is lost.
    let file = open_locked(path)?;
    let found = read_grants(&file)?;
    let is_kept = |line: &&[u8]| !serde_json::from_slice::<Grant>(line).is_ok_and(|grant| is_outdated(&grant));
    let kept: Vec<&[u8]> = found.lines.split_inclusive(|byte| *byte == b'\n').filter(is_kept).collect();
    replace_file(path, &kept.concat(), FileAccess::Private)
}

/// Reports whether a line can be added as it is: a crash may have torn the last one.
fn ends_well(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Opens the file at `path` and locks it. Another process may have put another file there while this one was waited for.
fn open_locked(path: &Path) -> io::Result<File> {
    let begun = Instant::now();
    loop {
        let file = regular::open_file(path, OpenOptions::new().read(true).append(true).create(true))?;
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => std::thread::sleep(TRIED),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if begun.elapsed() > LOCKED {
            let problem = format!("{}: another process holds the file", path.display());
            return Err(io::Error::new(io::ErrorKind::WouldBlock, problem));
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let same = || Ok::<_, io::Error>((file.metadata()?, std::fs::metadata(path)?));
    same().is_ok_and(|(ours, there)| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

fn read_grants(file: impl io::Read) -> io::Result<GrantsFile> {
    let mut found = GrantsFile::default();
    let mut known = BTreeSet::new();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        let text = line.trim_ascii();
        let grant = serde_json::from_slice::<Grant>(text).ok();
        let is_new = match &grant {
            Some(grant) => known.insert(grant.id),
            // A newer version may know what this line means.
            None => serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok(),
        };
        if is_new {
            found.lines.extend_from_slice(text);
            found.lines.push(b'\n');
            found.grants.extend(grant);
        } else if !text.is_empty() {
            found.is_damaged = true;
        }
        line.clear();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::{Grant, load_grants, remove_grants, save_grant};

    fn grant(number: u128) -> Grant {
        let id = format!("{:08x}-0000-7000-8000-000000000000", number);
        let of = json!({
            "id": id, "by": "host", "to": "agent", "scope": "always", "covers": { "pattern": "bash(ls)" },
            "label": "bash(ls)", "until": null, "door": "open",
        });
        serde_json::from_value(of).unwrap()
    }

    #[test]
    fn a_grant_is_kept_once_behind_whatever_a_crash_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent/grants.jsonl");
        assert_eq!(load_grants(&file).unwrap(), []);
        save_grant(&file, &grant(1)).unwrap();
        save_grant(&file, &grant(1)).unwrap();
        fs::write(&file, fs::read_to_string(&file).unwrap() + "{\"id\":\"torn").unwrap();
        save_grant(&file, &grant(2)).unwrap();
        assert_eq!(load_grants(&file).unwrap(), [grant(1), grant(2)]);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_file_that_says_things_twice_is_rewritten_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants.jsonl");
        save_grant(&file, &grant(1)).unwrap();
        let line = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{}{{\"later\":1}}\n{line}", line.repeat(500))).unwrap();
        assert_eq!(load_grants(&file).unwrap(), [grant(1)]);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{line}{{\"later\":1}}\n"));
    }

    #[test]
    fn grants_are_removed_and_other_lines_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants.jsonl");
        remove_grants(&file, |_| true).unwrap();
        assert!(!file.exists());
        for number in 1..=3 {
            save_grant(&file, &grant(number)).unwrap();
        }
        fs::write(&file, fs::read_to_string(&file).unwrap() + "{\"later\":1}\n").unwrap();
        remove_grants(&file, |one| *one == grant(2)).unwrap();
        assert_eq!(load_grants(&file).unwrap(), [grant(1), grant(3)]);
        assert!(fs::read_to_string(&file).unwrap().ends_with("{\"later\":1}\n"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("grants.jsonl");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for file in [pipe.as_path(), std::path::Path::new("/dev/zero")] {
            let kinds = (load_grants(file).unwrap_err().kind(), save_grant(file, &grant(1)).unwrap_err().kind());
            assert_eq!(kinds, (std::io::ErrorKind::InvalidInput, std::io::ErrorKind::InvalidInput), "{file:?}");
        }
    }

    #[test]
    fn a_file_that_is_held_is_given_up_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants.jsonl");
        let held = fs::File::create(&file).unwrap();
        held.lock().unwrap();
        let failed = save_grant(&file, &grant(1)).unwrap_err();
        assert_eq!(failed.kind(), std::io::ErrorKind::WouldBlock);
    }
}
