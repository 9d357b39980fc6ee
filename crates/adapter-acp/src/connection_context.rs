//! Parts of a connection that its sessions use.

use std::sync::Arc;

use countersign_acp_protocol::ClientFeatures;
use countersign_core::id::PrincipalId;

use crate::{
    adapter::{AcpAdapter, ConnectionOptions},
    client_requests::ClientRequests,
    output::Output,
};

/// Parts of a connection that its sessions use.
pub(crate) struct ConnectionContext {
    pub(crate) adapter: Arc<AcpAdapter>,
    pub(crate) options: ConnectionOptions,
    /// The person at the editor.
    pub(crate) person: PrincipalId,
    pub(crate) features: ClientFeatures,
    pub(crate) requests: ClientRequests,
    pub(crate) output: Output,
}
