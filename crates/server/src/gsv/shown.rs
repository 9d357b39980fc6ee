//! What pages show of this door: the nodes that are known, and accounts of chat networks.

use std::sync::Arc;

use countersign_core::time::Millis;
use countersign_runtime::store::ReadError;

use super::{Door, channels, nodes};

/// A node that is here, or was.
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: String,
    /// Whether it is connected.
    pub(crate) is_connected: bool,
    /// When it last came or went.
    pub(crate) seen: Millis,
    /// Its operating system and the version of its program, in its own words.
    pub(crate) platform: Option<String>,
    pub(crate) version: Option<String>,
    /// How many tools it offers.
    pub(crate) tools: usize,
    /// Whether it keeps a journal, so that what was cut off is asked for again.
    pub(crate) keeps_journal: bool,
}

/// An account of a chat network.
pub(crate) struct Account {
    /// Which network.
    pub(crate) network: String,
    /// Its name there.
    pub(crate) name: String,
    /// Whether something can be carried to it.
    pub(crate) is_connected: bool,
    /// When something last came through it.
    pub(crate) heard: Option<Millis>,
    /// What is wrong with it.
    pub(crate) problem: Option<String>,
    /// How many letters wait to be carried.
    pub(crate) waiting: usize,
}

impl Door {
    /// Every node that ever was here, by id.
    ///
    /// # Errors
    /// What the log says.
    pub(crate) async fn nodes_shown(&self) -> Result<Vec<Node>, ReadError> {
        let known = nodes::registered(self.site.handle.log()).await?;
        let node = |known: nodes::Known| Node {
            is_connected: self.roster.node(&known.node).is_some(),
            id: known.node,
            seen: Millis(known.seen_at),
            platform: known.registration.platform,
            version: known.registration.version,
            tools: known.registration.tools.len(),
            keeps_journal: known.registration.journal,
        };
        Ok(known.into_iter().map(node).collect())
    }

    /// Every account of a chat network but the messenger's own. `None` if the gateway closes.
    pub(crate) async fn accounts_shown(self: &Arc<Self>) -> Option<Vec<Account>> {
        channels::shown(self).await
    }
}
