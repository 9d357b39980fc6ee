//! Environment of a gateway's runs: its services, with the credentials that no agent sees.

use std::{collections::BTreeMap, sync::Arc};

use countersign_adapter_agent_gate as agent_gate;
use countersign_adapter_gsv as gsv;
use countersign_adapter_mcp as mcp;
use countersign_adapter_omp::attach::AttachedSessions;
use countersign_config::{self as config, Config, ServiceAuthConfig};
use countersign_conversations::{
    chats::{GatewayModels, SessionWorkspaces},
    prompt::compaction::CompactionPrompts,
};
use countersign_core::{
    call::CallDetails,
    id::{RunId, SessionId},
    schedule,
    session::ModelRef,
    tool::ToolSpec,
};
use countersign_foreign_calls::{CallLimits, is_decision_only};
use countersign_policy_admin::{service_tools, tool_catalog::ToolCatalog, tool_inventory};
use countersign_runtime::{
    DueFiring, EnvironmentFor, ResolvedModel, RunEnvironment, ServiceOutcome, SummaryPrompts,
    services::{self, ServiceCall, ServiceCallOutcome, ServiceClient},
    tools::{GatewaySecrets, ToolContext, ToolRegistry},
};
use countersign_telegram as telegram;
use countersign_view::connection_status::AgentStatus as _;
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::{cluster::HeldLease, mcp_approvals, mcp_tools::McpTools};

/// Tools of services by name, each with its service.
type ServiceToolCalls = BTreeMap<String, (String, ServiceCall)>;

/// Services and their tools, and the environment of the gateway's own runs.
pub(super) struct GatewayEnvironment {
    services: Arc<ServiceClient>,
    calls: ServiceToolCalls,
    mcp: Arc<McpTools>,
    models: Arc<GatewayModels>,
    workspaces: Arc<SessionWorkspaces>,
    attached_sessions: Arc<AttachedSessions>,
    gsv_environments: Arc<gsv::GsvEnvironments>,
    /// Lease of the realm, in a cluster.
    lease: Option<HeldLease>,
}

impl GatewayEnvironment {
    pub(super) fn new(
        services: Arc<ServiceClient>,
        config: &Config,
        mcp: Arc<McpTools>,
        models: Arc<GatewayModels>,
        workspaces: Arc<SessionWorkspaces>,
        attached_sessions: Arc<AttachedSessions>,
        gsv_environments: Arc<gsv::GsvEnvironments>,
    ) -> Self {
        let tools = config.services.iter().flat_map(|service| service.tools.iter().map(move |tool| (service, tool)));
        let calls =
            tools.map(|(service, tool)| (tool.name.clone(), (service.name.clone(), service_tools::call_of(tool))));
        Self {
            calls: calls.collect(),
            services,
            mcp,
            models,
            workspaces,
            attached_sessions,
            gsv_environments,
            lease: None,
        }
    }

    /// Returns the same for a node of a cluster, which begins nothing without its lease.
    pub(super) fn with_lease(self, lease: Option<HeldLease>) -> Self {
        Self { lease, ..self }
    }
}

impl RunEnvironment for GatewayEnvironment {
    fn may_act(&self) -> bool {
        self.lease.as_ref().is_none_or(HeldLease::is_held)
    }

    fn hosted_environment(&self, session: &SessionId) -> Option<Arc<dyn RunEnvironment>> {
        self.attached_sessions.environment_for(session)
    }

    fn environment_for(&self, session: &SessionId, run: Option<RunId>) -> EnvironmentFor {
        self.gsv_environments.environment_for(session, run)
    }

    fn resolve_model(&self, model: &ModelRef) -> Result<ResolvedModel, String> {
        self.models.choose_model(model)
    }

    fn usable_models(&self, _: &SessionId, _: &ModelRef) -> Vec<ModelRef> {
        self.models.usable_models(|_| false)
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        self.mcp.registry()
    }

    fn system_prompt(&self, _: &SessionId, cwd: &str, tools: &[&ToolSpec]) -> String {
        self.workspaces.system_prompt(cwd, tools)
    }

    fn tool_context(&self, session: &SessionId, cwd: &str) -> ToolContext {
        self.workspaces.tool_context(session, cwd)
    }

    fn fire_job<'a>(&'a self, fired: &'a DueFiring) -> BoxFuture<'a, schedule::Command> {
        self.gsv_environments.fire_job(fired).boxed()
    }

