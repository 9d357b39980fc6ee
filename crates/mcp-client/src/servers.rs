//! All servers of a gateway by name.
//!
//! It must not know who calls a tool, and whether that was allowed.

use std::{collections::BTreeMap, fmt, sync::Arc};

use countersign_runtime::tools::GatewaySecrets;
use futures_util::future::join_all;
use rmcp::model::{InputRequest, InputRequiredResult, ServerResult};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{RequestFailure, RequestWait},
    connection_monitor::ProgressSink,
    definition::{BadDefinition, ServerDefinition},
    elicitation::Elicitation,
    error::McpError,
    listing::{ServerListing, ServerTool},
    open_call::OpenCall,
    options::McpOptions,
    server::{ServerHandle, ServerUse},
    server_activity::ServerActivity,
    server_permission::ApprovalEpoch,
    tool_call::{CallInput, CallOutcome, call_request},
    tool_caller::ToolCaller,
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
    secrets: GatewaySecrets,
    /// Permissions with which the servers are used; none for one that has no end.
    epochs: Option<Arc<BTreeMap<String, ApprovalEpoch>>>,
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
        Ok(Self { servers: Arc::new(servers), secrets: options.secrets.clone(), epochs: None })
    }

    /// Returns the same servers for use until the approval of each is withdrawn. To be taken before the approvals are read.
    #[must_use]
    pub fn until_withdrawn(&self) -> Self {
        let epochs = self.servers.iter().map(|(name, server)| (name.clone(), server.permission().epoch()));
        let (servers, secrets) = (Arc::clone(&self.servers), self.secrets.clone());
        Self { servers, secrets, epochs: Some(Arc::new(epochs.collect())) }
    }

    pub(crate) fn epoch(&self, server: &str) -> Option<ApprovalEpoch> {
        self.epochs.as_ref()?.get(server).copied()
    }

    /// Returns the secrets that definitions and arguments of calls may name.
    pub(crate) const fn secrets(&self) -> &GatewaySecrets {
        &self.secrets
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
        self.server(server)?.listing(self.epoch(server)).await
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
        let call = ToolCall { server, tool, approved: None, caller: &ToolCaller::default() };
        self.call(call, arguments, (cancel, progress)).await
    }

    /// Does the same for an approved tool, if the server offers it as it was approved. Otherwise nothing is sent. If the server asks
    /// people meanwhile, they are shown `caller`.
    pub async fn call_approved(
        &self,
        approved: &ServerTool,
        caller: &ToolCaller,
        arguments: Map<String, Value>,
        cancel: CancellationToken,
        progress: ProgressSink,
    ) -> CallOutcome {
        let call = ToolCall { server: &approved.server, tool: &approved.name, approved: Some(approved), caller };
        self.call(call, arguments, (cancel, progress)).await
    }

    async fn call(
        &self,
        called: ToolCall<'_>,
        arguments: Map<String, Value>,
        (cancel, progress): (CancellationToken, ProgressSink),
    ) -> CallOutcome {
        let ToolCall { server, tool, approved, caller } = called;
        let handle = match self.server(server) {
            Ok(handle) => handle,
            Err(error) => return CallOutcome::from_error(&error),
        };
        let (limit, limits) = (handle.definition().call_timeout, handle.limits());
        let open = Arc::new(OpenCall::new(server, tool, caller, limit, limits.questions));
        let wait = RequestWait { limit, call: Some(Arc::clone(&open)), cancel, progress };
        let request = |input| call_request(tool, arguments.clone(), input);
        let of = ServerUse { approved, epoch: self.epoch(server) };
        let mut answer = Box::pin(handle.request(request(CallInput::default()), of, wait.clone())).await;
        let mut rounds = 0;
        loop {
            let required = match answer {
                Ok(Ok(ServerResult::InputRequiredResult(required))) => required,
                // The server worked on the call in an earlier round, so it is not true that nothing was sent.
                Ok(Err(RequestFailure::NotSent(why))) if rounds > 0 => {
                    return unfinished(&called, &why);
                }
                Err(error) if rounds > 0 => return unfinished(&called, &error.to_string()),
                Ok(Ok(answer)) => return CallOutcome::from_answer(server, tool, answer, limits),
                Ok(Err(failure)) => return CallOutcome::from_failure(server, tool, failure),
                Err(error) => return CallOutcome::from_error(&error),
            };
            if rounds >= limits.rounds {
                return unfinished(&called, &format!("the server wanted input more than {} times", limits.rounds));
            }
            rounds += 1;
            let cancel = wait.cancel.child_token();
            let input = give_input(handle, &open, required, &cancel);
            tokio::pin!(input);
            let input = tokio::select! {
                biased;
                () = handle.permission().wait_withdrawn(of.epoch) => {
                    // Its question is withdrawn before the call ends.
                    cancel.cancel();
                    drop(input.await);
                    return unfinished(&called, &McpError::Withdrawn { server: server.to_owned() }.to_string());
                }
                input = &mut input => input,
            };
            let input = match input {
                Ok(input) => input,
                Err(why) => return unfinished(&called, &why),
            };
            answer = Box::pin(handle.request(request(input), of, wait.clone())).await;
        }
    }

    /// Returns what a server does now, without starting it; none if no server has this name.
    pub fn activity(&self, server: &str) -> Option<ServerActivity> {
        self.servers.get(server).map(|handle| handle.activity())
    }

    /// Ends every permission to use a server that was given before: what waits for it is refused, and a start ends. The connection
    /// is ended by [`McpServers::disconnect`].
    pub fn withdraw(&self, server: &str) {
        if let Ok(handle) = self.server(server) {
            handle.permission().withdraw();
        }
    }

    /// Ends the connection to a server, and its process with it. The next call opens another, without a pause for earlier failures.
    /// False if the server is in use all the time.
    pub async fn disconnect(&self, server: &str) -> bool {
        match self.server(server) {
            Ok(handle) => handle.shut_down().await,
            Err(_) => true,
        }
    }

    /// Ends all connections and waits for the end of all processes, a few seconds at most.
    pub async fn close(&self) {
        join_all(self.servers.values().map(|server| server.shut_down())).await;
    }
}

