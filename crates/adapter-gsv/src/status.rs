//! Nodes and accounts of chat networks, for pages that show who is connected.

use std::sync::Arc;

use countersign_core::time::Millis;
use countersign_runtime::store::LogReadError;
use countersign_view::connected::{Account, Node, PeerStatus};
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{GsvAdapter, channels, nodes};

impl PeerStatus for GsvAdapter {
    fn nodes(self: Arc<Self>) -> BoxFuture<'static, Result<Vec<Node>, LogReadError>> {
        async move {
            let known = nodes::registered(self.context.handle.log()).await?;
            let node = |known: nodes::KnownNode| Node {
                is_connected: self.roster.find_node(&known.node).is_some(),
                id: known.node,
                seen: Millis(known.seen_at),
                platform: known.registration.platform,
                version: known.registration.version,
                tools: known.registration.tools.len(),
                keeps_journal: known.registration.journal,
            };
            Ok(known.into_iter().map(node).collect())
        }
        .boxed()
    }

    fn accounts(self: Arc<Self>) -> BoxFuture<'static, Option<Vec<Account>>> {
        async move { channels::account_overview(&self).await }.boxed()
    }
}
