//! Writes the file in which the original keeps a session's gates, from the log: people's tools read it.
//!
//! Nothing is ever read from it. A foreign file at its place is moved aside. Source: docs/protocol/gjc.md, Files.

use std::{
    io,
    path::{Path, PathBuf},
};

use countersign_adapter_omp::{LogFollower, LogReaders};
use countersign_config::yaml::LARGEST;
use countersign_core::{
    call,
    engine::{Event, RecordedFact, ResidencyScope as At},
    gate::{self, Gate},
    id::{CallId, GateId, SessionId},
    time::Millis,
};
use countersign_files::replace::{FileAccess, replace_copy};
use countersign_protocol::gjc::{
    gate_file::{GateFile, GateRecord, GateStatus},
    gate_id::body_hash,
    registry::file_name,
};
use countersign_runtime::tools::regular;
use countersign_view::GateRequest;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::gate_form::{self, GateOptions};

/// Folder of the files below a working folder.
pub(crate) const FOLDER: &str = ".gjc/state/workflow-gates";

struct GateFileWriter {
    session: SessionId,
    cwd: PathBuf,
    path: PathBuf,
    readers: LogReaders,
    ends: CancellationToken,
    file: GateFile,
    /// The gates whose call has not gone on yet.
    waiting: Vec<(CallId, String)>,
    is_looked_at: bool,
    is_dirty: bool,
    is_stuck: bool,
}

/// Writes the gates' file of a session that works in `cwd`. None for one whose id makes no file name.
pub(crate) fn follow_gates(session: SessionId, cwd: &Path, readers: LogReaders) -> Option<LogFollower> {
    let path = cwd.join(FOLDER).join(file_name(session.as_str())?);
    let cwd = cwd.to_owned();
    Some(LogFollower::spawn(move |ends| {
        let writer = GateFileWriter {
            session,
            cwd,
            path,
            readers,
            ends,
            file: GateFile::default(),
            waiting: Vec::new(),
            is_looked_at: false,
            is_dirty: false,
            is_stuck: false,
        };
        writer.run_writer()
    }))
}

impl GateFileWriter {
    async fn run_writer(mut self) {
        self.load_gates().await;
        loop {
            if let Some(recorded) = self.readers.facts.try_next() {
                self.apply_fact(&recorded).await;
                continue;
            }
            self.write_file().await;
            let next = tokio::select! {
                biased;
                () = self.ends.cancelled() => None,
                next = self.readers.facts.next() => next,
            };
            match next {
                Some(recorded) => self.apply_fact(&recorded).await,
                None => break,
            }
        }
        while let Some(recorded) = self.readers.facts.try_next() {
            self.apply_fact(&recorded).await;
        }
        self.write_file().await;
    }

    /// Loads the session's gates from the log.
    async fn load_gates(&mut self) {
        let id = self.session.clone();
        let read = self.readers.source.read_state(move |engine| {
            let Some(session) = engine.state().session(&id) else { return Vec::new() };
            let counts =
                session.gates_by_stage().flat_map(|(stage, count)| (1..=count).map(move |number| (stage, number)));
            counts.filter_map(|(stage, number)| session.gate_at(stage, u32::try_from(number).ok()?)).collect()
        });
        let Some((gates, _)) = read.await else { return };
        for gate in gates {
            self.update_gate(gate).await;
        }
    }

    async fn apply_fact(&mut self, recorded: &RecordedFact) {
        match &recorded.fact.event {
            Event::Gate(gate::Event::Opened { gate, call, .. }) => {
                self.goes_on(*call);
                self.update_gate(*gate).await;
            }
            Event::Gate(gate::Event::Resolved { gate, .. }) => self.update_gate(*gate).await,
            Event::Call(call::Event::Allowed { call, .. } | call::Event::Ended { call, .. }) => {
                self.goes_on(Some(*call))
            }
            _ => {}
        }
    }

    /// Removes the gates of a call that has continued.
    fn goes_on(&mut self, call: Option<CallId>) {
        let (file, is_dirty) = (&mut self.file, &mut self.is_dirty);
        self.waiting.retain(|(of, name)| {
            let record = file.gates.get_mut(name).filter(|_| Some(*of) == call);
            let Some(record) = record.filter(|record| record.status == GateStatus::Accepted) else { return true };
            (record.advanced, *is_dirty) = (true, true);
            false
        });
    }

