//! Programs that nodes have: probed when a node connects and when skills are read, and remembered while it is connected.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, code,
        connect::PeerDetails as Kind,
        node::{NodeProbe, NodeProbeResult, is_program, probe_timeout},
        runtime::{MachineCapability, RuntimeInfo},
        skill,
        tool::AckResult,
    },
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use super::{
    super::{GsvAdapter, method_result::MethodResult, peer::ConnectedPeer, skills},
    node_connections,
};

/// Time for which a node's answer about a program counts.
const FRESH: Duration = Duration::from_secs(300);
/// Number of attempts for a node that does not answer.
const ATTEMPTS: u32 = 2;
/// Most programs in one probe.
const MOST: usize = 512;

/// Scope of a probe: whether nodes are asked again about recent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeScope {
    /// Only programs without a recent answer.
    Stale,
    /// All programs.
    All,
}

/// Result of probing all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeSummary {
    /// Number of nodes that answered.
    pub(crate) updated: usize,
    /// Nodes that were not probed, as all answers are recent.
    pub(crate) skipped: Vec<String>,
    /// Errors.
    pub(crate) errors: Vec<String>,
}

/// Known programs, and open probes.
#[derive(Default)]
pub(super) struct NodeProbes(Mutex<ProbeState>);

/// Probe that is not answered yet.
struct OpenProbe {
    node: String,
    bins: BTreeSet<String>,
    /// Waiters for the answer.
    waiters: Vec<oneshot::Sender<NodeProbeResult>>,
}

#[derive(Default)]
struct ProbeState {
    /// Answers by node, while it is connected: whether it has the program, and the time of the answer, in milliseconds.
    known: HashMap<String, BTreeMap<String, (bool, u64)>>,
    open: HashMap<String, OpenProbe>,
}

impl ProbeState {
    /// Waits with others for an answer about all these programs, if such a probe is open.
    fn join_open(&mut self, node: &str, bins: &BTreeSet<String>) -> Option<oneshot::Receiver<NodeProbeResult>> {
        let open = self.open.values_mut().find(|open| open.node == node && open.bins.is_superset(bins))?;
        let (sender, answered) = oneshot::channel();
        open.waiters.push(sender);
        Some(answered)
    }

    /// Notes a probe of a node.
    fn begin_probe(&mut self, id: &str, node: &str, bins: &BTreeSet<String>) -> oneshot::Receiver<NodeProbeResult> {
        let (sender, answered) = oneshot::channel();
        let open = OpenProbe { node: node.to_owned(), bins: bins.clone(), waiters: vec![sender] };
        self.open.insert(id.to_owned(), open);
        answered
    }
}

impl NodeProbes {
    /// Handles the connection of a node: its own list of programs counts, and it is probed for the others that skills of agents need.
    pub(super) fn node_connected(
        &self,
        door: &Arc<GsvAdapter>,
        peer: &Arc<ConnectedPeer>,
        runtime: Option<&RuntimeInfo>,
    ) {
        let now = door.context.clock.now().0;
        let reported = runtime.map(|runtime| {
            let at = runtime.host_bin_status_updated_at.unwrap_or(now).min(now);
            runtime.host_bin_status.iter().map(|(bin, has)| (bin.clone(), (*has, at))).collect()
        });
        self.0.lock().known.insert(peer.connect.id.clone(), reported.unwrap_or_default());
        if !can_probe(peer) {
            return;
        }
        let (door, peer) = (Arc::clone(door), Arc::clone(peer));
        tokio::spawn(async move {
            let required = skills::all_required(&door).await;
            let within = Duration::from_millis(probe_timeout(None));
            if let Some(Err(error)) = probe_one(&door, &peer, &required, ProbeScope::Stale, within).await {
                tracing::info!(node = peer.connect.id, error, "a node did not report its programs");
            }
        });
    }

    /// Removes a node that disconnected, with its open probes.
    pub(super) fn node_gone(&self, node: &str) {
        let mut state = self.0.lock();
        state.known.remove(node);
        state.open.retain(|_, open| open.node != node);
    }

    fn known_bins(&self, node: &str) -> BTreeMap<String, (bool, u64)> {
        self.0.lock().known.get(node).cloned().unwrap_or_default()
    }
}

/// Probes every node that can look for these programs, and waits for the answers.
pub(crate) async fn probe_nodes(
    door: &Arc<GsvAdapter>,
    bins: &BTreeSet<String>,
    anew: ProbeScope,
    within: Duration,
) -> ProbeSummary {
    let nodes: Vec<_> = node_connections::connected_peers(door).into_iter().filter(|node| can_probe(node)).collect();
    let each = nodes
        .iter()
        .map(|node| async move { (node.connect.id.clone(), probe_one(door, node, bins, anew, within).await) });
    let mut summary = ProbeSummary::default();
    for (node, outcome) in join_all(each).await {
        match outcome {
            None => summary.skipped.push(node),
            Some(Ok(())) => summary.updated += 1,
            Some(Err(error)) => summary.errors.push(format!("{node}: {error}")),
        }
    }
    summary
}

