//! One server: connected when it is needed, again after a pause when it failed, with the last list of its tools.
//!
//! It must not know other servers.

use std::{sync::Arc, time::Duration};

use rmcp::model::{ClientRequest, ServerResult};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    backoff::StartBackoff,
    connect::open_connection,
    connection::{Connection, ProtocolGeneration, RequestFailure, RequestWait},
    definition::ServerDefinition,
    error::McpError,
    listing::{ServerListing, ServerTool, read_listing},
    options::{McpLimits, McpOptions},
    questions::QuestionAsker,
    server_activity::ServerActivity,
    server_permission::{ApprovalEpoch, ServerPermission, UseEnd},
};

/// Longest pause that a caller waits for. A longer one is an error.
const SHORT_PAUSE: Duration = Duration::from_secs(2);

/// Most attempts to stop a server that is in use. Each ends the uses that are under way.
const STOP_ATTEMPTS: u32 = 3;

/// A server that can be connected.
pub(crate) struct ServerHandle {
    definition: ServerDefinition,
    options: Arc<McpOptions>,
    /// Held while a connection is opened or the tools are listed: others wait for the same.
    state: Mutex<ServerState>,
    permission: ServerPermission,
}

/// Limits of the use of a server. The default has none.
#[derive(Clone, Copy, Default)]
pub(crate) struct ServerUse<'a> {
    /// Tool that the server must offer as it was approved.
    pub(crate) approved: Option<&'a ServerTool>,
    /// Permission that must not have ended.
    pub(crate) epoch: Option<ApprovalEpoch>,
}

struct ServerState {
    connection: Option<Arc<Connection>>,
    /// Tools as listed over this connection.
    listing: Option<Arc<ServerListing>>,
    backoff: StartBackoff,
    generation: ProtocolGeneration,
}

impl ServerHandle {
    pub(crate) fn new(definition: ServerDefinition, options: Arc<McpOptions>) -> Self {
        let state = ServerState {
            connection: None,
            listing: None,
            backoff: StartBackoff::default(),
            generation: ProtocolGeneration::Unknown,
        };
        Self { definition, options, state: Mutex::new(state), permission: ServerPermission::new() }
    }

    pub(crate) const fn permission(&self) -> &ServerPermission {
        &self.permission
    }

    pub(crate) const fn definition(&self) -> &ServerDefinition {
        &self.definition
    }

    pub(crate) fn limits(&self) -> &McpLimits {
        &self.options.limits
    }

    /// Returns the way to people, if they can be asked.
    pub(crate) fn asker(&self) -> Option<&dyn QuestionAsker> {
        self.options.asker.as_deref().filter(|asker| asker.is_ready())
    }

    /// Returns an open connection. Opens one if there is none.
    ///
    /// *Cancellation*: dropping the future ends a start.
    ///
    /// # Errors
    /// [`McpError::Start`], [`McpError::Resting`], [`McpError::Withdrawn`], [`McpError::Stopped`].
    pub(crate) async fn connection(&self, epoch: Option<ApprovalEpoch>) -> Result<Arc<Connection>, McpError> {
        let work = async {
            let mut state = self.state.lock().await;
            self.connect(&mut state).await
        };
        self.run_permitted(epoch, work).await
    }

    /// Does something with the state, as long as it is permitted.
    async fn run_permitted<T>(
        &self,
        epoch: Option<ApprovalEpoch>,
        work: impl Future<Output = Result<T, McpError>>,
    ) -> Result<T, McpError> {
        let server = || self.definition.name.clone();
        match self.permission.run(epoch, work).await {
            Ok(done) => done,
            Err(UseEnd::Withdrawn) => Err(McpError::Withdrawn { server: server() }),
            Err(UseEnd::Stopped) => Err(McpError::Stopped { server: server() }),
        }
    }

