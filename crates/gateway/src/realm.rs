//! Realm: the state of one gateway. It is built in one place and held by one value, so that a process
//! can hold several.
//!
//! It must not know signals, nor bind a port: a process does both.

mod health;
mod options;
mod prepared;
mod routes;
mod stdio_hosts;

use std::{os::unix::fs::DirBuilderExt as _, sync::Arc, time::Duration};

use countersign_adapter_acp::{AcpAdapter, AcpContext};
use countersign_adapter_agent_gate::AgentGateAdapter;
use countersign_adapter_gsv::{self as gsv, GsvContext};
use countersign_adapter_hooks::HookAdapter;
use countersign_adapter_mcp::McpAdapter;
use countersign_adapter_omp::attach::{AttachOptions, AttachServer, AttachedSessions};
use countersign_config::{Config, OnShutdown};
use countersign_conversations::{
    chats::{Conversations, GatewayModels, SessionWorkspaces},
    sessions::SessionIndex,
};
use countersign_core::{
    engine::{Command, ResumeMode},
    gate::{self, Gate},
    id::PrincipalId,
};
use countersign_files::objects::ObjectStore;
use countersign_foreign_calls::ForeignCalls;
use countersign_http::{
    listen::{AllowedHosts, PortHandlers, REALMS_PATH, tunnel::TunnelKey},
    open_connections::OpenConnections,
    readiness::ReadinessProbe,
    tokens::WatchedTokens,
    web::WebAuth,
};
use countersign_mcp_client::{McpOptions, QuestionRequests, withdraw_left_questions};
use countersign_policy_admin::rules_file::RulesFile;
use countersign_runtime::{InboxLane, OwnerError, OwnerHandle, OwnerOptions, store::LogView};
use countersign_telegram::{self as telegram, HealthProbe, InboundHook, TelegramMessenger};
use countersign_view::principals;
use futures_util::FutureExt as _;
use tokio::{sync::watch, task::JoinSet};

pub use options::{RealmNode, RealmOptions};
pub use prepared::PreparedRealm;
pub(crate) use prepared::folder_error;
use routes::RouteParts;

use crate::{
    checkup,
    control::{ControlSocket, SocketParts, tunnel_server},
    mcp_approvals,
    mcp_changes::apply_outside_changes,
    mcp_questions::ServerSessions,
    mcp_status::GatewayMcpServers,
    mcp_tools::{self, McpTools},
    notice::{NoticeFn, NoticeLevel},
    platform::Platform,
    port::host_of,
    retention,
    run_environment::{self, GatewayEnvironment},
    serve_error::ServeError,
    traces::ActiveTraces,
    websockets,
};

/// Time after which an idle session leaves memory.
const IDLE: Duration = Duration::from_secs(600);
/// Longest wait for connections at the close of the gateway.
const FAREWELL: Duration = Duration::from_secs(2);

/// State of one gateway: configuration, rules, users, agents, the owner of the record, adapters, messenger, control
/// socket and retention.
pub struct GatewayRealm {
    config: Arc<Config>,
    notice: NoticeFn,
    url: String,
    handle: OwnerHandle,
    agents: Arc<AgentGateAdapter>,
    peers: Arc<gsv::GsvAdapter>,
    mcp: Arc<McpAdapter>,
    acp: Arc<AcpAdapter>,
    attach_server: Arc<AttachServer>,
    workspaces: Arc<SessionWorkspaces>,
    mcp_tools: Arc<McpTools>,
    rules_file: Arc<RulesFile>,
    telegram: Option<TelegramMessenger>,
    /// Control socket, unless the node has it.
    control: Option<ControlSocket>,
    socket_parts: SocketParts,
    doors: Arc<PortHandlers>,
    traces: ActiveTraces,
    /// True once it closes.
    closing: watch::Sender<bool>,
    /// Tasks that end once it closes.
    tasks: JoinSet<()>,
}

