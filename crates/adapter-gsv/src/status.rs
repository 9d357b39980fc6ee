//! Nodes and accounts of chat networks, for pages that show who is connected.

use std::sync::Arc;

use countersign_core::time::Millis;
use countersign_runtime::store::LogReadError;
use countersign_view::connection_status::{ChannelAccountStatus, NodeStatus, PeerStatus};
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{GsvAdapter, channels, nodes};

impl PeerStatus for GsvAdapter {
    fn list_nodes(self: Arc<Self>) -> BoxFuture<'static, Result<Vec<NodeStatus>, LogReadError>> {
        async move {
            let known = nodes::registered(self.context.handle.log()).await?;
            let node = |known: nodes::KnownNode| NodeStatus {
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

    fn list_accounts(self: Arc<Self>) -> BoxFuture<'static, Option<Vec<ChannelAccountStatus>>> {
        async move { channels::account_overview(&self).await }.boxed()
    }
}
