//! Routes of a realm: each adapter gets the parts that it uses.

use std::sync::Arc;

use axum::Router;
use countersign_adapter_agent_gate::AgentGateAdapter;
use countersign_adapter_gsv as gsv;
use countersign_adapter_hermes::{self as hermes, HermesContext};
use countersign_adapter_hooks::{self as hooks, HookAdapter};
use countersign_adapter_mcp::{self as mcp, McpAdapter};
use countersign_api::{self as api, ApiContext};
use countersign_config::Config;
use countersign_console::{self as console, ConsoleContext};
use countersign_conversations::chats::Conversations;
use countersign_core::time::Millis;
use countersign_http::{
    open_connections::OpenConnections,
    web::{self, WebAuth},
};
use countersign_policy_admin::{rules_file::RulesFile, tool_inventory::ToolInventory};
use countersign_runtime::{Clock, OwnerHandle, services::ServiceClient};
use countersign_telegram::HealthProbe;

use crate::{
    cluster::HeldLease,
    mcp_status::GatewayMcpServers,
    metrics::{self, MetricsContext},
};

/// Parts of a realm that its routes use.
pub(super) struct RouteParts {
    pub(super) handle: OwnerHandle,
    pub(super) clock: Clock,
    pub(super) config: Arc<Config>,
    pub(super) chats: Arc<Conversations>,
    pub(super) auth: Arc<WebAuth>,
    pub(super) started_at: Millis,
    pub(super) tool_inventory: ToolInventory,
    pub(super) rules_file: Arc<RulesFile>,
    pub(super) services: Arc<ServiceClient>,
    pub(super) agents: Arc<AgentGateAdapter>,
    pub(super) peers: Arc<gsv::GsvAdapter>,
    pub(super) mcp: Arc<McpAdapter>,
    pub(super) hooks: Arc<HookAdapter>,
    pub(super) mcp_servers: Arc<GatewayMcpServers>,
    pub(super) telegram: Option<HealthProbe>,
    pub(super) url: String,
    pub(super) open_connections: OpenConnections,
    /// Lease of the realm, in a cluster.
    pub(super) lease: Option<HeldLease>,
    /// Name of the realm, where the process serves several.
    pub(super) realm: Option<String>,
}

impl RouteParts {
    /// Builds every route that is no WebSocket. `None` if the owner has ended.
    pub(super) async fn into_router(self) -> Option<Router> {
        let Self { handle, clock, config, chats, auth, started_at, tool_inventory, rules_file, .. } = self;
        let Self {
            services,
            agents,
            peers,
            mcp,
            hooks,
            mcp_servers,
            telegram,
            url,
            open_connections,
            lease,
            realm,
            ..
        } = self;
        let verifying = Arc::new(tokio::sync::Semaphore::new(1));
        let api = ApiContext {
            handle: handle.clone(),
            chats: Arc::clone(&chats),
            auth: Arc::clone(&auth),
            clock: clock.clone(),
            tool_inventory: tool_inventory.clone(),
            mcp_servers: mcp_servers.clone(),
            verifying: Arc::clone(&verifying),
        };
        let hermes = HermesContext {
            handle: handle.clone(),
            chats: Arc::clone(&chats),
            auth: Arc::clone(&auth),
            clock: clock.clone(),
            started_at,
            config: Arc::clone(&config),
        };
        let metrics = MetricsContext {
            handle: handle.clone(),
            auth: Arc::clone(&auth),
            started_at,
            storage: config.storage.clone(),
            telegram: telegram.clone(),
            open_connections,
            lease,
            realm,
        };
        let console = ConsoleContext {
            handle,
            chats,
            auth: Arc::clone(&auth),
            clock,
            started_at,
            config,
            tool_inventory,
            rules_file,
            verifying,
            services,
            agents,
            peers: peers.clone(),
            mcp_servers,
            telegram,
            address: url,
        };
        let pages = web::login_routes(&auth)
            .merge(api::routes(&Arc::new(api)))
            .merge(console::routes(&Arc::new(console)))
            .merge(metrics::routes(&Arc::new(metrics)))
            .merge(gsv::webhook_routes(&peers))
            .merge(mcp::routes(&mcp, &auth))
            .merge(hooks::routes(&hooks, &auth))
            .merge(hermes::open(&Arc::new(hermes)).await?);
        Some(web::with_fallbacks(pages, &auth, hermes::unknown_route))
    }
}
