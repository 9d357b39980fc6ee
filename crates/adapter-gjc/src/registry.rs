//! The files by which programs find the sessions that run. Source: docs/protocol/gjc.md, Files.
//!
//! It must not know what a session does: a record says where it is, and whether its process lives is all that is looked at.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use countersign_adapter_omp::is_alive;
use countersign_agent_dir::AgentDir;
use countersign_config::yaml::LARGEST;
use countersign_files::replace::{FileAccess, replace_file};
use countersign_protocol::{
    encode_line,
    gjc::registry::{SessionRecord, file_name},
};
use countersign_runtime::tools::regular;
use tracing::warn;

/// The folder's name in the agent directory.
const FOLDER: &str = "rpc-sessions";
/// File that a process locks while it writes or removes a record.
const LOCK: &str = ".lock";
/// Maximum time for which another process may hold the lock.
const LOCKED: Duration = Duration::from_secs(2);
/// Time between two tries of the lock.
const TRIED: Duration = Duration::from_millis(10);

/// The records of the sessions that run under one agent directory.
#[derive(Clone, Debug)]
pub struct SessionRegistry {
    folder: PathBuf,
}

impl SessionRegistry {
    /// Returns the registry of `directory`. Nothing is made before there is a record.
    pub fn for_agent_dir(directory: &AgentDir) -> Self {
        Self { folder: directory.root().join(FOLDER) }
    }

    /// Returns the sessions that run, the one that began first at the front. Records of processes that are gone, and those that say
    /// nothing, are removed as far as that is allowed.
    ///
    /// # Errors
    /// Error of the system for the folder; a missing one has no sessions.
    pub fn list_sessions(&self) -> io::Result<Vec<SessionRecord>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let (mut running, mut over) = (Vec::new(), Vec::new());
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_record(path)) {
            match check_record(&path) {
                RecordStatus::Runs(record) => running.push(record),
                RecordStatus::Over => over.push(path),
                RecordStatus::Unknown => {}
            }
        }
        self.remove_records(&over);
        running.sort_by(|one, other| (&one.started_at, &one.session_id).cmp(&(&other.started_at, &other.session_id)));
        Ok(running)
    }

    /// Lists a session until what is returned is dropped. A session of which the id makes no file name is not listed.
    ///
    /// # Errors
    /// Error of the system.
    pub fn add_session(self, record: SessionRecord) -> io::Result<RegistryEntry> {
        self.write_record(&record)?;
        Ok(RegistryEntry { registry: self, record })
    }

    fn write_record(&self, record: &SessionRecord) -> io::Result<()> {
        let Some(name) = file_name(&record.session_id) else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let _held = self.acquire_lock()?;
        replace_file(&self.folder.join(name), &encode_line(record), FileAccess::Private)
    }

    /// Removes records, except those that another process has replaced.
    fn remove_records(&self, over: &[PathBuf]) {
        if over.is_empty() {
            return;
        }
        let Ok(_held) = self.acquire_lock() else { return };
        for path in over.iter().filter(|path| matches!(check_record(path), RecordStatus::Over)) {
            // A process that may not remove it ignores it the next time as well.
            let _ = fs::remove_file(path);
        }
    }

    /// Removes the record of a session if it is that of `process`.
    fn remove_session(&self, session: &str, process: u32) {
        let (Some(name), Ok(_held)) = (file_name(session), self.acquire_lock()) else { return };
        let path = self.folder.join(name);
        if read_record(&path).is_ok_and(|record| record.is_some_and(|record| record.pid == process)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Waits for the lock, which ends with the file or the process.
    fn acquire_lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = regular::open_file(&self.folder.join(LOCK), options.write(true).create(true).mode(0o600))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::Error(error)) => return Err(error),
                Err(fs::TryLockError::WouldBlock) if begun.elapsed() > LOCKED => {
                    return Err(io::Error::new(
                        io::ErrorKind::WouldBlock,
                        "another process holds the lock of the registry",
                    ));
                }
                Err(fs::TryLockError::WouldBlock) => std::thread::sleep(TRIED),
            }
        }
    }
}

/// A session that is listed.
#[derive(Debug)]
pub struct RegistryEntry {
    registry: SessionRegistry,
    record: SessionRecord,
}

impl RegistryEntry {
    /// Lists `session` in place of the one so far: another is open now. What goes wrong keeps no session from
    /// being open; it is only not found.
    pub fn switch_session(&mut self, session: &str) {
        if self.record.session_id == session {
            return;
        }
        let before = std::mem::replace(&mut self.record.session_id, session.to_owned());
        if let Err(error) = self.registry.write_record(&self.record) {
            warn!(%error, "failed to add the session to the registry");
        }
        self.registry.remove_session(&before, self.record.pid);
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        self.registry.remove_session(&self.record.session_id, self.record.pid);
    }
}