/// A call of a tool.
struct ToolCall<'a> {
    server: &'a str,
    tool: &'a str,
    approved: Option<&'a ServerTool>,
    caller: &'a ToolCaller,
}

/// Returns the outcome of a call whose server wanted input, and that did not go on. The server worked on it before it asked.
fn unfinished(call: &ToolCall<'_>, why: &str) -> CallOutcome {
    let failure = RequestFailure::Lost(format!("the call was not finished: {why}"));
    CallOutcome::from_failure(call.server, call.tool, failure)
}

/// Gets the input that a server wants for a call. Its own state goes back as it came.
///
/// # Errors
/// The reason that there is none.
async fn give_input(
    handle: &ServerHandle,
    call: &Arc<OpenCall>,
    required: InputRequiredResult,
    cancel: &CancellationToken,
) -> Result<CallInput, String> {
    let Some(requests) = required.input_requests else {
        return Ok(CallInput { responses: None, state: required.request_state });
    };
    let mut responses = BTreeMap::new();
    for (key, request) in requests {
        let response = match (request, handle.asker()) {
            (InputRequest::Elicitation(request), Some(asker)) => {
                let elicitation = Elicitation { calls: std::slice::from_ref(call), asker, cancel };
                let answer = elicitation.run(request.params).await;
                let answer =
                    answer.map_err(|flaw| format!("the server asks in a form that is not accepted: {flaw}"))?;
                serde_json::to_value(answer).map_err(|error| error.to_string())?
            }
            (InputRequest::Elicitation(_), None) => {
                return Err("the server wants input from a person, and no approver can be asked here".to_owned());
            }
            (InputRequest::CreateMessage(_), _) => {
                return Err("sampling is refused: this client gives servers no access to its models".to_owned());
            }
            _ => return Err("the server wants input that this client does not give".to_owned()),
        };
        responses.insert(key, response);
    }
    if cancel.is_cancelled() {
        return Err("the call was cancelled".to_owned());
    }
    Ok(CallInput { responses: Some(responses), state: required.request_state })
}

#[cfg(test)]
mod tests;
