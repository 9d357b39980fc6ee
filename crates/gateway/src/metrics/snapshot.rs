//! Snapshot for metrics that are read on request, in addition to the counters.

use std::{fs, time::Duration};

use countersign_core::id::Lsn;
use countersign_http::open_connections::OpenConnections;
use countersign_runtime::{
    InboxLane,
    metrics::{GATE_KINDS, gate_kind},
    store::free_space,
};

use super::MetricsContext;

/// Longest wait for the owner.
const PATIENCE: Duration = Duration::from_secs(2);

/// Snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MetricsSnapshot {
    /// Pending gates, by kind as in [`GATE_KINDS`].
    pub(super) gates: [u64; GATE_KINDS.len()],
    /// Sessions in memory.
    pub(super) sessions: u64,
    /// Runs that have not ended.
    pub(super) runs: u64,
    /// Position of the newest entry.
    pub(super) head: u64,
    /// Commands that wait for the owner.
    pub(super) waiting: u64,
    /// Size of the record and its files, in bytes.
    pub(super) record: u64,
    /// Free space on its disk, in bytes.
    pub(super) free: u64,
    /// Memory of this process, in bytes.
    pub(super) memory: u64,
    /// Open descriptors of this process.
    pub(super) descriptors: u64,
    /// Start time, in seconds since 1970.
    pub(super) started: f64,
    /// True if the messenger is healthy; absent without one.
    pub(super) messenger: Option<bool>,
    /// Number of the lease of the realm, and the seconds for which it is held; absent for a gateway that is alone.
    pub(super) lease: Option<(u64, f64)>,
    /// Open connections: agent-gate, gsv, streams, MCP hosts, hooks, attached hosts, and all at the port.
    pub(super) connections: [i64; 8],
}

/// Takes a snapshot. `None` if the owner does not answer.
pub(super) async fn take_snapshot(context: &MetricsContext) -> Option<MetricsSnapshot> {
    let source = context.handle.source(InboxLane::Request);
    let read = source.read_state(|engine| {
        let state = engine.state();
        let mut gates = [0; GATE_KINDS.len()];
        state.pending_gates().for_each(|gate| gates[gate_kind(gate.kind())] += 1);
        let (sessions, runs) = (state.sessions().count(), state.runs().count());
        (gates, sessions as u64, runs as u64, state.head_lsn())
    });
    let ((gates, sessions, runs, Lsn(head)), _) = tokio::time::timeout(PATIENCE, read).await.ok()??;
    let (log, folder) = (context.storage.log.clone(), context.storage.folder.clone());
    let waiting = context.handle.queued_count() as u64;
    // Small files of the system; the disk may be slow to report its state.
    let machine = tokio::task::spawn_blocking(move || {
        let wal = {
            let mut name = log.clone().into_os_string();
            name.push("-wal");
            name
        };
        let size = |path: &std::path::Path| fs::metadata(path).map_or(0, |found| found.len());
        let record = size(&log) + size(wal.as_ref());
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        (record, free_space(&folder).unwrap_or_default(), resident_memory(), descriptors)
    });
    let (record, free, memory, descriptors) = machine.await.ok()?;
    #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 have room")]
    let started = context.started_at.0 as f64 / 1000.0;
    let messenger = context.telegram.as_ref().map(|report| report().is_well());
    let lease = context.lease.as_ref().map(|lease| (lease.term(), lease.remaining().unwrap_or_default().as_secs_f64()));
    let OpenConnections { agent_gate, gsv, stream, mcp, acp, hooks, attached, http } = &context.open_connections;
    let connections = [agent_gate, gsv, stream, mcp, acp, hooks, attached, http].map(|gauge| gauge.get());
    Some(MetricsSnapshot {
        gates,
        sessions,
        runs,
        head,
        waiting,
        record,
        free,
        memory,
        descriptors,
        started,
        messenger,
        lease,
        connections,
    })
}

/// Returns the resident memory of this process, in bytes; 0 if the system does not report it.
fn resident_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or_default() * 1024
}
