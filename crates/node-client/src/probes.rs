//! Probes of the gateway: the programs of a node, and the end of its log.
//!
//! It must not run anything.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use countersign_protocol::gsv::node::{LogsGetEvent, LogsResult, NodeProbe, NodeProbeResult, is_program};
use countersign_tools::node::has_program;
use tokio::sync::{Semaphore, mpsc};

use super::logs;

/// Maximum number of probes at once.
const AT_ONCE: usize = 16;
/// The most programs of one probe that are looked for.
const PROGRAMS: usize = 1024;
/// Answer to one more.
const BUSY: &str = "The node has too much to look for";

/// Result of a probe.
#[derive(Debug)]
pub(crate) enum ProbeAnswer {
    /// The programs that exist.
    Probed(NodeProbeResult),
    /// Lines of the log.
    Logs(LogsResult),
}

/// Runner of probes.
pub(crate) struct ProbeRunner {
    /// Search path of programs.
    path: OsString,
    log: PathBuf,
    room: Arc<Semaphore>,
}

impl ProbeRunner {
    /// Looks for programs in the folders of `path`, and into the file `log`.
    pub(crate) fn new(path: OsString, log: PathBuf) -> Self {
        Self { path, log, room: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Looks for programs. Names that no program has are left out.
    pub(crate) fn probe_programs(
        &self,
        NodeProbe { probe_id, kind, bins, .. }: NodeProbe,
        answers: mpsc::Sender<ProbeAnswer>,
    ) {
        let refused = |probe_id, error: &str| {
            ProbeAnswer::Probed(NodeProbeResult { probe_id, ok: false, bins: None, error: Some(error.to_owned()) })
        };
        let path = self.path.clone();
        self.run_probe(answers, refused(probe_id.clone(), BUSY), move || {
            if kind != "bins" {
                return refused(probe_id, &format!("Unknown probe kind: {kind}"));
            }
            let names = bins.into_iter().filter(|name| is_program(name)).take(PROGRAMS);
            let found = names.map(|name| (has_program(&path, &name), name)).map(|(found, name)| (name, found));
            ProbeAnswer::Probed(NodeProbeResult { probe_id, ok: true, bins: Some(found.collect()), error: None })
        });
    }

    /// Gives the end of the log.
    pub(crate) fn read_log(&self, LogsGetEvent { call_id, lines }: LogsGetEvent, answers: mpsc::Sender<ProbeAnswer>) {
        let refused = |call_id, error: &str| {
            ProbeAnswer::Logs(LogsResult {
                call_id,
                lines: Vec::new(),
                truncated: false,
                error: Some(error.to_owned()),
            })
        };
        let path = self.log.clone();
        self.run_probe(answers, refused(call_id.clone(), BUSY), move || {
            match logs::last_lines(&path, usize::try_from(lines).unwrap_or(usize::MAX)) {
                Ok((lines, truncated)) => ProbeAnswer::Logs(LogsResult { call_id, lines, truncated, error: None }),
                Err(error) => refused(call_id, &format!("The log cannot be read: {error}")),
            }
        });
    }

    /// Looks where it may block, and answers; with `busy` if too many look already.
    fn run_probe(
        &self,
        answers: mpsc::Sender<ProbeAnswer>,
        busy: ProbeAnswer,
        look: impl FnOnce() -> ProbeAnswer + Send + 'static,
    ) {
        let permit = Arc::clone(&self.room).try_acquire_owned();
        tokio::spawn(async move {
            let answer = match permit {
                Ok(_permit) => tokio::task::spawn_blocking(look).await.unwrap_or(busy),
                Err(_) => busy,
            };
            // The connection of the request may be gone.
            let _ = answers.send(answer).await;
        });
    }
}
