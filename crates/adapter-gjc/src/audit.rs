//! Writes the audit file of an unattended run: a line for each thing that was decided, in the layout that people's tools read.
//!
//! It must not know how lines are made ([`lines`] makes them from the log). The log is authoritative: a file that is incomplete after
//! a crash is completed from it, and lines that exist are not written again. Source: docs/protocol/gjc.md, Files.

mod background_sync;
pub(crate) mod gate_note;
pub(crate) mod lines;

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use countersign_core::time::Millis;
use countersign_files::replace::sync_folder;
use countersign_protocol::{
    RawJson, encode_line,
    gjc::{
        audit::{AuditEvent, AuditLine, AuditOutcome, CATEGORY, SCHEMA_VERSION, event_id, file_name},
        workflow::{WorkflowGateKind, WorkflowStage},
    },
};
use countersign_view::time;

use self::background_sync::BackgroundSync;

/// The folder of all audits below a working folder.
pub(crate) const RECORDS: &str = ".gjc/audit";
/// Folder of the audit files, below the working folder.
const FOLDER: [&str; 3] = [".gjc", "audit", "unattended"];

/// The gate that a line is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuditGate {
    /// Its id on the wire.
    pub id: String,
    pub stage: WorkflowStage,
    pub kind: WorkflowGateKind,
}

/// One thing that was decided, to be written. It has no place for an answer, only for its hash.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuditNote {
    /// When.
    pub at: Millis,
    /// The event.
    pub(crate) event: AuditEvent,
    /// Outcome of the event.
    pub outcome: AuditOutcome,
    /// Key that identifies the note: a note with the key of one that is written is dropped.
    pub key: String,
    /// The gate that it is about.
    pub gate: Option<AuditGate>,
    /// The missing scope.
    pub(crate) scope: Option<String>,
    /// The missing class of actions.
    pub action: Option<String>,
    /// The exceeded budget.
    pub(crate) budget: Option<RawJson>,
    /// The hash of an answer.
    pub(crate) answer_hash: Option<String>,
    /// The error.
    pub error: Option<RawJson>,
}

impl AuditNote {
    /// Returns a note that has only the event.
    pub(crate) fn new(at: Millis, event: AuditEvent, outcome: AuditOutcome, key: String) -> Self {
        let (gate, scope, action, budget, answer_hash, error) = (None, None, None, None, None, None);
        Self { at, event, outcome, key, gate, scope, action, budget, answer_hash, error }
    }
}

/// Why there is no audit file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    /// Another program wrote into the file.
    #[error("the audit file {} is damaged: line {line} cannot be read", .path.display())]
    Damaged { path: PathBuf, line: usize },
    /// It would lie elsewhere than where it is called.
    #[error("the audit file would lie behind a link: {}", .0.display())]
    Link(PathBuf),
    /// The disk says no.
    #[error("the audit file {} cannot be written: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// The audit file of one run.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    file: File,
    disk: BackgroundSync,
    /// The keys of all lines.
    written: BTreeSet<String>,
    run: String,
    session: String,
    actor: Option<String>,
}

