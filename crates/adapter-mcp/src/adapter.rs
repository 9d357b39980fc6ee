//! The adapter: one serves all clients of a gateway.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderName, HeaderValue};
use countersign_core::id::PrincipalId;
use countersign_foreign_calls::{ForeignCalls, Requester};
use countersign_policy_admin::service_tools::ServiceTools;
use countersign_runtime::tools::GatewaySecrets;
use countersign_view::{Protocol, principals};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{call_rate::CallRate, further_tools::FurtherTools, tool_list::ToolList};

/// Longest time in which replies over HTTP are sent at the close. Shorter than that of the ports.
const REPLY_LIMIT: Duration = Duration::from_millis(1500);

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
    /// Cancelled at the close: ends every wait, and every connection with JSON lines.
    pub(super) end: CancellationToken,
    /// Replies over HTTP that are not sent whole.
    pub(super) replies: TaskTracker,
    /// Cancelled after the last reply: ends the sessions over HTTP.
    pub(super) http_end: CancellationToken,
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
            replies: TaskTracker::new(),
            http_end: CancellationToken::new(),
        })
    }

    /// Returns the requester of a principal.
    pub(super) fn requester(&self, principal: &PrincipalId) -> Arc<Requester> {
        self.calls.requester(Protocol::Mcp, principal, &principals::mcp_session(principal), "")
    }

    /// Ends every wait for a call, of all adapters of these calls, and every connection. Pending gates stay.
    ///
    /// Calls over HTTP get their error before their connections end.
    pub fn close(&self) {
        self.calls.close();
        self.end.cancel();
        self.replies.close();
        let (replies, http_end) = (self.replies.clone(), self.http_end.clone());
        tokio::spawn(async move {
            if tokio::time::timeout(REPLY_LIMIT, replies.wait()).await.is_err() {
                tracing::warn!(open = replies.len(), "MCP clients over HTTP did not take their replies in time");
            }
            http_end.cancel();
        });
    }
}

impl std::fmt::Debug for McpAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpAdapter").finish_non_exhaustive()
    }
}
