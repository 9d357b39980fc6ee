//! The adapter: one serves all editors of a gateway.

use std::sync::Arc;

use countersign_conversations::chats::Conversations;
use countersign_core::policy::ApprovalMode;
use countersign_runtime::OwnerHandle;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Parts of a gateway that the adapter works with.
pub struct AcpContext {
    /// Owner of the record.
    pub handle: OwnerHandle,
    /// Conversations of the gateway.
    pub chats: Arc<Conversations>,
}

/// Choices of the command line that an editor starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionOptions {
    /// Provider of the model of new sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model of new sessions: its id, or its provider and id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Loosest approval mode of sessions.
    #[serde(default)]
    pub approval: ApprovalMode,
    /// True if sessions open without the MCP servers that the editor names. Otherwise none opens with any.
    #[serde(default)]
    pub ignores_servers: bool,
}

/// Adapter. One serves all editors of a gateway.
pub struct AcpAdapter {
    pub(crate) handle: OwnerHandle,
    pub(crate) chats: Arc<Conversations>,
    /// Cancelled at the close: ends every connection.
    pub(crate) end: CancellationToken,
    connections: watch::Sender<usize>,
}

impl AcpAdapter {
    /// Creates the adapter.
    pub fn new(context: AcpContext) -> Arc<Self> {
        let AcpContext { handle, chats } = context;
        Arc::new(Self { handle, chats, end: CancellationToken::new(), connections: watch::Sender::new(0) })
    }

    /// Waits until no editor is connected.
    pub async fn wait_until_unused(&self) {
        // The sender is our own.
        let _ = self.connections.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Ends every connection. Pending gates stay.
    pub fn close(&self) {
        self.end.cancel();
    }
}

impl std::fmt::Debug for AcpAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcpAdapter").finish_non_exhaustive()
    }
}

/// Counts a connection until it is dropped.
pub(crate) struct ConnectionGuard<'a>(&'a AcpAdapter);

impl<'a> ConnectionGuard<'a> {
    pub(crate) fn new(adapter: &'a AcpAdapter) -> Self {
        adapter.connections.send_modify(|count| *count += 1);
        Self(adapter)
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.connections.send_modify(|count| *count -= 1);
    }
}
