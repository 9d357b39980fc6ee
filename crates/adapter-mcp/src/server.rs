//! Handler of one connection: methods of the protocol become calls, and their outcomes results.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use countersign_core::{call::AgentRequest, id::GateId};
use countersign_foreign_calls::{
    CallProblem, Delivery, ForeignCall, OutcomeSharing, ProgressSink, Requester, build_program_request,
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
        Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken,
        ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
    },
    service::{NotificationContext, Peer, RequestContext, SubscriptionContext},
};
use serde_json::{Map, Value};

use crate::{
    adapter::McpAdapter,
    answers::{AnswerForm, error_result},
    gates,
    own_tools::OwnTool,
    requests,
};

/// Versions of the protocol: the last two with an `initialize`, and the one without.
const VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// Interval of the check whether a client is still connected.
const CLIENT_CHECK: Duration = Duration::from_secs(60);

/// Longest time between the end of all calls and the end of the connection.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

const INSTRUCTIONS: &str = "Tools of a Countersign gateway. A call may wait until a person approves it. If your call times \
    out, repeat it with the same arguments: it continues to wait, and an action runs once. Do not retry what was denied.";

/// Requester and delivery of one request. The transport attaches them, since one HTTP session has many connections.
#[derive(Clone)]
pub(super) struct RequestOrigin {
    pub(super) requester: Arc<Requester>,
    pub(super) delivery: Delivery,
    /// The client repeats a request without a reply on its next connection.
    pub(super) is_repeated: bool,
}

/// Handler of a connection, or of a session over HTTP.
pub(super) struct McpServer {
    adapter: Arc<McpAdapter>,
    /// True once the client is notified of changed tools: it may report its initialization any number of times.
    is_notified: AtomicBool,
}

impl McpServer {
    pub(super) fn new(adapter: &Arc<McpAdapter>) -> Self {
        Self { adapter: Arc::clone(adapter), is_notified: AtomicBool::new(false) }
    }

    async fn call_own(
        &self,
        tool: OwnTool,
        mut arguments: Map<String, Value>,
        origin: &RequestOrigin,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let checked = tool.check_arguments(&arguments);
        let requester = &*origin.requester;
        let (form, request, sharing) = match tool {
            OwnTool::GateStatus | OwnTool::GateWait => {
                if let Err(reason) = checked {
                    return Ok(error_result(&reason));
                }
                return Ok(match tool {
                    OwnTool::GateWait => gates::gate_wait(&self.adapter, requester, &arguments, &context.ct).await,
                    _ => gates::gate_status(&self.adapter, requester, &arguments).await,
                });
            }
            OwnTool::AskHuman => {
                let request = checked.and_then(|()| requests::build_question(requester, &arguments));
                (AnswerForm::Words, request, OutcomeSharing::All)
            }
            OwnTool::RequestApproval => {
                let request = checked.and_then(|()| requests::build_approval(requester, arguments));
                (AnswerForm::Decision, request, OutcomeSharing::One)
            }
            OwnTool::PermissionPrompt => {
                let name = arguments.get("tool_name").and_then(Value::as_str).unwrap_or_default().to_owned();
                let input = match arguments.remove("input") {
                    Some(Value::Object(input)) => input,
                    _ => Map::new(),
                };
                let checked = checked.and_then(|()| requests::check_tool_name(&name));
                let request = checked.and_then(|()| build_program_request(requester, &name, input.clone(), ""));
                (AnswerForm::Permission(input), request, OutcomeSharing::One)
            }
        };
        self.run_call(form, request, sharing, origin, context).await
    }