    async fn connect(&self, state: &mut ServerState) -> Result<Arc<Connection>, McpError> {
        if let Some(connection) = state.connection.as_ref().filter(|connection| connection.takes_requests()) {
            return Ok(Arc::clone(connection));
        }
        state.listing = None;
        // An open one whose token or session does not count any more serves its calls to their end.
        if let Some(old) = state.connection.take().filter(|old| !old.is_open()) {
            let ended = old.monitor().closed_at().unwrap_or_else(Instant::now);
            state.backoff.note_failure(ended, Some(old.opened()), old.monitor().close_reason());
        }
        let server = || self.definition.name.clone();
        if let Some((wait, reason)) = state.backoff.pause_at(Instant::now()) {
            if wait > SHORT_PAUSE {
                return Err(McpError::Resting { server: server(), reason: reason.to_owned(), wait });
            }
            tokio::time::sleep(wait).await;
        }
        match open_connection(&self.definition, &self.options, state.generation).await {
            Ok(connection) => {
                state.generation = connection.generation();
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(failure) => {
                let reason = failure.reason();
                state.generation = ProtocolGeneration::Unknown;
                state.backoff.note_failure(Instant::now(), None, reason.clone());
                Err(McpError::Start { server: server(), reason })
            }
        }
    }

    /// Returns the tools of the server as they are now, as far as the server says.
    ///
    /// # Errors
    /// Those of a connection and of a list.
    pub(crate) async fn listing(&self, epoch: Option<ApprovalEpoch>) -> Result<Arc<ServerListing>, McpError> {
        let work = async {
            let mut state = self.state.lock().await;
            Ok(self.list(&mut state).await?.1)
        };
        self.run_permitted(epoch, work).await
    }

    /// Connects and lists the tools. If the server refuses the token or the session of the connection, it is done once more over
    /// another: a list changes nothing.
    async fn list(&self, state: &mut ServerState) -> Result<(Arc<Connection>, Arc<ServerListing>), McpError> {
        let connection = self.connect(state).await?;
        match self.list_over(state, &connection).await {
            Err(_) if connection.monitor().is_retired() => {
                let connection = self.connect(state).await?;
                let listing = self.list_over(state, &connection).await?;
                Ok((connection, listing))
            }
            listing => Ok((connection, listing?)),
        }
    }

    async fn list_over(
        &self,
        state: &mut ServerState,
        connection: &Connection,
    ) -> Result<Arc<ServerListing>, McpError> {
        // A change during the listing counts again: the mark is taken first.
        let has_changed = connection.monitor().take_tools_changed();
        if let Some(listing) = state.listing.as_ref().filter(|_| !has_changed) {
            return Ok(Arc::clone(listing));
        }
        state.listing = None;
        let listing = Arc::new(read_listing(connection, &self.definition).await?);
        state.listing = Some(Arc::clone(&listing));
        Ok(listing)
    }

    /// Returns an open connection over which the server offers the approved tool as it was approved.
    async fn connection_for(&self, of: ServerUse<'_>) -> Result<Arc<Connection>, McpError> {
        let Some(approved) = of.approved else { return self.connection(of.epoch).await };
        let work = async {
            let mut state = self.state.lock().await;
            let (connection, listing) = self.list(&mut state).await?;
            let (server, tool) = (self.definition.name.clone(), approved.name.clone());
            match listing.get(&approved.name) {
                Some(offered) if offered.digest == approved.digest => Ok(connection),
                Some(_) => Err(McpError::ToolChanged { server, tool }),
                None => Err(McpError::ToolGone { server, tool }),
            }
        };
        self.run_permitted(of.epoch, work).await
    }

    /// Sends a request, and a call of an approved tool only over a connection over which the server offers that tool unchanged.
    /// It is sent at most once: after no status, not even 401, it is certain that the server did nothing. If the server refused the
    /// token or the session, the next request uses another.
    ///
    /// # Errors
    /// The failure of the request, or the reason that nothing was sent.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        of: ServerUse<'_>,
        wait: RequestWait,
    ) -> Result<Result<ServerResult, RequestFailure>, McpError> {
        let connection = tokio::select! {
            biased;
            () = wait.cancel.cancelled() => {
                return Ok(Err(RequestFailure::NotSent("the call was cancelled".to_owned())));
            }
            connection = self.connection_for(of) => connection?,
        };
        Ok(connection.request(request, wait).await)
    }

    /// Returns what it does now.
    pub(crate) fn activity(&self) -> ServerActivity {
        let Ok(state) = self.state.try_lock() else { return ServerActivity::Busy };
        match &state.connection {
            Some(connection) if connection.is_open() => ServerActivity::Connected {
                protocol: connection.protocol_version(),
                program: connection.program(),
                since: connection.opened().elapsed(),
                listing: state.listing.clone(),
            },
            // It ended, and was not needed since.
            Some(connection) => {
                ServerActivity::Failed { reason: connection.monitor().close_reason(), retry_in: Duration::ZERO }
            }
            None => match state.backoff.last_failure(Instant::now()) {
                Some((retry_in, reason)) => ServerActivity::Failed { reason: reason.to_owned(), retry_in },
                None => ServerActivity::Idle,
            },
        }
    }

    /// Ends the connection and waits for that. Uses that wait for it end too. The next request opens another at once, also after
    /// failures. False if it is in use all the time.
    pub(crate) async fn shut_down(&self) -> bool {
        for _ in 0..STOP_ATTEMPTS {
            self.permission.stop();
            // A use that begins meanwhile may take the lock first.
            let Ok(mut state) = tokio::time::timeout(SHORT_PAUSE, self.state.lock()).await else { continue };
            state.listing = None;
            state.backoff = StartBackoff::default();
            let connection = state.connection.take();
            drop(state);
            if let Some(connection) = connection {
                connection.shut_down().await;
            }
            return true;
        }
        tracing::warn!(server = self.definition.name, "an MCP server is in use and was not stopped");
        false
    }
}
