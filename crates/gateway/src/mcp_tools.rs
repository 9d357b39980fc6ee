//! Tools of MCP servers that runs and agents may call, in the form in which a person approved them.
//!
//! It must not decide about a call: policy decides before one comes here. It starts no server that is not approved.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use axum::http::{HeaderName, HeaderValue};
use countersign_adapter_mcp::{FurtherTool, FurtherTools};
use countersign_config::{Config, UndeclaredArguments};
use countersign_core::{
    call::CallDetails, id::PrincipalId, message::MessageBlock, policy::arguments::DeclaredArgument, tool::ToolSpec,
};
use countersign_mcp_client::{
    ApprovalError, ApprovalOrigin, ApprovedNow, ApprovedServers, BadDefinition, CallOutcome, ComparedServer,
    McpOptions, McpServers, OfferedTool, ProgressSink, ServerApproval, ServerDefinition, ServerListing, ServerTools,
    ToolCaller, reading_tools, server_arguments,
};
pub use countersign_mcp_client::{ApproveError, STARTED_BY};
use countersign_policy_admin::{
    service_tools::{ArgumentTexts, ServiceTool, ServiceTools},
    tool_catalog::ToolCatalog,
    tool_inventory::MCP_HOMES,
};
use countersign_runtime::{
    Clock, OwnerHandle, ServiceOutcome,
    tools::{
        AgentTool, CallFailure, CallOutput, GatewaySecrets, Sandbox, ToolContext, ToolRegistry, exec::ExecLauncher,
    },
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Servers of a gateway, and the registry of all tools that its runs have.
pub struct McpTools {
    approvals: ServerTools,
    /// The tools that runs have without any server.
    own: Arc<ToolRegistry>,
    offered: Mutex<OfferedTools>,
    /// Tools for agents that make requests. Those of the servers are added to them.
    catalog: Arc<ToolCatalog>,
    secrets: GatewaySecrets,
    /// Value of the header that servers at an address get.
    own_id: Option<String>,
    /// The record, once it is open.
    owner: OnceLock<OwnerHandle>,
    /// Number of changes so far.
    changed: watch::Sender<u64>,
    /// Held while changes of approvals are recorded: each is recorded once.
    pub(crate) recording: tokio::sync::Mutex<()>,
    /// Held from the read of the approvals until their tools are offered: of two reloads the later one must read later.
    reloading: Mutex<()>,
}

/// The tools that are approved at one moment.
struct OfferedTools {
    registry: Arc<ToolRegistry>,
    by_name: BTreeMap<String, Arc<dyn OfferedTool>>,
    /// The approved servers.
    servers: BTreeSet<String>,
}

/// Beginning of the services under which tools of servers are called.
const SERVICE_PREFIX: &str = "mcp:";

/// Header of requests to MCP servers, with an id of the gateway. A gateway that gets its own would call itself.
const OWN_HEADER: &str = "countersign-gateway";

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
        clock: Clock,
    ) -> Result<Self, BadDefinition> {
        let (secrets, own_id) = (options.secrets.clone(), options.headers.get(OWN_HEADER).cloned());
        let enabled = config.mcp_servers.iter().filter(|server| server.enabled);
        let servers = McpServers::new(enabled.map(ServerDefinition::from).collect(), options)?;
        let tools = Self {
            approvals: ServerTools::new(servers, config.storage.folder.clone(), clock),
            offered: Mutex::new(OfferedTools {
                registry: Arc::clone(&own),
                by_name: BTreeMap::new(),
                servers: BTreeSet::new(),
            }),
            own,
            catalog,
            secrets,
            own_id,
            owner: OnceLock::new(),
            changed: watch::Sender::default(),
            recording: tokio::sync::Mutex::default(),
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
        self.approvals.servers()
    }

    /// Returns the servers with their approvals.
    pub const fn approvals(&self) -> &ServerTools {
        &self.approvals
    }

    /// Returns all tools that runs have: their own, then the approved ones of servers in the order of their names, then those that
    /// read resources and prompts.
    pub fn registry(&self) -> Arc<ToolRegistry> {
        Arc::clone(&self.offered.lock().registry)
    }

    /// Returns the tools that servers add.
    pub fn offered_tools(&self) -> Vec<Arc<dyn AgentTool>> {
        self.offered.lock().by_name.values().map(|tool| Arc::clone(tool) as Arc<dyn AgentTool>).collect()
    }

    /// Returns the names of the tools that servers add.
    pub fn offered_names(&self) -> Vec<String> {
        self.offered.lock().by_name.keys().cloned().collect()
    }

    /// Returns the servers that are enabled and not approved as they are defined.
    pub(crate) fn unapproved_servers(&self) -> Vec<String> {
        let offered = self.offered.lock();
        let names = self.servers().definitions().map(|definition| &definition.name);
        names.filter(|name| !offered.servers.contains(*name)).cloned().collect()
    }

    /// Returns the reason that a tool is unknown: its server is not approved, or was not when the tool was requested. `None` if it is a
    /// tool of no server.
    pub(crate) fn missing_approval(&self, tool: &str) -> Option<String> {
        // What was judged as an unknown tool is not called as another one.
        if self.offered.lock().by_name.contains_key(tool) {
            return Some("its MCP server was approved after the request: request it again".to_owned());
        }
        let is_of =
            |server: &String| tool.strip_prefix(&format!("mcp__{server}__")).is_some_and(|rest| !rest.is_empty());
        let server = self.unapproved_servers().into_iter().find(is_of)?;
        Some(format!("MCP server {server} is not approved: run `countersign mcp-servers approve {server}`"))
    }

    /// Reads the approvals again. If they cannot be read, no tool of a server is offered. Calls that wait for a server which is not
    /// approved any more are refused. Blocks the thread while the file is read.
    pub fn reload(&self) {
        if self.servers().definitions().next().is_none() {
            return;
        }
        let _reloading = self.reloading.lock();
        let approved = self.approvals.approved_now().unwrap_or_else(|error| {
            tracing::error!("{error}; no tool of an MCP server is offered");
            ApprovedNow::default()
        });
        let mut by_name = BTreeMap::new();
        let mut for_agents = ServiceTools::new();
        let mut tools: Vec<Arc<dyn AgentTool>> = self.own.tools().cloned().collect();
        let of_servers = approved.tools.into_iter().map(|tool| tool as Arc<dyn OfferedTool>);
        for tool in of_servers.chain(reading_tools(&approved.servers)) {
            let name = tool.spec().name.clone();
            for_agents.insert(name.clone(), service_tool(&tool));
            tools.push(Arc::new(FilledTool { tool: Arc::clone(&tool), secrets: self.secrets.clone() }));
            by_name.insert(name, tool);
        }
        let registry = Arc::new(ToolRegistry::from_tools(tools));
        self.catalog.replace_further(for_agents);
        let servers: BTreeSet<String> = approved.servers.into_keys().collect();
        let earlier = {
            let mut offered = self.offered.lock();
            std::mem::replace(&mut *offered, OfferedTools { registry, by_name, servers: servers.clone() })
        };
        earlier.servers.difference(&servers).for_each(|server| self.servers().withdraw(server));
        self.changed.send_modify(|number| *number += 1);
    }

    /// Connects them with the record, in which standing approvals of changed tools are revoked. The first one counts.
    pub(crate) fn set_owner(&self, handle: &OwnerHandle) {
        self.owner.get_or_init(|| handle.clone());
    }

    /// Returns the record, if it is open.
    pub(crate) fn owner(&self) -> Option<&OwnerHandle> {
        self.owner.get()
    }

    /// Does the same without blocking the caller's thread.
    pub(crate) async fn reload_in_background(self: &Arc<Self>) {
        let tools = Arc::clone(self);
        if let Err(error) = tokio::task::spawn_blocking(move || tools.reload()).await {
            tracing::error!(%error, "the approvals of MCP servers were not read again");
        }
    }

    /// Calls an approved tool for an agent's request. `None` if its service is no MCP server.
    pub async fn call_for_agent(&self, content: &CallDetails, cancel: CancellationToken) -> Option<ServiceOutcome> {
        let request = content.request.as_ref()?;
        let (service, caller) = (request.service.as_deref()?, ToolCaller::agent(&request.principal));
        service.strip_prefix(SERVICE_PREFIX)?;
        let tool = self.offered.lock().by_name.get(&*content.tool).cloned();
        if tool.is_none() && self.catalog.services().contains_key(&*content.tool) {
            return None;
        }
        let Some(tool) = tool else {
            return Some(ServiceOutcome::NotBegun(format!(
                "{} was not called: it is not approved any more",
                content.tool
            )));
        };
        let arguments = match self.secrets.fill_arguments(&content.arguments) {
            Ok(arguments) => arguments,
            Err(problem) => return Some(ServiceOutcome::NotBegun(problem)),
        };
        Some(match tool.call(&caller, arguments, cancel, ProgressSink::default()).await {
            CallOutcome::Done { content, is_error, structured } => {
                if is_error {
                    ServiceOutcome::Failed(error_text(&content, &self.secrets))
                } else {
                    ServiceOutcome::Done(self.redact(&content, structured).to_string())
                }
            }
            CallOutcome::Failed { text } => ServiceOutcome::Failed(self.redact_text(&text)),
            CallOutcome::NotBegun { text } => ServiceOutcome::NotBegun(self.redact_text(&text)),
            CallOutcome::InDoubt { text } => ServiceOutcome::InDoubt(self.redact_text(&text)),
        })
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

    /// Starts a server if need be, and compares its tools with the approved ones. To be called after a person agreed to the start.
    ///
    /// # Errors
    /// Those of [`ServerTools::compare`].
    pub async fn compare(&self, server: &str) -> Result<ComparedServer, ApproveError> {
        self.approvals.compare(server).await
    }

    /// Approves a server with the tools that were shown: `listing` and `approval` from [`McpTools::compare`].
    ///
    /// # Errors
    /// [`ApproveError`].
    pub async fn approve(
        &self,
        server: &str,
        listing: &ServerListing,
        approval: &ServerApproval,
        origin: &ApprovalOrigin,
    ) -> Result<(), ApproveError> {
        self.approvals.approve(server, listing, approval, origin).await?;
        self.reload();
        Ok(())
    }

    /// Withdraws the approval of a server: its tools are offered no longer, and calls that wait for it are refused. False if it has
    /// none.
    ///
    /// # Errors
    /// [`ApprovalError`], with the approvals as they were.
    pub fn revoke(&self, server: &str, by: &PrincipalId) -> Result<bool, ApprovalError> {
        let was_approved = self.approvals.revoke(server, by)?;
        self.servers().withdraw(server);
        self.reload();
        Ok(was_approved)
    }

    /// Reads the approvals after another process changed that of a server, and ends the server: it may run as it was before it was
    /// approved, or not be approved any more. Calls that wait for it are refused.
    pub(crate) async fn reload_server(self: &Arc<Self>, server: &str) {
        self.servers().withdraw(server);
        self.reload_in_background().await;
        self.servers().disconnect(server).await;
    }

    /// Returns the definition of an enabled server.
    pub fn definition(&self, server: &str) -> Option<&ServerDefinition> {
        self.approvals.definition(server)
    }

    /// Returns true if a server is approved as it is defined.
    pub(crate) fn is_approved(&self, approved: &ApprovedServers, server: &str) -> bool {
        self.definition(server).is_some_and(|definition| approved.is_approved(definition))
    }

    /// Returns true if a request for the approval of a server would show these arguments now.
    pub(crate) fn is_requested_as(&self, approved: &ApprovedServers, server: &str, shown: &Map<String, Value>) -> bool {
        let definition = self.definition(server);
        definition.is_some_and(|definition| server_arguments(definition, approved.revocations(server)) == *shown)
    }

    /// Ends all servers.
    pub async fn close(&self) {
        self.servers().close().await;
    }
}

/// A tool of runs that gets secrets by name.
struct FilledTool {
    tool: Arc<dyn OfferedTool>,
    secrets: GatewaySecrets,
}

impl AgentTool for FilledTool {
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
            self.tool.run(arguments, cx).await
        })
    }
}