    async fn run_call(
        &self,
        form: AnswerForm,
        request: Result<AgentRequest, String>,
        sharing: OutcomeSharing,
        origin: &RequestOrigin,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let request = match request {
            Ok(request) => request,
            Err(reason) => return Ok(form.encode_refusal(&reason)),
        };
        let call = ForeignCall {
            calls: &self.adapter.calls,
            requester: &origin.requester,
            request,
            sharing,
            delivery: &origin.delivery,
            progress: ProgressNotifier::for_request(&context),
            cancel: context.ct.clone(),
        };
        match call.run().await {
            Ok(outcome) => Ok(form.encode_outcome(&outcome)),
            // The reply is that of the gateway that comes back. The end of the connection ends this request.
            Err(problem @ (CallProblem::Closing | CallProblem::Cancelled(_)))
                if origin.is_repeated
                    && (self.adapter.end.is_cancelled() || matches!(problem, CallProblem::Closing)) =>
            {
                tokio::time::sleep(CLOSE_LIMIT).await;
                Err(ErrorData::internal_error(CallProblem::Closing.to_string(), None))
            }
            // No host may take a lost gateway for a decision.
            Err(problem @ (CallProblem::Closing | CallProblem::Cancelled(_))) => {
                Err(ErrorData::internal_error(problem.to_string(), None))
            }
            Err(problem) => Ok(form.encode_problem(&problem)),
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("countersign", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(VERSIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let Some((tools, next)) = self.adapter.list.current().page(cursor.as_deref()) else {
            return Err(ErrorData::invalid_params("unknown cursor", None));
        };
        let mut page = ListToolsResult::with_all_items(tools);
        page.next_cursor = next;
        Ok(page)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.adapter.list.current().find(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(origin) = request_origin(&context) else {
            return Err(ErrorData::internal_error("the request has no principal", None));
        };
        // Before all checks: an invalid call counts too.
        if !self.adapter.rate.try_count(origin.requester.principal()) {
            let form = OwnTool::find(&request.name).map_or(AnswerForm::Data, OwnTool::refusal_form);
            return Ok(form.encode_problem(&CallProblem::RateLimited).into());
        }
        if request.request_state.is_some() || request.input_responses.is_some() {
            return Err(ErrorData::invalid_params("unknown requestState: this server asked for no input", None));
        }
        let (name, arguments) = (request.name, request.arguments.unwrap_or_default());
        let result = if let Some(tool) = OwnTool::find(&name) {
            Box::pin(self.call_own(tool, arguments, &origin, context)).await?
        } else {
            let (secrets, requester) = (&self.adapter.secrets, &*origin.requester);
            let list = self.adapter.list.current();
            let (form, request) = if self.adapter.tools.contains_key(&*name) {
                let tools = &self.adapter.tools;
                (AnswerForm::Data, requests::build_service_request(tools, secrets, requester, &name, arguments))
            } else if let Some(tool) = list.find_further(&name) {
                let checked =
                    self.adapter.further.as_ref().map_or(Ok(()), |all| all.check_arguments(&name, &arguments));
                let request =
                    checked.and_then(|()| requests::build_further_request(tool, secrets, requester, arguments));
                (AnswerForm::Result, request)
            } else {
                let reason = self.adapter.further.as_ref().and_then(|all| all.missing_reason(&name));
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                return Err(ErrorData::invalid_params(format!("Unknown tool: {name}{reason}"), None));
            };
            Box::pin(self.run_call(form, request, OutcomeSharing::All, &origin, context)).await?
        };
        Ok(result.into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let is_sessionless = context.meta.protocol_version().is_some_and(|version| !version.has_initialize());
        // Known methods whose parameters do not fit arrive here too.
        Err(match request.method.as_str() {
            "initialize" if is_sessionless => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
            "tools/call" | "tools/list" | "initialize" | "server/discover" | "ping" | "subscriptions/listen" => {
                ErrorData::invalid_params(format!("Invalid params of {}", request.method), None)
            }
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Some(further) = &self.adapter.further else { return };
        if self.is_notified.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut changed, end) = (further.changed(), self.adapter.end.clone());
        changed.mark_unchanged();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    change = changed.changed() => if change.is_err() { return },
                    () = end.cancelled() => return,
                    // No event reports that the client has gone.
                    () = tokio::time::sleep(CLIENT_CHECK) => {
                        if context.peer.is_transport_closed() {
                            return;
                        }
                        continue;
                    }
                }
                if context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        // Without changed tools in its filter, a change must neither be sent to it nor end it.
        let is_of_tools = context.accepted().tools_list_changed == Some(true);
        let Some(further) = self.adapter.further.as_ref().filter(|_| is_of_tools) else {
            tokio::select! {
                () = context.cancelled() => {}
                () = self.adapter.end.cancelled() => {}
            }
            return Ok(());
        };
        let mut changed = further.changed();
        changed.mark_unchanged();
        loop {
            tokio::select! {
                change = changed.changed() => if change.is_err() { return Ok(()) },
                () = context.cancelled() => return Ok(()),
                () = self.adapter.end.cancelled() => return Ok(()),
            }
            if context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Returns the origin of a request: of its stream, or of its HTTP request.
fn request_origin(context: &RequestContext<RoleServer>) -> Option<RequestOrigin> {
    let of_http = || context.extensions.get::<axum::http::request::Parts>()?.extensions.get::<RequestOrigin>();
    context.extensions.get::<RequestOrigin>().or_else(of_http).cloned()
}

/// Sender of progress notifications, if the client asked for them.
struct ProgressNotifier {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    sent: f64,
}

impl ProgressNotifier {
    fn for_request(context: &RequestContext<RoleServer>) -> Self {
        Self { peer: context.peer.clone(), token: context.meta.get_progress_token(), sent: 0.0 }
    }
}

impl ProgressSink for ProgressNotifier {
    async fn report_wait(&mut self, gate: Option<GateId>) {
        let Some(token) = self.token.clone() else { return };
        self.sent += 1.0;
        let text = gate.map_or_else(|| "running".to_owned(), |gate| format!("waits for approval: gate {gate}"));
        let progress = ProgressNotificationParam::new(token, self.sent).with_message(text);
        // A client that does not read it gets the result, or repeats the call.
        let _ = self.peer.notify_progress(progress).await;
    }
}