impl GatewayRealm {
    /// Opens the record and builds everything that works with it.
    ///
    /// # Errors
    /// [`ServeError`]. No error loses a fact.
    pub async fn open(prepared: PreparedRealm, options: RealmOptions) -> Result<Self, ServeError> {
        let PreparedRealm { config, notice, secrets, agents, tool_inventory, loaded, services, users, owned, .. } =
            prepared;
        let RealmOptions { platform, address, levels, collector, name, local_node_auth, node } = options;
        let node_auth = local_node_auth.unwrap_or_else(|| gsv::LocalNodeAuth::listen_beside(address.bound.port()));
        let Platform { program, record, clock, entropy } = platform;
        let log = record(&config, log_views())?;
        make_workspaces(&config).map_err(|problem| {
            ServeError::of_io(&format!("cannot create the workspaces in {}", config.agents_dir.display()), problem)
        })?;
        let models = Arc::new(GatewayModels::from_config(&config));
        let sandbox = checkup::build_sandbox(&config);
        let workspaces = SessionWorkspaces::new(&program, sandbox, secrets.clone(), &config.agents_dir, clock.clone());
        let workspaces = Arc::new(workspaces);
        let questions = Arc::new(QuestionRequests::default());
        let mcp_options = McpOptions {
            asker: Some(Arc::clone(&questions) as _),
            ..mcp_tools::server_options(&config, &program, checkup::build_server_sandbox(&config), secrets.clone())
        };
        let mcp_tools = Arc::new(McpTools::from_config(
            &config,
            Arc::clone(workspaces.registry()),
            Arc::clone(&agents.tools),
            mcp_options,
            clock.clone(),
        )?);
        let attached_sessions = Arc::new(AttachedSessions::default());
        let gsv_environments = Arc::new(gsv::GsvEnvironments::default());
        let environment = GatewayEnvironment::new(
            Arc::clone(&services),
            &config,
            Arc::clone(&mcp_tools),
            Arc::clone(&models),
            Arc::clone(&workspaces),
            Arc::clone(&attached_sessions),
            Arc::clone(&gsv_environments),
        )
        .with_lease(node.as_ref().map(|node| node.lease.clone()));
        let around = loaded.rules.path_context.clone();
        let options = OwnerOptions {
            rules: loaded.rules,
            resume: ResumeMode::Go,
            clock: clock.clone(),
            entropy,
            environment: Arc::new(environment),
            merge: Duration::from_millis(50),
            idle: Some(IDLE),
        };
        let handle = OwnerHandle::open(log, options).await?;
        questions.open(&handle, secrets, Arc::new(ServerSessions { timeout: config.clarify_timeout }));
        withdraw_left_questions(&handle, principals::is_mcp_server).await?;
        mcp_tools.set_owner(&handle);
        // Before anybody can answer a gate: it may be of a server that was revoked.
        apply_outside_changes(&handle, &mcp_tools).await?;
        let traces = collector.follow_log(&handle).await;
        let limits = run_environment::call_limits(&config);
        let foreign_calls = Arc::new(ForeignCalls::open(handle.clone(), clock.clone(), limits).await?);
        let mcp = run_environment::mcp_settings(&agents, &mcp_tools);
        let mcp = McpAdapter::new(Arc::clone(&foreign_calls), mcp);
        let hooks = HookAdapter::new(foreign_calls);
        let agents = AgentGateAdapter::open(handle.clone(), clock.clone(), agents).await?;
        let attach_options = AttachOptions {
            handle: handle.clone(),
            sessions: attached_sessions,
            clock: clock.clone(),
            program,
            path_context: around,
            folder: config.storage.folder.clone(),
        };
        let attach_server = AttachServer::open(attach_options).await.ok_or(ServeError::Lost)?;
        let in_folder = |problem| {
            ServeError::of_io(&format!("cannot use the data directory {}", config.storage.folder.display()), problem)
        };
        let folder = std::fs::canonicalize(&config.agents_dir)
            .map_err(|problem| ServeError::of_io(&format!("cannot open {}", config.agents_dir.display()), problem))?;
        let timeouts = (config.approval_timeout, config.clarify_timeout);
        let chats = Arc::new(Conversations::new(handle.clone(), models, folder, timeouts, config.retry_policy()));
        let acp = AcpAdapter::new(AcpContext { handle: handle.clone(), chats: Arc::clone(&chats) });
        let open_connections = OpenConnections::default();
        let socket_parts = SocketParts {
            attach_server: Arc::clone(&attach_server),
            mcp: Arc::clone(&mcp),
            acp: Arc::clone(&acp),
            hooks: Arc::clone(&hooks),
            mcp_tools: Arc::clone(&mcp_tools),
            levels,
            open_connections: open_connections.clone(),
        };
        let tunnels = node.as_ref().map(|node| {
            let key = TunnelKey::from_secret(&node.secret);
            tunnel_server(key, node.process.clone(), socket_parts.clone())
        });
        let control = owned
            .map(|owned| ControlSocket::open(owned, socket_parts.clone(), users))
            .transpose()
            .map_err(in_folder)?;
        mcp_approvals::request_approvals(&handle, &mcp_tools, config.approval_timeout).await?;
        let inbound_hook = Arc::new(InboundHook::default());
        let telegram = match &config.telegram {
            Some(telegram) => {
                let settings = run_environment::telegram_settings(telegram, &config.people, &agents, &inbound_hook);
                Some(TelegramMessenger::spawn(settings, handle.clone(), clock.clone())?)
            }
            None => None,
        };
        let auth = WebAuth::open(
            &config.storage.folder,
            config.web.clone(),
            clock.clone(),
            allowed_authorities(&config),
            address.scheme == "https",
            Some(Box::new(WatchedTokens::new(&config.storage.folder, clock.clone()))),
        );
        let auth = auth.map_err(in_folder)?.behind_proxy(config.gateway.public_url.as_deref());
        let auth = Arc::new(match &node {
            Some(node) => auth.in_cluster(&node.secret),
            None => auth,
        });
        let rules_file = RulesFile::new(handle.clone(), config.permissions.clone(), tool_inventory.clone());
        let started_at = clock.now();
        let reporter = telegram.as_ref().map(|telegram| -> HealthProbe { Arc::new(telegram.health_probe()) });
        let below = name.as_ref().map(|name| format!("{REALMS_PATH}{name}")).unwrap_or_default();
        let url = format!("{}{below}", address.url(&config.gateway.host));
        let gsv = Arc::new(GsvContext {
            handle: handle.clone(),
            clock: clock.clone(),
            config: Arc::clone(&config),
            chats: Arc::clone(&chats),
            telegram: reporter.clone(),
            server_tools: {
                let mcp_tools = Arc::clone(&mcp_tools);
                Arc::new(move || mcp_tools.offered_tools())
            },
        });
        let peers =
            gsv::GsvAdapter::open(&gsv, node_auth, &gsv_environments, &workspaces).await.map_err(
                |error| match error {
                    gsv::GsvOpenError::Secrets(error) => ServeError::Secrets(error.to_string()),
                    gsv::GsvOpenError::Closing => ServeError::Lost,
                },
            )?;
        if let Some(telegram) = &telegram {
            peers.join_messenger(telegram, &inbound_hook).await;
        }
        let parts = RouteParts {
            handle: handle.clone(),
            clock: clock.clone(),
            config: Arc::clone(&config),
            chats,
            auth,
            started_at,
            tool_inventory,
            rules_file: Arc::clone(&rules_file),
            services: Arc::clone(&services),
            agents: Arc::clone(&agents),
            peers: Arc::clone(&peers),
            mcp: Arc::clone(&mcp),
            hooks,
            mcp_servers: Arc::new(GatewayMcpServers::new(Arc::clone(&config), Arc::clone(&mcp_tools), handle.clone())),
            telegram: reporter.clone(),
            url: url.clone(),
            open_connections: open_connections.clone(),
            lease: node.as_ref().map(|node| node.lease.clone()),
            realm: name,
        };
        let auth = Arc::clone(&parts.auth);
        let pages = parts.into_router().await.ok_or(ServeError::Lost)?;
        let (for_agents, for_peers, opened) = (Arc::clone(&agents), Arc::clone(&peers), open_connections.clone());
        let names = config.gateway.public_url.iter().filter_map(|url| host_of(url)).map(str::to_owned);
        let doors = Arc::new(PortHandlers {
            websockets: Box::new(move |request| {
                websockets::serve_websocket(Arc::clone(&for_agents), Arc::clone(&for_peers), opened.clone(), request)
                    .boxed()
            }),
            pages,
            hosts: AllowedHosts::new(address.bound.ip(), names.chain(config.gateway.allowed_hosts.iter().cloned())),
            knows_token: Box::new(move |token| auth.knows_token(token)),
            readiness: ReadinessProbe::new(handle.clone(), config.storage.folder.clone()),
            health: health::health_check(
                handle.clone(),
                services,
                config.services.iter().map(|service| service.name.clone()).collect(),
                reporter,
            ),
            open_connections,
            tunnels,
            holds_lease: node
                .map(|node| -> Box<dyn Fn() -> bool + Send + Sync> { Box::new(move || node.lease.is_held()) }),
        });
        let (closing, tasks) = (watch::Sender::new(false), JoinSet::new());
        let mut realm = Self {
            config,
            notice,
            url,
            handle,
            agents,
            peers,
            mcp,
            acp,
            attach_server,
            workspaces,
            mcp_tools,
            rules_file,
            telegram,
            control,
            socket_parts,
            doors,
            traces,
            closing,
            tasks,
        };
        let (tools, timeout) = (Arc::clone(&realm.mcp_tools), realm.config.approval_timeout);
        let requests = mcp_approvals::request_changes(realm.handle.clone(), tools, timeout);
        let end = realm.closing();
        realm.tasks.spawn(async move {
            tokio::select! {
                () = requests => {}
                () = end => {}
            }
        });
        if realm.config.retention.is_any() {
            let objects = ObjectStore::for_data_dir(&realm.config.storage.folder);
            let keep = retention::run_retention(realm.handle.clone(), clock, objects, realm.config.retention);
            let end = realm.closing();
            realm.tasks.spawn(async move {
                tokio::select! {
                    () = keep => {}
                    () = end => {}
                }
            });
        }
        Ok(realm)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the URL at which it is served.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the handle of its owner.
    pub const fn handle(&self) -> &OwnerHandle {
        &self.handle
    }

    /// Returns the routes, WebSockets and checks that a port serves for it.
    pub fn doors(&self) -> Arc<PortHandlers> {
        Arc::clone(&self.doors)
    }

    /// Returns the parts that a control socket serves.
    pub(crate) fn socket_parts(&self) -> SocketParts {
        self.socket_parts.clone()
    }

    /// Brings the rules of its file and the approvals of MCP servers into force. A rules file that does not load leaves the earlier ones
    /// in force.
    pub async fn reload(&self) {
        // Before the tools are offered, and after it for servers that were revoked.
        if let Err(error) = apply_outside_changes(&self.handle, &self.mcp_tools).await {
            self.warn(&format!("the approvals of MCP servers were not applied: {error}"));
        }
        self.mcp_tools.reload_in_background().await;
        if let Err(error) = apply_outside_changes(&self.handle, &self.mcp_tools).await {
            self.warn(&format!("the approvals of MCP servers were not applied: {error}"));
        }
        match self.rules_file.reload(None).await {
            Ok(warnings) => {
                warnings.iter().for_each(|warning| self.warn(warning));
                (self.notice)(NoticeLevel::Info, "the rules were reloaded and are in force");
            }
            Err(problem) => {
                self.warn(&format!("the rules were not loaded, and the previous rules stay in force: {problem}"));
            }
        }
    }

    fn warn(&self, text: &str) {
        (self.notice)(NoticeLevel::Warning, text);
    }

    /// Waits until its owner has ended: its record cannot be worked with any more.
    pub async fn closed(&self) {
        self.agents.wait_until_closed().await;
    }

    /// Waits until it begins to close: its ports take no more connections then.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.subscribe();
        async move { drop(closing.wait_for(|closing| *closing).await) }
    }

