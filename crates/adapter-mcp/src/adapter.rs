//! The adapter: one serves all clients of a gateway.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use countersign_core::id::PrincipalId;
use countersign_policy_admin::service_tools::ServiceTools;
use countersign_runtime::{Clock, CommandSource, InboxLane, OwnerError, OwnerHandle, tools::GatewaySecrets};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    delivery::Receipts,
    further_tools::FurtherTools,
    limits::McpLimits,
    outcome_router::OutcomeRouter,
    requester::{Requester, Requesters},
    tool_list::ToolList,
};

/// Settings of the adapter.
pub struct McpSettings {
    /// Names of the tools of services, in the order of the files.
    pub listed: Vec<String>,
    /// Tools of services by name.
    pub tools: Arc<ServiceTools>,
    /// Secrets that clients may name in arguments.
    pub secrets: GatewaySecrets,
    /// Tools beyond those of services.
    pub further: Option<Arc<dyn FurtherTools>>,
    /// Limits of each principal.
    pub limits: McpLimits,
    /// Header that the gateway sends to MCP servers: a request with it comes from the gateway itself.
    pub own_header: Option<(HeaderName, HeaderValue)>,
}

/// Adapter. One serves all clients of a gateway.
pub struct McpAdapter {
    pub(super) handle: OwnerHandle,
    pub(super) requests: CommandSource,
    pub(super) clock: Clock,
    pub(super) tools: Arc<ServiceTools>,
    pub(super) secrets: GatewaySecrets,
    pub(super) further: Option<Arc<dyn FurtherTools>>,
    pub(super) limits: McpLimits,
    pub(super) own_header: Option<(HeaderName, HeaderValue)>,
    pub(super) list: ToolList,
    pub(super) outcomes: Arc<OutcomeRouter>,
    pub(super) receipts: Arc<Receipts>,
    pub(super) closing: watch::Sender<bool>,
    /// Cancelled at the close: ends every connection.
    pub(super) end: CancellationToken,
    requesters: Requesters,
}

impl McpAdapter {
    /// Opens the adapter on an owner. The session of a principal is opened at its first call.
    ///
    /// # Errors
    /// [`OwnerError::Closed`] if the owner has ended.
    pub async fn open(handle: OwnerHandle, clock: Clock, settings: McpSettings) -> Result<Arc<Self>, OwnerError> {
        let closing = watch::Sender::new(false);
        let outcomes = OutcomeRouter::follow_facts(&handle, closing.clone()).await.ok_or(OwnerError::Closed)?;
        let receipts = Receipts::start(handle.source(InboxLane::Request));
        let list = ToolList::new(&settings.listed, &settings.tools, settings.further.clone());
        Ok(Arc::new(Self {
            requests: handle.source(InboxLane::Request),
            handle,
            clock,
            tools: settings.tools,
            secrets: settings.secrets,
            further: settings.further,
            limits: settings.limits,
            own_header: settings.own_header,
            list,
            outcomes,
            receipts,
            closing,
            end: CancellationToken::new(),
            requesters: Requesters::default(),
        }))
    }

    /// Returns the requester of a principal.
    pub(super) fn requester(&self, principal: &PrincipalId) -> Arc<Requester> {
        self.requesters.for_principal(principal, self.limits.per_minute)
    }

    /// Ends every wait and every connection. Pending gates stay.
    pub fn close(&self) {
        self.closing.send_replace(true);
        self.end.cancel();
    }
}

impl std::fmt::Debug for McpAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpAdapter").finish_non_exhaustive()
    }
}
