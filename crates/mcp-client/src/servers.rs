//! All servers of a gateway by name.
//!
//! It must not know who calls a tool, and whether that was allowed.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::RequestWait,
    connection_monitor::ProgressSink,
    definition::{BadDefinition, ServerDefinition},
    error::McpError,
    listing::{ServerListing, ServerTool},
    options::McpOptions,
    server::ServerHandle,
    tool_call::{CallOutcome, call_request},
};

/// All servers of a gateway. Clones share them.
///
/// A server is started or reached when it is first needed. After a failure it is started again when it is needed and a pause has
/// passed, which doubles up to five minutes. An idle server costs no time: nothing polls.
///
/// Dropping the last clone ends all connections, and all processes with them.
#[derive(Clone)]
pub struct McpServers {
    servers: Arc<BTreeMap<String, Arc<ServerHandle>>>,
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.servers.keys()).finish()
    }
}

impl McpServers {
    /// Makes `definitions` usable. Nothing is started yet.
    ///
    /// # Errors
    /// [`BadDefinition`] for the first that cannot be used.
    pub fn new(definitions: Vec<ServerDefinition>, options: McpOptions) -> Result<Self, BadDefinition> {
        let names = definitions.iter().map(|definition| definition.name.clone()).collect();
        let options = Arc::new(McpOptions { names, ..options });
        let mut servers = BTreeMap::new();
        for definition in definitions {
            definition.check()?;
            let name = definition.name.clone();
            let handle = Arc::new(ServerHandle::new(definition, Arc::clone(&options)));
            if servers.insert(name.clone(), handle).is_some() {
                return Err(BadDefinition::Twice(name));
            }
        }
        Ok(Self { servers: Arc::new(servers) })
    }

    /// Returns the definitions, sorted by name.
    pub fn definitions(&self) -> impl Iterator<Item = &ServerDefinition> {
        self.servers.values().map(|server| server.definition())
    }

    pub(crate) fn server(&self, name: &str) -> Result<&ServerHandle, McpError> {
        let server = self.servers.get(name).ok_or_else(|| McpError::UnknownServer(name.to_owned()))?;
        Ok(server)
    }

    /// Lists the tools of a server: those known from its connection, or from a new request if the server says that they changed.
    ///
    /// *Cancellation*: dropping the future gives the list up.
    ///
    /// # Errors
    /// [`McpError`].
    pub async fn list_tools(&self, server: &str) -> Result<Arc<ServerListing>, McpError> {
        self.server(server)?.listing().await
    }

    /// Calls a tool of a server and waits for its end, for the time limit of the server or for `cancel`.
    ///
    /// The tool is called by the name that the server knows. Neither its arguments nor its approval are looked at.
    ///
    /// *Cancellation*: the token ends the wait, and the server hears of it. Dropping the future leaves unknown whether the call was
    /// sent.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
        progress: ProgressSink,
    ) -> CallOutcome {
        self.call(server, tool, None, arguments, (cancel, progress)).await
    }

    /// Does the same for an approved tool, if the server offers it as it was approved. Otherwise nothing is sent.
    pub async fn call_approved(
        &self,
        approved: &ServerTool,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
        progress: ProgressSink,
    ) -> CallOutcome {
        self.call(&approved.server, &approved.name, Some(approved), arguments, (cancel, progress)).await
    }

    async fn call(
        &self,
        server: &str,
        tool: &str,
        approved: Option<&ServerTool>,
        arguments: Map<String, Value>,
        (cancel, progress): (CancellationToken, ProgressSink),
    ) -> CallOutcome {
        let handle = match self.server(server) {
            Ok(handle) => handle,
            Err(error) => return CallOutcome::from_error(&error),
        };
        let limit = handle.definition().call_timeout;
        let wait = RequestWait { limit, cancel, progress };
        match handle.request(call_request(tool, arguments), approved, wait).await {
            Ok(Ok(answer)) => CallOutcome::from_answer(server, tool, answer, handle.limits()),
            Ok(Err(failure)) => CallOutcome::from_failure(server, tool, failure),
            Err(error) => CallOutcome::from_error(&error),
        }
    }

    /// Ends the connection to a server, and its process with it. The next call opens another.
    pub async fn disconnect(&self, server: &str) {
        if let Ok(handle) = self.server(server) {
            handle.shut_down().await;
        }
    }

    /// Ends all connections and waits for the end of all processes, a few seconds at most.
    pub async fn close(&self) {
        join_all(self.servers.values().map(|server| server.shut_down())).await;
    }
}

#[cfg(test)]
mod tests;