/// State of a record.
enum RecordStatus {
    Runs(SessionRecord),
    /// Its process is gone, or it says nothing.
    Over,
    /// It cannot be read now.
    Unknown,
}

fn check_record(path: &Path) -> RecordStatus {
    match read_record(path) {
        Ok(Some(record)) if is_alive(record.pid) => RecordStatus::Runs(record),
        Ok(_) => RecordStatus::Over,
        Err(_) => RecordStatus::Unknown,
    }
}

/// Returns the record at `path`, if it says something.
fn read_record(path: &Path) -> io::Result<Option<SessionRecord>> {
    let bytes = regular::read_bytes(path, LARGEST)?;
    let record: Option<SessionRecord> = serde_json::from_slice(&bytes).ok();
    // A name that is not the session's own would be found again under another one.
    Ok(record
        .filter(|record| path.file_name().and_then(|name| name.to_str()) == file_name(&record.session_id).as_deref()))
}

/// Reports whether a file of the folder is a complete record.
fn is_record(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".json") && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use countersign_protocol::gjc::registry::{SessionRecord, SessionTransport};

    use super::SessionRegistry;

    fn registry(folder: &tempfile::TempDir) -> SessionRegistry {
        SessionRegistry { folder: folder.path().join("agent/rpc-sessions") }
    }

    fn record(session: &str, pid: u32, started_at: &str) -> SessionRecord {
        SessionRecord {
            session_id: session.to_owned(),
            pid,
            transport: SessionTransport::Socket,
            cwd: "/work".to_owned(),
            model: None,
            started_at: started_at.to_owned(),
            endpoint: Some("/run/a.sock".to_owned()),
        }
    }

    fn listed(registry: &SessionRegistry) -> Vec<String> {
        registry.list_sessions().unwrap().into_iter().map(|record| record.session_id).collect()
    }

    #[test]
    fn sessions_are_listed_by_when_they_began_until_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(&folder);
        assert_eq!(listed(&registry), [""; 0], "there is no folder yet");
        let me = std::process::id();
        let later = registry.clone().add_session(record("b", me, "2026-02-03T04:05:07.000Z")).unwrap();
        let first = record("c", me, "2026-02-03T04:05:06.000Z");
        let earlier = registry.clone().add_session(first.clone()).unwrap();
        assert_eq!(listed(&registry), ["c", "b"]);
        assert_eq!(registry.list_sessions().unwrap()[0], first);
        let mode = |name: &str| fs::metadata(registry.folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("b.json")), (0o700, 0o600));
        drop(earlier);
        assert_eq!(listed(&registry), ["b"]);
        drop(later);
        assert_eq!(listed(&registry), [""; 0]);
    }

    #[test]
    fn the_record_follows_the_session_that_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(&folder);
        let mut listing = registry.clone().add_session(record("one", std::process::id(), "2026")).unwrap();
        listing.switch_session("two");
        assert_eq!(listed(&registry), ["two"]);
        drop(listing);
        assert_eq!(listed(&registry), [""; 0]);
    }

    #[test]
    fn reading_removes_dead_and_broken_entries_only() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(&folder);
        let kept = registry.clone().add_session(record("here", std::process::id(), "2026")).unwrap();
        // It ended, and no process has waited for it yet.
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let dead = |session: &str, pid| {
            fs::write(registry.folder.join(format!("{session}.json")), {
                serde_json::to_string(&record(session, pid, "2025")).unwrap()
            })
        };
        while super::is_alive(ended.id()) {
            std::thread::yield_now();
        }
        dead("ended", ended.id()).unwrap();
        dead("gone", i32::MAX.cast_unsigned()).unwrap();
        fs::write(registry.folder.join("torn.json"), "{\"sessionId\":").unwrap();
        fs::write(
            registry.folder.join("other.json"),
            serde_json::to_string(&record("x", std::process::id(), "2")).unwrap(),
        )
        .unwrap();
        fs::write(registry.folder.join("notes.txt"), "mine").unwrap();
        assert_eq!(listed(&registry), ["here"]);
        ended.wait().unwrap();
        let mut left: Vec<_> = fs::read_dir(&registry.folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [".lock", "here.json", "notes.txt"]);
        drop(kept);
    }

    #[test]
    fn an_id_that_makes_no_file_name_is_not_listed_and_nothing_is_written_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(&folder);
        let listing = registry.clone().add_session(record("../../x", std::process::id(), "2026")).unwrap();
        assert_eq!(listed(&registry), [""; 0]);
        drop(listing);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    }
}
