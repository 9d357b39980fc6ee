//! Tools of MCP servers that runs and agents may call, in the form in which a person approved them.
//!
//! It must not decide about a call: policy decides before one comes here. It starts no server that is not approved.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::http::{HeaderName, HeaderValue};
use countersign_adapter_mcp::{FurtherTool, FurtherTools};
use countersign_config::{Config, McpServerConfig, McpTransportConfig, UndeclaredArguments};
use countersign_core::{call::CallDetails, message::MessageBlock, policy::arguments::DeclaredArgument, tool::ToolSpec};
use countersign_mcp_client::{
    ApprovalError, ApprovedServers, BadDefinition, CallOutcome, ClientCredentials, McpOptions, McpServers, McpTool,
    ProgressSink, ServerApproval, ServerDefinition, ServerListing, ServerTool, ServerTransport,
};
use countersign_policy_admin::{
    service_tools::{ArgumentTexts, ServiceTool, ServiceTools},
    tool_catalog::ToolCatalog,
    tool_inventory::MCP_HOMES,
};
use countersign_runtime::{
    ServiceOutcome,
    tools::{
        AgentTool, CallFailure, CallOutput, GatewaySecrets, Sandbox, ToolContext, ToolRegistry, exec::ExecLauncher,
    },
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Servers of a gateway, and the registry of all tools that its runs have.
pub struct McpTools {
    servers: McpServers,
    data_dir: PathBuf,
    /// The tools that runs have without any server.
    own: Arc<ToolRegistry>,
    offered: Mutex<OfferedTools>,
    /// Tools for agents that make requests. Those of the servers are added to them.
    catalog: Arc<ToolCatalog>,
    secrets: GatewaySecrets,
    /// Value of the header that servers at an address get.
    own_id: Option<String>,
    /// Number of changes so far.
    changed: watch::Sender<u64>,
    /// Servers of which a call was refused: a tool may have changed.
    refused: Arc<RefusedServers>,
    /// Held from the read of the approvals until their tools are offered: of two reloads the later one must read later.
    reloading: Mutex<()>,
}

/// The tools that are approved at one moment.
struct OfferedTools {
    registry: Arc<ToolRegistry>,
    by_name: BTreeMap<String, (ServerTool, Arc<McpTool>)>,
}

/// Service under which the tools of a server are called, with its name after it.
const SERVICE_PREFIX: &str = "mcp:";

/// Variable that a gateway sets for the MCP servers that it starts: its data directory. `countersign mcp` in one of them would call itself.
pub const STARTED_BY: &str = "COUNTERSIGN_MCP";

/// Header of requests to MCP servers, with an id of the gateway. A gateway that gets its own would call itself.
const OWN_HEADER: &str = "countersign-gateway";

/// Reason that a server was not approved. The approvals are as they were.
#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    /// The configuration has no such server, or another one under this name.
    #[error("the configuration has no MCP server {0} with this definition any more")]
    Unknown(String),
    /// The server cannot be started, or lists no tools.
    #[error(transparent)]
    Server(#[from] countersign_mcp_client::McpError),
    /// The file of approvals cannot be read or written.
    #[error(transparent)]
    File(#[from] ApprovalError),
    /// It offers other tools than those that were shown.
    #[error("MCP server {0} offers other tools now than those that were shown")]
    Changed(String),
}

impl McpTools {
    /// Reads the servers of a configuration and their approvals. Starts none. `own` are the tools that runs have without any server,
    /// and approved tools are added to `catalog`.
    ///
    /// # Errors
    /// [`BadDefinition`] for a server that cannot be used.
    pub fn from_config(
        config: &Config,
        own: Arc<ToolRegistry>,
        catalog: Arc<ToolCatalog>,
        options: McpOptions,
    ) -> Result<Self, BadDefinition> {
        let (secrets, own_id) = (options.secrets.clone(), options.headers.get(OWN_HEADER).cloned());
        let enabled = config.mcp_servers.iter().filter(|server| server.enabled);
        let servers = McpServers::new(enabled.map(server_definition).collect(), options)?;
        let tools = Self {
            servers,
            data_dir: config.storage.folder.clone(),
            offered: Mutex::new(OfferedTools { registry: Arc::clone(&own), by_name: BTreeMap::new() }),
            own,
            catalog,
            secrets,
            own_id,
            changed: watch::Sender::default(),
            refused: Arc::default(),
            reloading: Mutex::default(),
        };
        tools.reload();
        Ok(tools)
    }

    /// Returns the header by which a gateway knows its own requests.
    pub(crate) fn own_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = HeaderValue::from_str(self.own_id.as_deref()?).ok()?;
        Some((HeaderName::from_static(OWN_HEADER), value))
    }

    /// Returns the servers.
    pub const fn servers(&self) -> &McpServers {
        &self.servers
    }

    /// Returns all tools that runs have: their own, then the approved ones of servers in the order of their names.
    pub fn registry(&self) -> Arc<ToolRegistry> {
        Arc::clone(&self.offered.lock().registry)
    }

    /// Returns the names of the tools that servers add.
    pub fn offered_names(&self) -> Vec<String> {
        self.offered.lock().by_name.keys().cloned().collect()
    }

    /// Reads the approvals again. If they cannot be read, no tool of a server is offered.
    pub fn reload(&self) {
        if self.servers.definitions().next().is_none() {
            return;
        }
        let _reloading = self.reloading.lock();
        let approved = match ApprovedServers::open(&self.data_dir) {
            Ok(approved) => self.servers.definitions().flat_map(|server| approved.approved_tools(server)).collect(),
            Err(error) => {
                tracing::error!("{error}; no tool of an MCP server is offered");
                Vec::new()
            }
        };
        let mut by_name = BTreeMap::new();
        let mut for_agents = ServiceTools::new();
        let mut tools: Vec<Arc<dyn AgentTool>> = self.own.tools().cloned().collect();
        for approved in approved {
            let name = approved.offered_name.clone();
            let tool = Arc::new(McpTool::new(self.servers.clone(), approved.clone()));
            for_agents.insert(name.clone(), service_tool(&approved, &tool));
            let server = approved.server.clone();
            let (refused, secrets) = (Arc::clone(&self.refused), self.secrets.clone());
            tools.push(Arc::new(WatchedTool { tool: Arc::clone(&tool), server, refused, secrets }));
            by_name.insert(name, (approved, tool));
        }
        let registry = Arc::new(ToolRegistry::from_tools(tools));
        self.catalog.replace_further(for_agents);
        *self.offered.lock() = OfferedTools { registry, by_name };
        self.changed.send_modify(|number| *number += 1);
    }

    /// Calls an approved tool for an agent's request. `None` if its service is no MCP server.
    pub async fn call_for_agent(&self, content: &CallDetails, cancel: CancellationToken) -> Option<ServiceOutcome> {
        let request = content.request.as_ref()?;
        let (service, caller) = (request.service.as_deref()?, request.principal.as_str());
        service.strip_prefix(SERVICE_PREFIX)?;
        let tool = self.offered.lock().by_name.get(&*content.tool).cloned();
        if tool.is_none() && self.catalog.services().contains_key(&*content.tool) {
            return None;
        }
        let Some((approved, _)) = tool else {
            return Some(ServiceOutcome::NotBegun(format!(
                "{} was not called: it is not approved any more",
                content.tool
            )));
        };
        let arguments = match self.secrets.fill_arguments(&content.arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return Some(ServiceOutcome::NotBegun(problem)),
        };
        Some(match self.servers.call_approved(&approved, caller, arguments, cancel, ProgressSink::default()).await {
            CallOutcome::Done { content, is_error, structured } => {
                if is_error {
                    ServiceOutcome::Failed(error_text(&content, &self.secrets))
                } else {
                    ServiceOutcome::Done(self.redact(&content, structured).to_string())
                }
            }
            CallOutcome::Failed { text } => ServiceOutcome::Failed(self.redact_text(&text)),
            CallOutcome::NotBegun { text } => {
                self.refused.add(approved.server);
                ServiceOutcome::NotBegun(self.redact_text(&text))
            }
            CallOutcome::InDoubt { text } => ServiceOutcome::InDoubt(self.redact_text(&text)),
        })
    }

    /// Waits until calls of servers were refused, and returns those servers.
    pub async fn wait_refused(&self) -> BTreeSet<String> {
        loop {
            self.refused.added.notified().await;
            let servers = std::mem::take(&mut *self.refused.servers.lock());
            if !servers.is_empty() {
                return servers;
            }
        }
    }

    fn redact_text(&self, text: &str) -> String {
        self.secrets.redactor().redact_text(text).into_owned()
    }

    /// Returns a result as an agent gets it, without values of secrets: `content`, and `structuredContent` if there is one.
    fn redact(&self, content: &[MessageBlock], structured: Option<Value>) -> Value {
        let mut result = json!({ "content": content });
        if let Some(structured) = structured {
            result["structuredContent"] = structured;
        }
        self.secrets.redactor().redact_value(&mut result);
        result
    }

    /// Starts a server if need be, and compares its tools with the approved ones.
    ///
    /// # Errors
    /// [`ApproveError`], but for [`ApproveError::Changed`].
    pub async fn compare(&self, server: &str) -> Result<(Arc<ServerListing>, ServerApproval), ApproveError> {
        let definition = self.definition(server).ok_or_else(|| ApproveError::Unknown(server.to_owned()))?;
        let listing = self.servers.list_tools(server).await?;
        let approval = ApprovedServers::open(&self.data_dir)?.compare(definition, &listing);
        Ok((listing, approval))
    }

    /// Approves a server with the tools that were shown: `listing` from [`McpTools::compare`].
    ///
    /// # Errors
    /// [`ApproveError`].
    pub async fn approve(&self, server: &str, listing: &ServerListing) -> Result<(), ApproveError> {
        let definition = self.definition(server).ok_or_else(|| ApproveError::Unknown(server.to_owned()))?;
        if *self.servers.list_tools(server).await? != *listing {
            return Err(ApproveError::Changed(server.to_owned()));
        }
        ApprovedServers::open(&self.data_dir)?.approve(definition, &listing.tools)?;
        self.reload();
        Ok(())
    }

    /// Returns the definition of an enabled server.
    pub fn definition(&self, server: &str) -> Option<&ServerDefinition> {
        self.servers.definitions().find(|definition| definition.name == server)
    }

    /// Returns the servers that no approval covers as they are defined now.
    ///
    /// # Errors
    /// [`ApprovalError`] if the approvals cannot be read.
    pub fn unapproved(&self) -> Result<Vec<&ServerDefinition>, ApprovalError> {
        let approved = ApprovedServers::open(&self.data_dir)?;
        Ok(self.servers.definitions().filter(|definition| !approved.is_approved(definition)).collect())
    }

    /// Returns true if a server is approved as it is defined.
    pub(crate) fn is_approved(&self, server: &str) -> Result<bool, ApprovalError> {
        let approved = ApprovedServers::open(&self.data_dir)?;
        Ok(self.definition(server).is_some_and(|definition| approved.is_approved(definition)))
    }

    /// Returns true if a server is defined as approvers were shown it.
    pub(crate) fn is_defined_as(&self, server: &str, shown: &Map<String, Value>) -> bool {
        self.definition(server).is_some_and(|definition| server_arguments(definition) == *shown)
    }

    /// Returns true if a server is approved as approvers were shown it.
    pub(crate) fn approves(&self, server: &str, shown: &Map<String, Value>) -> Result<bool, ApprovalError> {
        Ok(self.is_defined_as(server, shown) && self.is_approved(server)?)
    }

    /// Returns the servers whose approval was taken back, and whose tools may still have standing approvals.
    pub(crate) fn revoked_servers(&self) -> Result<BTreeSet<String>, ApprovalError> {
        Ok(ApprovedServers::open(&self.data_dir)?.revoked().clone())
    }

    /// Notes that tools of these servers have no standing approvals any more.
    pub(crate) fn forget_revoked(&self, servers: &BTreeSet<String>) -> Result<(), ApprovalError> {
        ApprovedServers::open(&self.data_dir)?.forget_revoked(servers)
    }

    /// Ends all servers.
    pub async fn close(&self) {
        self.servers.close().await;
    }
}

/// A tool of runs that gets secrets by name, and tells of refused calls.
struct WatchedTool {
    tool: Arc<McpTool>,
    server: String,
    refused: Arc<RefusedServers>,
    secrets: GatewaySecrets,
}

/// Servers of which a call was refused, and that nobody has compared since. They are no more than there are servers.
#[derive(Default)]
struct RefusedServers {
    servers: Mutex<BTreeSet<String>>,
    added: Notify,
}

impl RefusedServers {
    fn add(&self, server: String) {
        self.servers.lock().insert(server);
        self.added.notify_one();
    }
}

impl AgentTool for WatchedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn check_arguments(&self, arguments: &Value) -> Result<Map<String, Value>, CallFailure> {
        let checked = self.tool.check_arguments(arguments)?;
        // No gate opens for a call that could not be sent.
        self.secrets.fill_arguments(&checked).map_err(CallFailure::Invalid)?;
        Ok(checked)
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let arguments = self.secrets.fill_arguments(&arguments).map_err(CallFailure::NotBegun)?;
            let outcome = self.tool.run(arguments, cx).await;
            if matches!(outcome, Err(CallFailure::NotBegun(_))) {
                self.refused.add(self.server.clone());
            }
            outcome
        })
    }
}