/// Returns the connected nodes in the form of `skills.*`.
pub(crate) fn connected_nodes(door: &GsvAdapter) -> Vec<skill::SkillNode> {
    let to_skill_node = |peer: Arc<ConnectedPeer>| {
        let Kind::Node { runtime, .. } = &peer.connect.peer else { return None };
        let bins = door.nodes.probes.known_bins(&peer.connect.id);
        Some(skill::SkillNode {
            node_id: peer.connect.id.clone(),
            host_role: runtime.as_ref().and_then(|runtime| runtime.host_role),
            host_capabilities: runtime.as_ref().map(|runtime| runtime.host_capabilities.clone()).unwrap_or_default(),
            host_os: runtime.as_ref().and_then(|runtime| runtime.host_os.clone()),
            host_env: runtime.as_ref().map(|runtime| runtime.host_env.clone()).unwrap_or_default(),
            host_bins: bins.iter().filter(|(_, (has, _))| *has).map(|(bin, _)| bin.clone()).collect(),
            host_bin_status_updated_at: bins.values().map(|(_, at)| *at).max(),
            can_probe_bins: can_probe(&peer),
        })
    };
    node_connections::connected_peers(door).into_iter().filter_map(to_skill_node).collect()
}

/// Reports whether a node can look for programs: one that runs commands.
fn can_probe(peer: &ConnectedPeer) -> bool {
    match &peer.connect.peer {
        Kind::Node { runtime: Some(runtime), .. } => runtime.host_capabilities.contains(&MachineCapability::ShellExec),
        Kind::Node { runtime: None, .. } => true,
        Kind::Client | Kind::Channel { .. } => false,
    }
}

/// Probes one node. `None` if all answers are recent.
async fn probe_one(
    door: &GsvAdapter,
    peer: &ConnectedPeer,
    bins: &BTreeSet<String>,
    anew: ProbeScope,
    within: Duration,
) -> Option<Result<(), String>> {
    let node = &peer.connect.id;
    let (known, now) = (door.nodes.probes.known_bins(node), door.context.clock.now().0);
    let is_fresh = |bin: &&String| {
        known
            .get(*bin)
            .is_some_and(|(_, at)| now.saturating_sub(*at) < u64::try_from(FRESH.as_millis()).unwrap_or(u64::MAX))
    };
    let requested: BTreeSet<String> = bins
        .iter()
        .filter(|bin| is_program(bin) && (anew == ProbeScope::All || !is_fresh(bin)))
        .take(MOST)
        .cloned()
        .collect();
    if requested.is_empty() {
        return None;
    }
    let each = within / ATTEMPTS;
    for _ in 0..ATTEMPTS {
        let joined = door.nodes.probes.0.lock().join_open(node, &requested);
        let answered = match joined {
            Some(answered) => timeout(each, answered).await,
            None => {
                let id = uuid::Uuid::new_v4().to_string();
                let answered = door.nodes.probes.0.lock().begin_probe(&id, node, &requested);
                let timeout_ms = u64::try_from(each.as_millis()).unwrap_or(u64::MAX);
                let bins = requested.iter().cloned().collect();
                peer.send_event(
                    "node.probe",
                    &NodeProbe { probe_id: id.clone(), kind: "bins".to_owned(), bins, timeout_ms },
                );
                let answered = timeout(each, answered).await;
                door.nodes.probes.0.lock().open.remove(&id);
                answered
            }
        };
        match answered {
            Ok(Ok(NodeProbeResult { ok: true, bins, .. })) => {
                let (found, at) = (bins.unwrap_or_default(), door.context.clock.now().0);
                let mut state = door.nodes.probes.0.lock();
                // It may have disconnected meanwhile.
                if let Some(known) = state.known.get_mut(node) {
                    known.extend(requested.into_iter().map(|bin| {
                        let has = found.get(&bin).copied().unwrap_or(false);
                        (bin, (has, at))
                    }));
                }
                return Some(Ok(()));
            }
            Ok(Ok(NodeProbeResult { error, .. })) => {
                return Some(Err(error.unwrap_or_else(|| "it cannot look".to_owned())));
            }
            Ok(Err(_)) if !peer.is_here() => return Some(Err("it is not connected any more".to_owned())),
            // An earlier probe was given up, or not answered in time.
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Some(Err("it did not answer in time".to_owned()))
}

/// Handles `node.probe.result`.
pub(super) fn handle_result(door: &GsvAdapter, peer: &ConnectedPeer, probed: NodeProbeResult) -> MethodResult {
    let mut state = door.nodes.probes.0.lock();
    let ack = match state.open.get(&probed.probe_id) {
        None => AckResult::DROPPED,
        Some(open) if open.node != peer.connect.id => {
            return Err(GsvError::new(code::FAILED, format!("Another node was asked: {}", probed.probe_id)));
        }
        Some(_) => {
            let waiters = state.open.remove(&probed.probe_id).map(|open| open.waiters).unwrap_or_default();
            let taken = waiters.into_iter().filter_map(|waiter| waiter.send(probed.clone()).ok()).count();
            if taken > 0 { AckResult::TAKEN } else { AckResult::DROPPED }
        }
    };
    Ok(RawJson::from_wire(&ack))
}
