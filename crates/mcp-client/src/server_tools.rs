//! The approved tools of a set of servers, and the approval of those servers.
//!
//! It must not decide about a call or an approval. It starts no server that is not approved, other than to approve it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use countersign_core::id::PrincipalId;
use countersign_runtime::Clock;

use crate::{
    approvals::{ApprovalError, ApprovalOrigin, ApprovedServers, ServerApproval},
    definition::ServerDefinition,
    error::McpError,
    listing::ServerListing,
    mcp_tool::McpTool,
    refused_servers::RefusedServers,
    servers::McpServers,
};

/// Servers whose approvals are in one folder.
#[derive(Debug)]
pub struct ServerTools {
    servers: McpServers,
    data_dir: PathBuf,
    clock: Clock,
    refused: Arc<RefusedServers>,
}

/// What is approved at one moment.
#[derive(Default)]
pub struct ApprovedNow {
    /// The approved tools, in the order of their servers.
    pub tools: Vec<Arc<McpTool>>,
    /// The approved servers by name, also those without a tool.
    pub servers: BTreeMap<String, McpServers>,
}

/// Reason that a server was not approved. The approvals are as they were.
#[derive(Debug, thiserror::Error)]
pub enum ApproveError {
    /// The configuration has no such server, or another one under this name.
    #[error("the configuration has no MCP server {0} with this definition any more")]
    Unknown(String),
    /// The server cannot be started, or lists no tools.
    #[error(transparent)]
    Server(#[from] McpError),
    /// The file of approvals cannot be read or written.
    #[error(transparent)]
    File(#[from] ApprovalError),
    /// It offers other tools than those that were shown.
    #[error("MCP server {0} offers other tools now than those that were shown")]
    Changed(String),
}

impl ServerTools {
    /// Takes servers whose approvals are in `data_dir`. Starts none.
    pub fn new(servers: McpServers, data_dir: PathBuf, clock: Clock) -> Self {
        Self { servers, data_dir, clock, refused: Arc::default() }
    }

    /// Returns the servers.
    pub const fn servers(&self) -> &McpServers {
        &self.servers
    }

    /// Returns the definition of a server.
    pub fn definition(&self, server: &str) -> Option<&ServerDefinition> {
        self.servers.definitions().find(|definition| definition.name == server)
    }

    /// Reads the approvals.
    ///
    /// # Errors
    /// [`ApprovalError`] if they cannot be read.
    pub fn open_approvals(&self) -> Result<ApprovedServers, ApprovalError> {
        ApprovedServers::open(&self.data_dir)
    }

    /// Reads what is approved now.
    ///
    /// # Errors
    /// [`ApprovalError`] if the approvals cannot be read: nothing is to be offered then.
    pub fn approved_now(&self) -> Result<ApprovedNow, ApprovalError> {
        if self.servers.definitions().next().is_none() {
            return Ok(ApprovedNow::default());
        }
        let approved = self.open_approvals()?;
        let mut now = ApprovedNow::default();
        for definition in self.servers.definitions().filter(|definition| approved.is_approved(definition)) {
            now.servers.insert(definition.name.clone(), self.servers.clone());
            let tools = approved.approved_tools(definition).into_iter();
            let tools = tools.map(|tool| McpTool::watched_by(self.servers.clone(), tool, Arc::clone(&self.refused)));
            now.tools.extend(tools.map(Arc::new));
        }
        Ok(now)
    }

    /// Returns the servers that no approval covers as they are defined now.
    ///
    /// # Errors
    /// [`ApprovalError`] if the approvals cannot be read.
    pub fn unapproved(&self) -> Result<Vec<&ServerDefinition>, ApprovalError> {
        let approved = self.open_approvals()?;
        Ok(self.servers.definitions().filter(|definition| !approved.is_approved(definition)).collect())
    }

    /// Starts a server if need be, and compares its tools with the approved ones.
    ///
    /// # Errors
    /// [`ApproveError`], but for [`ApproveError::Changed`].
    pub async fn compare(&self, server: &str) -> Result<(Arc<ServerListing>, ServerApproval), ApproveError> {
        let definition = self.definition(server).ok_or_else(|| ApproveError::Unknown(server.to_owned()))?;
        let listing = self.servers.list_tools(server).await?;
        let approval = self.open_approvals()?.compare(definition, &listing);
        Ok((listing, approval))
    }

    /// Approves a server with the tools that were shown: `listing` from [`ServerTools::compare`].
    ///
    /// # Errors
    /// [`ApproveError`].
    pub async fn approve(
        &self,
        server: &str,
        listing: &ServerListing,
        origin: &ApprovalOrigin,
    ) -> Result<(), ApproveError> {
        let definition = self.definition(server).ok_or_else(|| ApproveError::Unknown(server.to_owned()))?;
        if *self.servers.list_tools(server).await? != *listing {
            return Err(ApproveError::Changed(server.to_owned()));
        }
        Ok(self.open_approvals()?.approve(definition, &listing.tools, origin, self.clock.now())?)
    }

    /// Withdraws the approval of a server. False if it has none.
    ///
    /// # Errors
    /// [`ApprovalError`], with the approvals as they were.
    pub fn revoke(&self, server: &str, by: &PrincipalId) -> Result<bool, ApprovalError> {
        self.open_approvals()?.revoke(server, by, self.clock.now())
    }

    /// Reports that the tools of a server are not as they were approved, as a refused call does.
    pub fn report_changed(&self, server: &str) {
        self.refused.add(server);
    }

    /// Waits until calls of servers were refused, and returns those servers.
    ///
    /// *Cancellation*: nothing is lost.
    pub async fn wait_refused(&self) -> BTreeSet<String> {
        self.refused.wait().await
    }
}
