//! Known nodes: one row each, folded within the append, so that it is there after a restart and always current.

use countersign_core::{engine::Event, peer};
use countersign_protocol::{
    WireValue,
    gsv::{connect::ConnectingPeer, runtime::RuntimeInfo, tool::ToolDefinition},
};
use countersign_runtime::store::{AnyLog, Log as _, LogReadError, LogView, Partition, StoredRecord, ViewRows};
use countersign_view::protocol::node_of;
use serde::{Deserialize, Serialize};

/// Most rows that are read at once.
const PAGE: usize = 1000;
/// Name of the view.
const NAME: &str = "gsv-nodes";

/// Data that a node sent when it last connected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeRegistration {
    /// Version of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<String>,
    /// True if it keeps a journal of its calls.
    pub(crate) journal: bool,
    /// Tools that it offers.
    pub(crate) tools: Vec<ToolDefinition>,
    /// Description of its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<RuntimeInfo>,
}

impl WireValue for NodeRegistration {}

impl NodeRegistration {
    pub(super) fn from_connect(
        connect: &ConnectingPeer,
        tools: &[ToolDefinition],
        runtime: Option<&RuntimeInfo>,
        journal: bool,
    ) -> Self {
        Self {
            version: connect.version.clone(),
            platform: connect.platform.clone(),
            journal,
            tools: tools.to_vec(),
            runtime: runtime.cloned(),
        }
    }
}

/// Known node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KnownNode {
    /// Id.
    #[serde(skip)]
    pub(crate) node: String,
    /// Data of its last connection.
    pub(crate) registration: NodeRegistration,
    /// Time of its first connection, in milliseconds.
    pub(crate) first_at: u64,
    /// Time at which it last connected or disconnected, in milliseconds.
    pub(crate) seen_at: u64,
}

/// View of the known nodes.
#[derive(Debug)]
pub struct NodeRegistryView;

impl LogView for NodeRegistryView {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> u32 {
        1
    }

    fn fold_record(&self, record: &StoredRecord, content: Option<&str>, rows: &mut dyn ViewRows) {
        if record.kind != "peer" {
            return;
        }
        let Ok(Event::Peer(event)) = Event::decode(&record.kind, record.version, &record.facts) else { return };
        let Some(node) = node_of(event.peer()) else { return };
        let known = rows.get(node).and_then(|bytes| serde_json::from_slice::<KnownNode>(&bytes).ok());
        let mut row = known.unwrap_or_else(|| KnownNode { first_at: record.at.0, ..KnownNode::default() });
        row.seen_at = record.at.0;
        if let peer::Event::Registered { .. } = event {
            row.registration = content.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        }
        if let Ok(bytes) = serde_json::to_vec(&row) {
            rows.put_row(node, &bytes);
        }
    }
}

/// Finds the node with this id, if it ever connected. An unreadable row counts as unknown: the node registers again.
pub(super) async fn find_node(log: &AnyLog, node: &str) -> Option<KnownNode> {
    let page = log.read_view(Partition::ZERO, NAME, node, None, 1).await;
    let page = page.inspect_err(|error| tracing::warn!(%error, "failed to read the node registry")).ok()?;
    page.into_iter().find(|(id, _)| id == node).and_then(decode_row)
}

/// Returns all nodes that ever connected, by id.
///
/// # Errors
/// An error of the log.
pub(crate) async fn all_nodes(log: &AnyLog) -> Result<Vec<KnownNode>, LogReadError> {
    let (mut known, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = log.read_view(Partition::ZERO, NAME, "", after.as_deref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(id, _)| id.clone());
        known.extend(page.into_iter().filter_map(decode_row));
        if is_last {
            return Ok(known);
        }
    }
}

fn decode_row((node, bytes): (String, bytes::Bytes)) -> Option<KnownNode> {
    Some(KnownNode { node, ..serde_json::from_slice(&bytes).ok()? })
}