impl FurtherTools for McpTools {
    fn tools(&self) -> Vec<FurtherTool> {
        let offered = self.offered.lock();
        let tools = offered.by_name.values().map(|tool| FurtherTool {
            name: tool.spec().name.clone(),
            description: tool.spec().description.clone(),
            schema: tool.spec().schema.as_object().cloned().unwrap_or_default(),
            service: tool.service().into(),
        });
        tools.collect()
    }

    fn check_arguments(&self, tool: &str, arguments: &Map<String, Value>) -> Result<(), String> {
        let Some(tool) = self.offered.lock().by_name.get(tool).cloned() else { return Ok(()) };
        let checked = tool.check_arguments(&Value::Object(arguments.clone()));
        checked.map(drop).map_err(|refused| refused.to_string())
    }

    fn missing_reason(&self, tool: &str) -> Option<String> {
        self.missing_approval(tool)
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl std::fmt::Debug for McpTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpTools").field("servers", self.servers()).finish_non_exhaustive()
    }
}

/// Returns an approved tool as agents request it: without a signature of its own, as its arguments are matched by argument rules.
fn service_tool(tool: &Arc<dyn OfferedTool>) -> ServiceTool {
    let tool = Arc::clone(tool);
    let schema = &tool.spec().schema;
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    let args = properties.into_iter().flat_map(|properties| properties.keys()).map(|name| DeclaredArgument {
        name: name.clone(),
        required: is_required(name),
        validate: None,
        free_text: false,
    });
    ServiceTool {
        description: tool.spec().description.clone(),
        service: tool.service().into(),
        signature: None,
        args: args.collect(),
        texts: ArgumentTexts::Any,
        undeclared: UndeclaredArguments::Allow,
        idempotent: false,
        reads: false,
        fits: Arc::new(move |arguments| {
            let checked = tool.check_arguments(&Value::Object(arguments.clone()));
            checked.map(drop).map_err(|refused| refused.to_string())
        }),
    }
}

/// Returns the text of a result that is an error of the tool.
fn error_text(content: &[MessageBlock], secrets: &GatewaySecrets) -> String {
    let texts: Vec<&str> = content.iter().filter_map(MessageBlock::as_text).collect();
    let text = if texts.is_empty() { "the tool reports an error without a text".to_owned() } else { texts.join("\n") };
    secrets.redactor().redact_text(&text).into_owned()
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
