//! MCP servers as people see them, and the actions of operators on them.
//!
//! It must not approve a server: it requests that, and an approver answers the gate.

use std::{borrow::Cow, sync::Arc};

use countersign_config::{Config, McpServerConfig, McpTransportConfig, redacted_address, redacted_arguments};
use countersign_core::id::PrincipalId;
use countersign_mcp_client::{
    ApprovalKey, ApprovedServers, ServerActivity, ServerDefinition, ServerListing, ServerTool, ToolApproval,
    is_unchanged, server_arguments,
};
use countersign_runtime::OwnerHandle;
use countersign_view::mcp_server_status::{
    McpActivity, McpApproval, McpServerRow, McpServerStatus, McpToolRow, McpToolState, McpTrial,
};
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::{mcp_approvals, mcp_changes::apply_changes, mcp_tools::McpTools};

/// The servers of a gateway with its record.
pub(crate) struct GatewayMcpServers {
    config: Arc<Config>,
    tools: Arc<McpTools>,
    handle: OwnerHandle,
}

impl GatewayMcpServers {
    pub(crate) const fn new(config: Arc<Config>, tools: Arc<McpTools>, handle: OwnerHandle) -> Self {
        Self { config, tools, handle }
    }

    fn read_rows(&self) -> Result<Vec<McpServerRow>, String> {
        let approved = self.tools.approvals().open_approvals().map_err(|error| error.to_string())?;
        let mut rows: Vec<McpServerRow> =
            self.config.mcp_servers.iter().map(|server| self.server_row(server, &approved)).collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    fn server_row(&self, server: &McpServerConfig, approved: &ApprovedServers) -> McpServerRow {
        let definition = ServerDefinition::from(server);
        let approval = if approved.is_approved(&definition) {
            let note = approved.approval_note(&definition);
            McpApproval::Approved { at: note.map(|note| note.at), by: note.and_then(|note| note.by.clone()) }
        } else if approved.server_names().any(|name| name == server.name) {
            McpApproval::OtherDefinition
        } else {
            McpApproval::Missing
        };
        let (activity, listing) = match self.tools.servers().activity(&server.name) {
            None => (McpActivity::Disabled, None),
            Some(activity) => split_activity(activity),
        };
        let left_out = listing.iter().flat_map(|listing| &listing.problems);
        McpServerRow {
            name: server.name.clone(),
            transport: match &server.transport {
                McpTransportConfig::Stdio { .. } => "stdio",
                McpTransportConfig::Http { .. } => "http",
            },
            address: transport_line(server),
            call_timeout: server.timeout,
            approval,
            activity,
            left_out: left_out.map(|left| (left.tool.clone(), left.problem.clone())).collect(),
            tools: tool_rows(&definition, approved, listing.as_deref()),
            request: server_arguments(&definition, approved.revocations(&server.name)),
        }
    }

    /// Notes the denials of servers that are not approved.
    async fn mark_denied(&self, rows: &mut [McpServerRow]) {
        let is_open = |row: &&McpServerRow| {
            row.activity != McpActivity::Disabled && !matches!(row.approval, McpApproval::Approved { .. })
        };
        let keys = rows.iter().filter(is_open).map(|row| ApprovalKey::new(&row.name, &row.request)).collect();
        let denied = mcp_approvals::denied_servers(&self.handle, keys).await;
        for row in rows.iter_mut().filter(|row| denied.contains(&row.name)) {
            row.approval = McpApproval::Denied;
        }
    }

    fn find_definition(&self, server: &str) -> Result<&ServerDefinition, String> {
        self.tools.definition(server).ok_or_else(|| format!("no MCP server {server} is configured and switched on"))
    }

    /// Withdraws the approval. The change is in the file before its process ends, and in the record after that.
    async fn revoke(&self, server: &str, by: &PrincipalId) -> Result<(), String> {
        let (tools, name, person) = (Arc::clone(&self.tools), server.to_owned(), by.clone());
        let revoked = tokio::task::spawn_blocking(move || tools.revoke(&name, &person)).await;
        if !revoked.map_err(|error| error.to_string())?.map_err(|error| error.to_string())? {
            return Err(format!("MCP server {server} is not approved"));
        }
        self.tools.servers().disconnect(server).await;
        let recorded = mcp_approvals::record_changes(&self.handle, &self.tools).await;
        // Also if the record of the withdrawal is still to come.
        let applied = apply_changes(&self.handle, &self.tools, Some(server), by).await;
        recorded.map_err(|error| format!("revoked, and not recorded yet: {error}"))?;
        applied.map_err(|error| format!("revoked; standing approvals of its tools are not revoked yet: {error}"))
    }

    async fn try_out(&self, server: &str, trial: McpTrial) -> Result<(), String> {
        let definition = self.find_definition(server)?;
        let approved = self.tools.approvals().read_approvals().await.map_err(|error| error.to_string())?;
        // One that is being approved is not stopped.
        if trial == McpTrial::Restart
            && approved.is_approved(definition)
            && !self.tools.servers().disconnect(server).await
        {
            return Err(format!("MCP server {server} is in use and was not stopped"));
        }
        let compared = self.tools.approvals().compare_approved(server).await;
        let (_, approval) = compared.map_err(|error| error.to_string())?;
        if !is_unchanged(&approval) {
            self.tools.approvals().report_changed(server);
        }
        Ok(())
    }
}

impl McpServerStatus for GatewayMcpServers {
    fn list_servers(self: Arc<Self>) -> BoxFuture<'static, Result<Vec<McpServerRow>, String>> {
        Box::pin(async move {
            let servers = Arc::clone(&self);
            let read = tokio::task::spawn_blocking(move || servers.read_rows()).await;
            let mut rows = read.unwrap_or_else(|error| Err(error.to_string()))?;
            self.mark_denied(&mut rows).await;
            Ok(rows)
        })
    }