impl FurtherTools for McpTools {
    fn tools(&self) -> Vec<FurtherTool> {
        let offered = self.offered.lock();
        let tools = offered.by_name.values().map(|(tool, _)| FurtherTool {
            name: tool.offered_name.clone(),
            description: tool.description.clone(),
            schema: tool.schema.as_object().cloned().unwrap_or_default(),
            service: format!("{SERVICE_PREFIX}{}", tool.server).into(),
        });
        tools.collect()
    }

    fn check_arguments(&self, tool: &str, arguments: &Map<String, Value>) -> Result<(), String> {
        let Some((_, tool)) = self.offered.lock().by_name.get(tool).cloned() else { return Ok(()) };
        let checked = tool.check_arguments(&Value::Object(arguments.clone()));
        checked.map(drop).map_err(|refused| refused.to_string())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl std::fmt::Debug for McpTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpTools").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Returns an approved tool as agents request it: without a signature of its own, as its arguments are matched by argument rules.
fn service_tool(approved: &ServerTool, tool: &Arc<McpTool>) -> ServiceTool {
    let tool = Arc::clone(tool);
    let required = approved.schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let properties = approved.schema.get("properties").and_then(Value::as_object);
    let args = properties.into_iter().flat_map(|properties| properties.keys()).map(|name| DeclaredArgument {
        name: name.clone(),
        required: is_required(name),
        validate: None,
        free_text: false,
    });
    ServiceTool {
        description: approved.description.clone(),
        service: format!("{SERVICE_PREFIX}{}", approved.server).into(),
        signature: None,
        args: args.collect(),
        texts: ArgumentTexts::Any,
        undeclared: UndeclaredArguments::Allow,
        fits: Arc::new(move |arguments| {
            let checked = tool.check_arguments(&Value::Object(arguments.clone()));
            checked.map(drop).map_err(|refused| refused.to_string())
        }),
        idempotent: false,
        reads: false,
    }
}

/// Returns the text of a result that is an error of the tool.
fn error_text(content: &[MessageBlock], secrets: &GatewaySecrets) -> String {
    let texts: Vec<&str> = content.iter().filter_map(MessageBlock::as_text).collect();
    let text = if texts.is_empty() { "the tool reports an error without a text".to_owned() } else { texts.join("\n") };
    secrets.redactor().redact_text(&text).into_owned()
}

/// Returns the definition of a configured server.
pub fn server_definition(server: &McpServerConfig) -> ServerDefinition {
    let transport = match &server.transport {
        McpTransportConfig::Stdio { command, args, env, cwd } => {
            ServerTransport::Stdio { command: command.clone(), args: args.clone(), env: env.clone(), cwd: cwd.clone() }
        }
        McpTransportConfig::Http { url, headers, auth } => ServerTransport::Http {
            url: url.clone(),
            headers: headers.iter().cloned().collect::<BTreeMap<_, _>>(),
            auth: auth.as_ref().map(|auth| ClientCredentials {
                token_url: auth.token_url.clone(),
                client_id: auth.client_id.clone(),
                client_secret: auth.client_secret.clone(),
                scope: auth.scope.clone(),
            }),
        },
    };
    ServerDefinition { call_timeout: server.timeout, ..ServerDefinition::new(server.name.clone(), transport) }
}

/// Returns what a person is shown of a server: all of its definition but values of secrets.
pub(crate) fn server_arguments(definition: &ServerDefinition) -> Map<String, Value> {
    let mut shown = Map::from_iter([("server".to_owned(), Value::from(definition.name.as_str()))]);
    if let Value::Object(description) = definition.description() {
        let is_said = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        shown.extend(description.into_iter().filter(|(_, value)| is_said(value)));
    }
    shown
}

/// Returns the folder in which the servers of a gateway have folders of their own.
pub fn server_homes(config: &Config) -> PathBuf {
    config.storage.folder.join(MCP_HOMES)
}

/// Returns the options of the servers of a gateway. They are confined like commands, and know which gateway started them.
pub fn server_options(config: &Config, program: &Path, sandbox: Sandbox, secrets: GatewaySecrets) -> McpOptions {
    let folder = &config.storage.folder;
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
    let started_by = (STARTED_BY.to_owned(), folder.to_string_lossy().into_owned());
    McpOptions {
        sandbox,
        secrets,
        variables: BTreeMap::from([started_by]),
        headers: BTreeMap::from([(OWN_HEADER.to_owned(), Uuid::now_v7().simple().to_string())]),
        ..McpOptions::new(ExecLauncher::new(program), server_homes(config))
    }
}
