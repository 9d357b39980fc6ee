//! The nodes that are connected, as far as skills need to know them.

use countersign_protocol::gsv::{connect::Peer as Kind, skill::Node};

use super::super::Door;

/// All of them, by id.
pub(super) fn all(door: &Door) -> Vec<Node> {
    let told = |peer: std::sync::Arc<super::super::peer::Peer>| {
        let Kind::Node { runtime, .. } = &peer.connect.peer else { return None };
        let runtime = runtime.as_ref();
        let bins = runtime.map(|it| it.host_bin_status.iter().filter(|(_, has)| **has).map(|(bin, _)| bin.clone()));
        Some(Node {
            node_id: peer.connect.id.clone(),
            host_role: runtime.and_then(|it| it.host_role),
            host_capabilities: runtime.map(|it| it.host_capabilities.clone()).unwrap_or_default(),
            host_os: runtime.and_then(|it| it.host_os.clone()),
            host_env: runtime.map(|it| it.host_env.clone()).unwrap_or_default(),
            host_bins: bins.map(Iterator::collect).unwrap_or_default(),
            host_bin_status_updated_at: runtime.and_then(|it| it.host_bin_status_updated_at),
            can_probe_bins: false,
        })
    };
    door.roster.nodes().into_iter().filter_map(told).collect()
}