impl AuditFile {
    /// Opens the file of `run` below `cwd`, which is made if it is not there. A last line that a crash cut off is taken away.
    ///
    /// # Errors
    /// [`AuditError`], with nothing changed but folders that were made.
    pub(crate) fn open(cwd: &Path, run: &str, session: &str, actor: Option<String>) -> Result<Self, AuditError> {
        let mut folder = cwd.to_owned();
        for name in FOLDER {
            folder.push(name);
            match folder.symlink_metadata() {
                Ok(found) if found.is_symlink() => return Err(AuditError::Link(folder)),
                Ok(_) => {}
                Err(_) => fs::create_dir(&folder).map_err(|error| AuditError::Io { path: folder.clone(), error })?,
            }
        }
        let path = folder.join(file_name(run));
        if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Err(AuditError::Link(path));
        }
        let failed = |error| AuditError::Io { path: path.clone(), error };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut written = BTreeSet::new();
        let lines = bytes[..whole].split(|byte| *byte == b'\n').enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let read = serde_json::from_slice::<AuditLine>(line);
            let read = read.map_err(|_| AuditError::Damaged { path: path.clone(), line: at + 1 })?;
            written.insert(read.dedupe_key);
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        file.seek(SeekFrom::End(0)).and_then(|_| sync_folder(&folder)).map_err(failed)?;
        let (run, session) = (run.to_owned(), session.to_owned());
        let disk = BackgroundSync::new(file.try_clone().map_err(failed)?);
        Ok(Self { path, file, disk, written, run, session, actor })
    }

    /// Returns the run that it is of.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// Sets the actor who is responsible for the run from here on.
    pub(crate) fn set_actor(&mut self, actor: &str) {
        self.actor = Some(actor.to_owned());
    }

    /// Reports a failed sync to the disk. Lines that are in the file survive the end of the process, but not a power cut.
    ///
    /// # Errors
    /// [`AuditError::Io`], for ever after.
    pub(crate) fn check_sync(&self) -> Result<(), AuditError> {
        self.disk.check_failure().map_err(|error| self.io_error(error))
    }

    /// Writes a note, unless there is one with its key. When it returns the line survives the end of the process; a power cut
    /// a moment later, which is when it is on the disk. Until then the log alone has it.
    ///
    /// # Errors
    /// [`AuditError::Io`]; the note can be written again.
    pub(crate) fn write_note(&mut self, note: AuditNote) -> Result<(), AuditError> {
        if self.written.contains(&note.key) {
            return Ok(());
        }
        let AuditNote { at, event, outcome, key, gate, scope, action, budget, answer_hash, error } = note;
        let (gate_id, stage, kind) = match gate {
            Some(AuditGate { id, stage, kind }) => (Some(id), Some(stage), Some(kind)),
            None => (None, None, None),
        };
        let line = AuditLine {
            event_id: event_id(at.0, self.written.len() as u64 + 1),
            schema_version: SCHEMA_VERSION,
            category: CATEGORY.to_owned(),
            timestamp: time::format_iso(at),
            run_id: self.run.clone(),
            session_id: Some(self.session.clone()),
            actor: self.actor.clone(),
            event,
            outcome,
            dedupe_key: key.clone(),
            gate_id,
            stage,
            kind,
            scope,
            action,
            budget,
            answer_hash,
            error,
        };
        let before = self.file.stream_position().map_err(|error| self.io_error(error))?;
        let written = self.file.write_all(&encode_line(&line)).and_then(|()| self.disk.request_sync());
        if let Err(error) = written {
            // Half a line must not stand before the next one.
            let _ = self.file.set_len(before).and_then(|()| self.file.seek(SeekFrom::Start(before)));
            return Err(self.io_error(error));
        }
        self.written.insert(key);
        Ok(())
    }

    fn io_error(&self, error: io::Error) -> AuditError {
        AuditError::Io { path: self.path.clone(), error }
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        // A sync that is still pending would end with the runtime. A failure can no longer be reported to a client.
        let _ = self.disk.finish_sync();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use countersign_core::time::Millis;
    use countersign_protocol::gjc::audit::{AuditEvent, AuditOutcome};

    use super::{AuditError, AuditFile, AuditNote};

    fn note(key: &str) -> AuditNote {
        AuditNote::new(
            Millis(1_780_635_600_000),
            AuditEvent::UnattendedNegotiated,
            AuditOutcome::Accepted,
            key.to_owned(),
        )
    }

    fn lines(folder: &std::path::Path) -> Vec<String> {
        let text = fs::read_to_string(folder.join(".gjc/audit/unattended/r_1.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_is_written_once_also_by_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || AuditFile::open(folder.path(), "r/1", "s", Some("ci".to_owned())).unwrap();
        let mut audit = open();
        audit.write_note(note("a")).unwrap();
        audit.write_note(note("a")).unwrap();
        assert_eq!(
            lines(folder.path()),
            [
                r#"{"event_id":"ae_mq0ggm80_1","schema_version":1,"category":"unattended_lifecycle","timestamp":"2026-06-05T05:00:00.000Z","run_id":"r/1","session_id":"s","actor":"ci","event":"unattended_negotiated","outcome":"accepted","dedupe_key":"a"}"#
            ]
        );
        let mut again = open();
        again.write_note(note("a")).unwrap();
        again.write_note(note("b")).unwrap();
        assert_eq!(lines(folder.path()).len(), 2);
    }

    #[test]
    fn a_line_that_a_crash_cut_off_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        AuditFile::open(folder.path(), "r/1", "s", None).unwrap().write_note(note("a")).unwrap();
        let file = folder.path().join(".gjc/audit/unattended/r_1.jsonl");
        let whole = fs::read(&file).unwrap();
        for cut in 0..whole.len() {
            fs::write(&file, &whole[..cut]).unwrap();
            AuditFile::open(folder.path(), "r/1", "s", None).unwrap().write_note(note("a")).unwrap();
            assert_eq!(fs::read(&file).unwrap(), whole, "{cut} bytes were left");
        }
    }

    #[test]
    fn a_damaged_file_and_one_behind_a_link_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        AuditFile::open(folder.path(), "r/1", "s", None).unwrap();
        let file = folder.path().join(".gjc/audit/unattended/r_1.jsonl");
        fs::write(&file, "{}\n").unwrap();
        let refused = AuditFile::open(folder.path(), "r/1", "s", None);
        assert!(matches!(refused, Err(AuditError::Damaged { line: 1, .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");

        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        fs::remove_file(&file).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(matches!(AuditFile::open(folder.path(), "r/1", "s", None), Err(AuditError::Link(_))));
    }
}