    /// Closes it in order: adapters, pending approvals if the settings say so, messenger, control socket, owner, sessions and
    /// record. `served` ends once its ports have closed their connections; it is waited for a short while only.
    pub async fn close(self, served: impl Future<Output = ()>) {
        let Self {
            config,
            notice,
            handle,
            agents,
            peers,
            mcp,
            acp,
            attach_server,
            workspaces,
            mcp_tools,
            telegram,
            control,
            traces,
            closing,
            mut tasks,
            ..
        } = self;
        agents.close();
        peers.close();
        mcp.close();
        acp.close();
        closing.send_replace(true);
        if config.on_shutdown == OnShutdown::Deny {
            // A record that cannot be written must not keep the process: pending gates then wait for the next.
            if tokio::time::timeout(FAREWELL, deny_what_waits(&handle)).await.is_err() {
                notice(NoticeLevel::Warning, "pending approvals could not be denied in time; they stay pending");
            }
        }
        if let Some(telegram) = telegram {
            telegram.stop(FAREWELL).await;
        }
        drop(control);
        // In parallel: calls of services get most of the time that there is, and connections get the calls that end in it.
        let ended = async { tokio::join!(served, async { while tasks.join_next().await.is_some() {} }) };
        let (_, ()) = tokio::join!(tokio::time::timeout(FAREWELL, ended), handle.close());
        attach_server.close().await;
        tokio::join!(workspaces.close(), mcp_tools.close());
        handle.close_log().await;
        traces.stop(FAREWELL).await;
    }
}