    fn revoke_server(self: Arc<Self>, server: String, by: PrincipalId) -> BoxFuture<'static, Result<(), String>> {
        finish(async move { self.revoke(&server, &by).await })
    }

    fn request_approval(self: Arc<Self>, server: String) -> BoxFuture<'static, Result<(), String>> {
        finish(async move {
            let definition = self.find_definition(&server)?;
            let approved = self.tools.approvals().read_approvals().await.map_err(|error| error.to_string())?;
            if approved.is_approved(definition) {
                return Err(format!("MCP server {server} is approved already"));
            }
            let (revocations, timeout) = (approved.revocations(&server), self.config.approval_timeout);
            let requested = mcp_approvals::request_server(&self.handle, &self.tools, definition, revocations, timeout);
            requested.await.map_err(|error| error.to_string())
        })
    }

    fn try_server(self: Arc<Self>, server: String, trial: McpTrial) -> BoxFuture<'static, Result<(), String>> {
        finish(async move { self.try_out(&server, trial).await })
    }
}

/// Returns the work in a task of its own: the caller may go away, and begun work is done.
fn finish(work: impl Future<Output = Result<(), String>> + Send + 'static) -> BoxFuture<'static, Result<(), String>> {
    Box::pin(async move { tokio::spawn(work).await.unwrap_or_else(|error| Err(error.to_string())) })
}

fn split_activity(activity: ServerActivity) -> (McpActivity, Option<Arc<ServerListing>>) {
    match activity {
        ServerActivity::Idle => (McpActivity::Idle, None),
        ServerActivity::Busy => (McpActivity::Starting, None),
        ServerActivity::Connected { protocol, program, since, listing } => {
            (McpActivity::Running { protocol, program, since }, listing)
        }
        ServerActivity::Failed { reason, retry_in } => (McpActivity::Failed { reason, retry_in }, None),
    }
}

/// Returns the tools that a server listed, or else those that were approved.
fn tool_rows(
    definition: &ServerDefinition,
    approved: &ApprovedServers,
    listing: Option<&ServerListing>,
) -> Vec<McpToolRow> {
    let Some(listing) = listing else {
        let tools = approved.approved_tools(definition);
        return tools.iter().map(|tool| tool_row(tool, McpToolState::Approved)).collect();
    };
    let compared = approved.compare(definition, listing).tools;
    let rows = compared.into_iter().map(|(tool, state)| {
        let state = match state {
            ToolApproval::Approved => McpToolState::Approved,
            ToolApproval::New => McpToolState::New,
            ToolApproval::Changed { differences } => McpToolState::Changed { differences },
            ToolApproval::Gone => McpToolState::Gone,
        };
        tool_row(&tool, state)
    });
    rows.collect()
}

fn tool_row(tool: &ServerTool, state: McpToolState) -> McpToolRow {
    let hints = match &tool.annotations {
        Value::Object(hints) => hints.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => serde_json::Map::new(),
    };
    McpToolRow { name: tool.offered_name.clone(), description: tool.description.clone(), hints, state }
}

/// Returns the command or the address of a server in one line, without any value of a variable or a header, and with three stars for
/// possible credentials.
pub fn transport_line(server: &McpServerConfig) -> String {
    match &server.transport {
        McpTransportConfig::Stdio { command, args, env, cwd } => {
            let variables = env.keys().map(|name| format!("{name}=… "));
            let args = redacted_arguments(args, &server.hidden_args);
            let words = [command].into_iter().chain(&args).map(|word| quote_word(word));
            let line = variables.collect::<String>() + &words.collect::<Vec<_>>().join(" ");
            match cwd {
                Some(cwd) => format!("{line}  (in {})", cwd.display()),
                None => line,
            }
        }
        McpTransportConfig::Http { url, headers, auth } => {
            let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
            let headers = if names.is_empty() { String::new() } else { format!("  (with {})", names.join(", ")) };
            let auth = auth.as_ref().map(|auth| format!("  (token from {})", redacted_address(&auth.token_url)));
            format!("{}{headers}{}", redacted_address(url), auth.unwrap_or_default())
        }
    }
}

/// Quotes a word of a command line where a shell needs it.
fn quote_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if word.chars().all(is_plain) && !word.is_empty() {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''")).into()
    }
}
