//! What nodes are known: one row each, folded within the append, so that it is there after a restart and never behind.

use countersign_core::{engine::Event, peer};
use countersign_protocol::{
    WireValue,
    gsv::{connect::ConnectingPeer, runtime::RuntimeInfo, tool::ToolDefinition},
};
use countersign_runtime::store::{AnyLog, Log as _, LogReadError, LogView, Partition, StoredRecord, ViewRows};
use countersign_view::protocol::node_of;
use serde::{Deserialize, Serialize};

/// How many rows are read at once.
const PAGE: usize = 1000;
/// The view's name.
const NAME: &str = "gsv-nodes";

/// What a node said of itself when it last connected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Registration {
    /// The version of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Its operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<String>,
    /// Whether it keeps a journal of its calls.
    pub(crate) journal: bool,
    /// What it offers.
    pub(crate) tools: Vec<ToolDefinition>,
    /// What its machine is like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<RuntimeInfo>,
}

impl WireValue for Registration {}

impl Registration {
    pub(super) fn of(
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

/// A node that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// Its id.
    #[serde(skip)]
    pub(crate) node: String,
    /// What it last said of itself.
    pub(crate) registration: Registration,
    /// When it was first seen, in milliseconds.
    pub(crate) first_at: u64,
    /// When it last came or went.
    pub(crate) seen_at: u64,
}

/// The view.
#[derive(Debug)]
pub struct NodeRegister;

impl LogView for NodeRegister {
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
        let known = rows.get(node).and_then(|bytes| serde_json::from_slice::<Known>(&bytes).ok());
        let mut row = known.unwrap_or_else(|| Known { first_at: record.at.0, ..Known::default() });
        row.seen_at = record.at.0;
        if let peer::Event::Registered { .. } = event {
            row.registration = content.and_then(|said| serde_json::from_str(said).ok()).unwrap_or_default();
        }
        if let Ok(bytes) = serde_json::to_vec(&row) {
            rows.put_row(node, &bytes);
        }
    }
}

/// The node with this id, if it ever was here. What cannot be read counts as unknown: it registers anew.
pub(super) async fn find(log: &AnyLog, node: &str) -> Option<Known> {
    let page = log.read_view(Partition::ZERO, NAME, node, None, 1).await;
    let page = page.inspect_err(|error| tracing::warn!(%error, "the register of nodes cannot be read")).ok()?;
    page.into_iter().find(|(id, _)| id == node).and_then(read)
}

/// All nodes that ever were here, by id.
///
/// # Errors
/// What the log says.
pub(crate) async fn all(log: &AnyLog) -> Result<Vec<Known>, LogReadError> {
    let (mut known, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = log.read_view(Partition::ZERO, NAME, "", after.as_deref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(id, _)| id.clone());
        known.extend(page.into_iter().filter_map(read));
        if is_last {
            return Ok(known);
        }
    }
}

fn read((node, bytes): (String, bytes::Bytes)) -> Option<Known> {
    Some(Known { node, ..serde_json::from_slice(&bytes).ok()? })
}