    /// Writes down how a gate stands.
    async fn update_gate(&mut self, id: GateId) {
        let read = self.readers.source.read_of(At::Gate(id), move |engine| {
            let gate = engine.state().gate(id)?.clone();
            // A waiting call continues with its next question, its start, or its end.
            let is_last = |call| engine.state().gate_of(call).is_some_and(|last| last.id() == id);
            let call = gate.call().filter(|call| is_last(*call)).and_then(|call| engine.state().call(call));
            let is_open = call.is_some_and(|call| !call.is_over() && (gate.kind().takes_words() || !call.has_begun()));
            Some((gate, is_open))
        });
        let Some((Some((gate, is_open)), _)) = read.await else { return };
        let lsns: Vec<_> = [Some(gate.content_lsn()), gate.answer_content()].into_iter().flatten().collect();
        let Ok(texts) = self.readers.contents.get(&lsns).await else { return };
        let mut texts = texts.into_iter();
        let shown = texts.next().flatten().and_then(|text| GateRequest::from_record(&text));
        let Some((name, shown)) = gate_form::gate_name(&gate).zip(shown) else { return };
        let stage = gate_form::wire_stage(gate.stage());
        self.file.counters.raise_to(stage, gate.number());
        self.is_dirty = true;
        match gate_record(&gate, &shown, texts.next().flatten().as_deref(), &name, !is_open) {
            Some(record) => {
                if let Some(call) = gate.call().filter(|_| !record.advanced) {
                    self.waiting.retain(|(_, other)| *other != name);
                    self.waiting.push((call, name.clone()));
                }
                self.file.gates.insert(name, record);
            }
            // It was withdrawn, or there was no answer: the original has no word for that.
            None => drop(self.file.gates.remove(&name)),
        }
    }

    async fn write_file(&mut self) {
        if !self.is_dirty {
            return;
        }
        self.is_dirty = false;
        let (path, text) = (self.path.clone(), self.file.to_pretty_json());
        let look = (!std::mem::replace(&mut self.is_looked_at, true)).then(|| self.readers.clock.now());
        let cwd = self.cwd.clone();
        let written = tokio::task::spawn_blocking(move || {
            stays_below(&cwd, &path)?;
            if let Some(now) = look {
                move_aside(&path, now)?;
            }
            replace_copy(&path, text.as_bytes(), FileAccess::Private)
        });
        let written = written.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        match written {
            Ok(()) => self.is_stuck = false,
            Err(error) => {
                // The log has all of it; the next gate is another attempt.
                if !std::mem::replace(&mut self.is_stuck, true) {
                    warn!(%error, path = %self.path.display(), "failed to write the gates file of the session");
                }
            }
        }
    }
}

/// Returns the gate's part of the file; none for one that ended without an answer.
fn gate_record(
    gate: &Gate,
    shown: &GateRequest,
    answer: Option<&str>,
    name: &str,
    advanced: bool,
) -> Option<GateRecord> {
    let sent = gate_form::to_wire(gate, shown, GateOptions::Objects)?.ok()?;
    if gate.is_pending() {
        return Some(GateRecord {
            gate: sent,
            status: GateStatus::Pending,
            idempotency_key: None,
            response_hash: None,
            answer: None,
            resolution: None,
            advanced: false,
        });
    }
    let (resolution, answer) = gate_form::resolved_answer(gate, shown, answer)?;
    let gate::GatePhase::Resolved { key, .. } = gate.phase() else { return None };
    Some(GateRecord {
        gate: sent,
        status: GateStatus::Accepted,
        idempotency_key: key.clone(),
        response_hash: Some(body_hash(name, &answer)),
        answer: Some(answer),
        resolution: Some(resolution),
        advanced,
    })
}

/// Rejects a path that leads elsewhere: a program in the folder could otherwise have any file of this user overwritten.
fn stays_below(cwd: &Path, path: &Path) -> io::Result<()> {
    let ways = path.ancestors().take_while(|way| *way != cwd);
    let is_link = |way: &&Path| std::fs::symlink_metadata(way).is_ok_and(|found| found.file_type().is_symlink());
    match ways.into_iter().find(is_link) {
        Some(link) => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is a link", link.display()))),
        None => Ok(()),
    }
}

/// Moves what lies at `path` aside if it is no file of gates.
fn move_aside(path: &Path, now: Millis) -> io::Result<()> {
    let is_one = match regular::read_bytes(path, LARGEST) {
        // After a power cut our file can be empty.
        Ok(bytes) => bytes.is_empty() || serde_json::from_slice::<GateFile>(&bytes).is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => false,
    };
    if is_one {
        return Ok(());
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".corrupt-{}", now.0));
    std::fs::rename(path, PathBuf::from(aside))
}

#[cfg(test)]
mod tests {
    use countersign_core::time::Millis;

    use super::{FOLDER, move_aside, stays_below};

    #[test]
    fn what_is_no_file_of_gates_is_moved_aside_and_one_that_is_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        move_aside(&path, Millis(7)).unwrap();
        for (text, stays) in [(r#"{"counters":{"ralplan":2},"gates":{}}"#, true), ("{", false), ("[]", false)] {
            std::fs::write(&path, text).unwrap();
            move_aside(&path, Millis(7)).unwrap();
            assert_eq!(path.exists(), stays, "{text}");
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("s.json.corrupt-7")).unwrap(), "[]");
    }

    #[test]
    fn nothing_is_written_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FOLDER).join("s.json");
        stays_below(folder.path(), &path).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        stays_below(folder.path(), &path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(stays_below(folder.path(), &path).unwrap_err().to_string().ends_with("s.json is a link"));
        std::fs::remove_dir_all(folder.path().join(".gjc")).unwrap();
        std::os::unix::fs::symlink("/tmp", folder.path().join(".gjc")).unwrap();
        assert!(stays_below(folder.path(), &path).unwrap_err().to_string().ends_with(".gjc is a link"));
    }
}