    fn call_service<'a>(
        &'a self,
        content: &'a CallDetails,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, ServiceOutcome> {
        async move {
            if !self.may_act() {
                return ServiceOutcome::InDoubt("this process does not own the record any more".to_owned());
            }
            if let Some(outcome) = mcp_approvals::carry_out(&self.mcp, content).await {
                return outcome;
            }
            if let Some(outcome) = self.mcp.call_for_agent(content, cancel.clone()).await {
                return outcome;
            }
            if is_decision_only(content) {
                return ServiceOutcome::Done(String::new());
            }
            let Some((service, call)) = self.calls.get(&*content.tool) else {
                let reason = self.mcp.missing_approval(&content.tool);
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                return ServiceOutcome::NotBegun(format!("Unknown tool: {}{reason}", content.tool));
            };
            match self.services.run(service, call, &content.arguments, cancel).await {
                ServiceCallOutcome::Done(value) => ServiceOutcome::Done(value.to_string()),
                ServiceCallOutcome::Failed { text } => ServiceOutcome::Failed(text),
                ServiceCallOutcome::NotBegun { text } => ServiceOutcome::NotBegun(text),
                ServiceCallOutcome::InDoubt { text } => ServiceOutcome::InDoubt(text),
                ServiceCallOutcome::Invalid(refused) => ServiceOutcome::NotBegun(refused.to_string()),
            }
        }
        .boxed()
    }

    fn summary_prompts(&self) -> &dyn SummaryPrompts {
        &CompactionPrompts
    }
}

/// Returns the definitions of a configuration's services.
pub(super) fn service_definitions(config: &Config) -> Vec<services::ServiceDefinition> {
    let services = config.services.iter().map(|service| services::ServiceDefinition {
        name: service.name.clone(),
        base_url: service.url.clone(),
        auth: match &service.auth {
            ServiceAuthConfig::Bearer { token } => services::ServiceAuth::Bearer(token.clone()),
            ServiceAuthConfig::Header { name, token } => {
                services::ServiceAuth::Header { name: name.clone(), token: token.clone() }
            }
            ServiceAuthConfig::Query { param, token } => {
                services::ServiceAuth::Query { param: param.clone(), token: token.clone() }
            }
            ServiceAuthConfig::Basic { username, password } => {
                services::ServiceAuth::Basic { user: username.clone(), password: password.clone() }
            }
            ServiceAuthConfig::None => services::ServiceAuth::None,
        },
        health: services::HealthCheck {
            method: service.health.method.clone(),
            path: service.health.path.clone(),
            expect_status: service.health.expect_status,
        },
        errors: service.errors.clone(),
        other_errors: service.other_errors.clone(),
        limits: services::ServiceLimits {
            // Each tool has its own.
            timeout: std::time::Duration::from_secs(300),
            response: 1 << 20,
        },
    });
    services.collect()
}

/// Returns the settings of the messenger. Cards of an agent that is away show that.
pub(super) fn telegram_settings(
    config: &config::TelegramConfig,
    people: &[config::PersonConfig],
    door: &Arc<agent_gate::AgentGateAdapter>,
    inbound_hook: &Arc<telegram::InboundHook>,
) -> telegram::TelegramSettings {
    let door = Arc::clone(door);
    telegram::TelegramSettings {
        api_url: config.api_url.clone(),
        topic: config.message_thread_id,
        people: tool_inventory::people_identities(people),
        ear: Some(Arc::clone(inbound_hook)),
        presence: Arc::new(move |session: &SessionId| !door.is_agents(session) || door.is_connected(session)),
        ..telegram::TelegramSettings::new(config.token.clone(), config.chat_id, config.allowed_users.iter().copied())
    }
}

/// Returns the limits of each program that calls over MCP or runs hooks.
pub(super) fn call_limits(config: &Config) -> CallLimits {
    CallLimits {
        per_minute: config.limits.max_requests_per_minute,
        pending: config.limits.max_pending_approvals,
        approval_timeout: config.approval_timeout,
        question_timeout: config.clarify_timeout,
    }
}

/// Returns the settings of the MCP server. It offers the tools of agent-gate.
pub(super) fn mcp_settings(agents: &agent_gate::Settings, mcp_tools: &Arc<McpTools>) -> mcp::McpSettings {
    mcp::McpSettings {
        listed: agents.tools.service_order().to_vec(),
        tools: Arc::clone(agents.tools.services()),
        secrets: agents.secrets.clone(),
        further: Some(Arc::clone(mcp_tools) as Arc<dyn mcp::FurtherTools>),
        own_header: mcp_tools.own_header(),
    }
}

/// Returns the settings of the agent-gate adapter.
pub(super) fn agent_gate_settings(config: &Config) -> agent_gate::Settings {
    let agents = config.agents.iter();
    let order = config.services.iter().flat_map(|service| &service.tools).map(|tool| tool.name.clone());
    let tools = Arc::new(service_tools::from_services(&config.services));
    agent_gate::Settings {
        secrets: GatewaySecrets::default(),
        agents: agents
            .map(|agent| agent_gate::AgentCredentials { id: agent.id.clone(), token: agent.token.clone() })
            .collect(),
        tools: Arc::new(ToolCatalog::new(tools, order.collect())),
        limits: agent_gate::AgentLimits {
            per_minute: config.limits.max_requests_per_minute,
            pending: config.limits.max_pending_approvals,
            failed_auth_per_minute: config.limits.max_failed_auth_per_minute,
            approval_timeout: config.approval_timeout,
        },
    }
}
