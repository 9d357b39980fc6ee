//! Which programs nodes have: asked when one comes and when skills are looked at, and remembered while it is connected.

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

/// For how long what a node said of a program counts.
const FRESH: Duration = Duration::from_secs(300);
/// How often a node is asked that does not answer.
const ATTEMPTS: u32 = 2;
/// How many programs are asked for at once.
const MOST: usize = 512;

/// Whether nodes are asked about what they said a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeScope {
    /// Only about what is not known any more.
    Stale,
    /// About everything.
    All,
}

/// What became of asking all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProbeSummary {
    /// How many nodes answered.
    pub(crate) updated: usize,
    /// Nodes that were not asked, as all is known of them.
    pub(crate) skipped: Vec<String>,
    /// What went wrong.
    pub(crate) errors: Vec<String>,
}

/// What is known of programs, and who was asked.
#[derive(Default)]
pub(super) struct NodeProbes(Mutex<ProbeState>);

/// A question to a node that is not answered yet.
struct OpenProbe {
    node: String,
    bins: BTreeSet<String>,
    /// Whoever waits for the answer.
    waiters: Vec<oneshot::Sender<NodeProbeResult>>,
}

#[derive(Default)]
struct ProbeState {
    /// By node, while it is connected: what it has, and when it said so, in milliseconds.
    known: HashMap<String, BTreeMap<String, (bool, u64)>>,
    open: HashMap<String, OpenProbe>,
}

impl ProbeState {
    /// Waits with others for an answer about all these programs, if the node was asked about them a moment ago.
    fn join_open(&mut self, node: &str, bins: &BTreeSet<String>) -> Option<oneshot::Receiver<NodeProbeResult>> {
        let open = self.open.values_mut().find(|open| open.node == node && open.bins.is_superset(bins))?;
        let (sender, answered) = oneshot::channel();
        open.waiters.push(sender);
        Some(answered)
    }

    /// Notes a question to a node.
    fn begin_probe(&mut self, id: &str, node: &str, bins: &BTreeSet<String>) -> oneshot::Receiver<NodeProbeResult> {
        let (sender, answered) = oneshot::channel();
        let open = OpenProbe { node: node.to_owned(), bins: bins.clone(), waiters: vec![sender] };
        self.open.insert(id.to_owned(), open);
        answered
    }
}

impl NodeProbes {
    /// A node came: what it said of its programs counts, and it is asked about the others that skills of agents need.
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
                tracing::info!(node = peer.connect.id, error, "a node did not say which programs it has");
            }
        });
    }

    /// A node went, and with it what it was asked.
    pub(super) fn node_gone(&self, node: &str) {
        let mut state = self.0.lock();
        state.known.remove(node);
        state.open.retain(|_, open| open.node != node);
    }

    fn known_bins(&self, node: &str) -> BTreeMap<String, (bool, u64)> {
        self.0.lock().known.get(node).cloned().unwrap_or_default()
    }
}

/// Asks every node that can look which of these programs it has, and waits for the answers.
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

/// The nodes that are connected, as `skills.*` tell of them.
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

/// Whether a node can look for programs: one that runs commands.
fn can_probe(peer: &ConnectedPeer) -> bool {
    match &peer.connect.peer {
        Kind::Node { runtime: Some(runtime), .. } => runtime.host_capabilities.contains(&MachineCapability::ShellExec),
        Kind::Node { runtime: None, .. } => true,
        Kind::Client | Kind::Channel { .. } => false,
    }
}

/// Asks one node. `None` if all is known of it.
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
                // It may have gone meanwhile.
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
            // Whoever asked before gave up, or nobody answered in time.
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Some(Err("it did not answer in time".to_owned()))
}

/// `node.probe.result`.
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