impl std::fmt::Debug for GatewayRealm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayRealm")
            .field("folder", &self.config.storage.folder)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Returns the views that are kept next to the record, so that their readers need not read all of it.
fn log_views() -> Vec<Arc<dyn LogView>> {
    vec![
        Arc::new(SessionIndex),
        Arc::new(gsv::SessionRegistryView),
        Arc::new(gsv::MemoriesView),
        Arc::new(gsv::NodeRegistryView),
        Arc::new(gsv::ExecutionsView),
        Arc::new(gsv::StartedCallsView),
        Arc::new(gsv::JobRunsView),
    ]
}

/// Withdraws every pending gate, as the settings say.
async fn deny_what_waits(handle: &OwnerHandle) {
    let source = handle.source(InboxLane::Result);
    let waiting = source.read_state(|engine| engine.state().pending_gates().map(Gate::id).collect::<Vec<_>>()).await;
    for gate in waiting.map(|(gates, _)| gates).unwrap_or_default() {
        let by = PrincipalId::new(telegram::SHUTDOWN);
        // Not an approver's denial: the agent may ask again once the gateway is back.
        let ended = source.send_command(Command::Gate(gate::Command::Withdraw { gate, by })).await;
        if matches!(ended, Err(OwnerError::NotRecorded(_) | OwnerError::Closed)) {
            return;
        }
    }
}

/// Returns the authorities under which pages may be served, in addition to the requested address.
fn allowed_authorities(config: &Config) -> Vec<String> {
    let public = config.gateway.public_url.iter().filter_map(|url| url.split_once("://")?.1.split('/').next());
    public.map(str::to_owned).chain(config.gateway.allowed_hosts.iter().cloned()).collect()
}

/// Creates the folder of agents' folders, closed to others. An existing one is unchanged.
fn make_workspaces(config: &Config) -> std::io::Result<()> {
    let folder = &config.agents_dir;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if let Some(finding) = config.open_workspaces() {
        tracing::warn!("{finding}: {}", finding.advice());
    }
    Ok(())
}
