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
    approvals::{ApprovalError, ApprovalOrigin, ApprovalTimes, ApprovedServers, ServerApproval},
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
    /// Times since which they are approved as they are.
    pub times: ApprovalTimes,
}

/// Tools of a server, and what of them is approved.
pub type ComparedServer = (Arc<ServerListing>, ServerApproval);

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
    /// It is not approved as it is defined, so that it must not start.
    #[error("MCP server {0} is not approved: it does not start before that")]
    NotApproved(String),
    /// It offers other tools than those that were shown.
    #[error("MCP server {0} offers other tools now than those that were shown")]
    Changed(String),
    /// Its approval is another one than that when it was requested.
    #[error("the approval of MCP server {0} was changed meanwhile")]
    Superseded(String),
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
        Ok(ApprovedServers::open(&self.data_dir)?.with_secrets(self.servers.secrets().clone()))
    }

    /// Reads what is approved now.
    ///
    /// # Errors
    /// [`ApprovalError`] if the approvals cannot be read: nothing is to be offered then.
    pub fn approved_now(&self) -> Result<ApprovedNow, ApprovalError> {
        if self.servers.definitions().next().is_none() {
            return Ok(ApprovedNow::default());
        }
        // Before the approvals are read: what is withdrawn after that is not used.
        let servers = self.servers.until_withdrawn();
        let approved = self.open_approvals()?;
        let mut now = ApprovedNow::default();
        for definition in self.servers.definitions().filter(|definition| approved.is_approved(definition)) {
            now.servers.insert(definition.name.clone(), servers.clone());
            approved.add_times(definition, &mut now.times);
            let tools = approved.approved_tools(definition).into_iter();
            let tools = tools.map(|tool| McpTool::watched_by(servers.clone(), tool, Arc::clone(&self.refused)));
            now.tools.extend(tools.map(Arc::new));
        }
        Ok(now)
    }

    /// Starts a server if need be, and compares its tools with the approved ones. To be called after a person agreed to the start.
    ///
    /// # Errors
    /// [`ApproveError::Unknown`], [`ApproveError::Server`], [`ApproveError::File`].
    pub async fn compare(&self, server: &str) -> Result<ComparedServer, ApproveError> {
        let definition = self.find_definition(server)?;
        self.compare_over(&self.servers.until_withdrawn(), definition).await
    }

    /// Does the same for a server that is approved as it is defined. Another one is not started.
    ///
    /// # Errors
    /// [`ApproveError::NotApproved`], and those of [`ServerTools::compare`].
    pub async fn compare_approved(&self, server: &str) -> Result<ComparedServer, ApproveError> {
        let definition = self.find_definition(server)?;
        let servers = self.servers.until_withdrawn();
        if !self.read_approvals().await?.is_approved(definition) {
            return Err(ApproveError::NotApproved(server.to_owned()));
        }
        self.compare_over(&servers, definition).await
    }

    async fn compare_over(
        &self,
        servers: &McpServers,
        definition: &ServerDefinition,
    ) -> Result<ComparedServer, ApproveError> {
        let listing = servers.list_tools(&definition.name).await?;
        let approval = self.read_approvals().await?.compare(definition, &listing);
        Ok((listing, approval))
    }

    /// Approves a server with the tools that were shown: `listing` and `approval` from [`ServerTools::compare`].
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
        let definition = self.find_definition(server)?;
        let superseded = || ApproveError::Superseded(server.to_owned());
        let servers = self.servers.until_withdrawn();
        // A server that was revoked meanwhile must not start again.
        if self.read_approvals().await?.mark(server) != approval.mark {
            return Err(superseded());
        }
        if *servers.list_tools(server).await? != *listing {
            return Err(ApproveError::Changed(server.to_owned()));
        }
        let (mark, definition, tools) = (approval.mark, definition.clone(), listing.tools.clone());
        let (origin, at) = (origin.clone(), self.clock.now());
        let is_approved =
            self.change_approvals(move |file| file.approve(mark, &definition, &tools, &origin, at)).await?;
        if is_approved { Ok(()) } else { Err(superseded()) }
    }

    fn find_definition(&self, server: &str) -> Result<&ServerDefinition, ApproveError> {
        self.definition(server).ok_or_else(|| ApproveError::Unknown(server.to_owned()))
    }

    /// Reads the approvals without blocking the caller's thread.
    ///
    /// # Errors
    /// [`ApprovalError`] if they cannot be read.
    pub async fn read_approvals(&self) -> Result<ApprovedServers, ApprovalError> {
        self.change_approvals(|file| Ok(file.clone())).await
    }

    /// Does something with the approvals as they are in the file, without blocking the caller's thread. It is done to its end also
    /// if the future is dropped.
    ///
    /// # Errors
    /// [`ApprovalError`] if they cannot be read, and that of `work`.
    pub async fn change_approvals<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut ApprovedServers) -> Result<T, ApprovalError> + Send + 'static,
    ) -> Result<T, ApprovalError> {
        let (folder, secrets) = (self.data_dir.clone(), self.servers.secrets().clone());
        let work = move || work(&mut ApprovedServers::open(&folder)?.with_secrets(secrets));
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(ApprovalError::interrupted(&self.data_dir, error)))
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
