//! The adapter: one serves all clients of a gateway.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use countersign_core::id::PrincipalId;
use countersign_foreign_calls::{ForeignCalls, Requester};
use countersign_policy_admin::service_tools::ServiceTools;
use countersign_runtime::tools::GatewaySecrets;
use countersign_view::{Protocol, principals};
use tokio_util::sync::CancellationToken;

use crate::{call_rate::CallRate, further_tools::FurtherTools, tool_list::ToolList};

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
    /// Header that the gateway sends to MCP servers: a request with it comes from the gateway itself.
    pub own_header: Option<(HeaderName, HeaderValue)>,
}

/// Adapter. One serves all clients of a gateway.
pub struct McpAdapter {
    pub(super) calls: Arc<ForeignCalls>,
    pub(super) tools: Arc<ServiceTools>,
    pub(super) secrets: GatewaySecrets,
    pub(super) further: Option<Arc<dyn FurtherTools>>,
    pub(super) own_header: Option<(HeaderName, HeaderValue)>,
    pub(super) list: ToolList,
    pub(super) rate: CallRate,
    /// Cancelled at the close: ends every connection.
    pub(super) end: CancellationToken,
}

impl McpAdapter {
    /// Creates the adapter for the calls of a gateway. The session of a principal is opened at its first call.
    pub fn new(calls: Arc<ForeignCalls>, settings: McpSettings) -> Arc<Self> {
        let list = ToolList::new(&settings.listed, &settings.tools, settings.further.clone());
        let rate = CallRate::new(calls.limits().per_minute);
        Arc::new(Self {
            calls,
            tools: settings.tools,
            secrets: settings.secrets,
            further: settings.further,
            own_header: settings.own_header,
            list,
            rate,
            end: CancellationToken::new(),
        })
    }

    /// Returns the requester of a principal.
    pub(super) fn requester(&self, principal: &PrincipalId) -> Arc<Requester> {
        self.calls.requester(Protocol::Mcp, principal, &principals::mcp_session(principal), "")
    }

    /// Ends every wait for a call, of all adapters of these calls, and every connection. Pending gates stay.
    pub fn close(&self) {
        self.calls.close();
        self.end.cancel();
    }
}

impl std::fmt::Debug for McpAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpAdapter").finish_non_exhaustive()
    }
}
