//! The routes of the bridge, and the order in which a request is checked: the client, what is enabled, the scope of the token, and
//! then the content.
//!
//! It must not know what commands do.

mod command_result;
mod request_text;

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::{Method, StatusCode, request::Parts},
    response::Response,
};
use countersign_adapter_omp::session_file::find;
use countersign_http::{listen, reply, web::sse};
use countersign_protocol::{
    RawJson, WireValue,
    gjc::{
        GjcCommand,
        bridge::{
            self, BridgeEndpoint, BridgeError, DialogAnswer, ExpectedInput, HandshakeRequest, PermissionAnswer,
            RequestFingerprint, StatusBody, with_members,
        },
        host_tool::HostToolAnswer,
        unattended::CommandScope,
    },
};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::json;

use self::{
    command_result::{CommandResult, command_result, gate_resolution, with_code},
    request_text::{bearer_token, decode_segment, header_text, read_body},
};
use super::{
    BridgeAnswer, BridgeState, SESSIONS, SessionSelector, answer_lines,
    control::{ControllerBusy, fresh_token},
    conversation::{AdapterEnded, BridgeConversation},
    idempotency::NotDone,
    open_prompts::{ClientPrompt, HostWork, NotWaiting},
};

/// Maximum length of a key, in bytes.
const LONGEST_KEY: usize = 255;
/// Prefix of the id of every gate.
const GATE: &str = "wg_";
/// Shows who holds control.
const OWNER: &str = "x-gjc-bridge-owner-token";
/// Tells a request that comes again.
const KEY: &str = "idempotency-key";

type RouteResult = Result<Response, BridgeError>;

/// Answers one request.
pub(super) async fn answer_request(State(state): State<Arc<BridgeState>>, request: Request) -> Response {
    let result = match state.hosts.check_request(&request, state.is_tls) {
        Ok(()) => {
            let (head, body) = request.into_parts();
            BridgeRequest { state, head }.route_request(body).await
        }
        Err(why) => Err(BridgeError::Forbidden(why.trim_end())),
    };
    result.unwrap_or_else(|error| json_response(error.status_code(), &error.error_body()))
}

fn json_response(status: u16, body: &RawJson) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply::with_content_type(status, "application/json", body.as_text().as_bytes().to_vec())
}

fn ok_response(body: &(impl WireValue + ?Sized)) -> Response {
    json_response(200, &RawJson::from_wire(body))
}

impl BridgeAnswer {
    fn from_body(body: &(impl WireValue + ?Sized)) -> Self {
        Self { status: 200, body: RawJson::from_wire(body) }
    }
}

impl From<BridgeError> for BridgeAnswer {
    fn from(error: BridgeError) -> Self {
        Self { status: error.status_code(), body: error.error_body() }
    }
}

impl From<BridgeAnswer> for Response {
    fn from(answer: BridgeAnswer) -> Self {
        json_response(answer.status, &answer.body)
    }
}

impl From<AdapterEnded> for BridgeError {
    fn from(_: AdapterEnded) -> Self {
        Self::Ended
    }
}

impl From<NotWaiting> for BridgeError {
    fn from(not: NotWaiting) -> Self {
        match not {
            NotWaiting::Unknown => Self::UnknownRequest,
            NotWaiting::Resolved => Self::AlreadyResolved,
        }
    }
}

/// A request that is being looked at.
struct BridgeRequest {
    state: Arc<BridgeState>,
    head: Parts,
}

/// The body of `POST /v1/sessions`.
#[derive(Default, Deserialize)]
#[serde(rename = "Opening")]
struct OpenSessionRequest {
    #[serde(default)]
    resume: Option<String>,
}

impl BridgeRequest {
    async fn route_request(&self, body: Body) -> RouteResult {
        let (method, path) = (&self.head.method, self.head.uri.path());
        match (method, path) {
            (&Method::GET, "/healthz") => return Ok(ok_response(&StatusBody::Ok)),
            (&Method::GET, "/v1/help") => return Ok(ok_response(&self.state.setup.endpoints.help_body())),
            _ => {}
        }
        self.authorise_client().await?;
        match (method, path) {
            (&Method::POST, "/v1/handshake") => return self.handshake(body).await,
            (&Method::GET, "/v1/sessions") => return self.list_sessions(),
            (&Method::POST, "/v1/sessions") => return self.open_session(body).await,
            _ => {}
        }
        let rest = path.strip_prefix("/v1/sessions/").ok_or(BridgeError::NotFound)?;
        let (session, route) = rest.split_once('/').ok_or(BridgeError::NotFound)?;
        let conversation = self.state.find_conversation(&decode_segment(session))?;
        match (method, route.split_once('/')) {
            (&Method::GET, None) if route == "events" => self.stream_events(&conversation),
            (&Method::POST, None) if route == "commands" => self.run_command(&conversation, body).await,
            (&Method::POST, None) if route == "control:claim" => self.claim_control(&conversation),
            (&Method::POST, None) if route == "control:disconnect" => self.release_control(&conversation).await,
            (&Method::POST, Some(("ui-responses", id))) => {
                self.answer_prompt(&conversation, decode_segment(id), body).await
            }
            (&Method::POST, Some(("host-tool-results", id))) => {
                self.tool_result(&conversation, &decode_segment(id), body).await
            }
            (&Method::POST, Some(("host-uri-results", id))) => {
                self.uri_result(&conversation, &decode_segment(id), body).await
            }
            _ => Err(BridgeError::NotFound),
        }
    }

    /// Looks who asks.
    async fn authorise_client(&self) -> Result<(), BridgeError> {
        if !bearer_token(&self.head.headers).is_some_and(|token| self.state.knows_token(token)) {
            return Err(BridgeError::Unauthorized);
        }
        let Some(connection) = self.head.extensions.get::<listen::ConnectionInfo>() else { return Ok(()) };
        // A client that has shown the token is authenticated; the limiter does not evict it for a stranger.
        if !connection.place.mark_authenticated() {
            return Err(BridgeError::EventsUnavailable);
        }
        if !connection.peer.may_decide().await {
            return Err(BridgeError::Forbidden(listen::peer::REFUSED));
        }
        Ok(())
    }

    fn require_endpoint(&self, endpoint: BridgeEndpoint) -> Result<(), BridgeError> {
        let is_on = self.state.setup.endpoints.is_enabled(endpoint);
        if is_on { Ok(()) } else { Err(BridgeError::EndpointDisabled(endpoint)) }
    }

    fn require_scope(&self, scope: CommandScope) -> Result<(), BridgeError> {
        if self.state.setup.scopes.contains(&scope) { Ok(()) } else { Err(BridgeError::ScopeDenied(scope)) }
    }

    fn owner_token(&self) -> Option<&str> {
        header_text(&self.head.headers, OWNER)
    }

    fn holds_control(&self, conversation: &BridgeConversation) -> Result<(), BridgeError> {
        if conversation.is_controller(self.owner_token()) { Ok(()) } else { Err(BridgeError::NotController) }
    }

    /// Does `work` once for the key of the request, if it has one.
    async fn run_once(
        &self,
        conversation: &BridgeConversation,
        route: &str,
        body: &str,
        invalid: ExpectedInput,
        work: impl Future<Output = BridgeAnswer> + Send + 'static,
    ) -> RouteResult {
        let Some(key) = header_text(&self.head.headers, KEY) else {
            // The work is done, even if the requesting client has gone.
            let done = tokio::spawn(work).await.map_err(|_| BridgeError::Ended)?;
            return Ok(done.into());
        };
        if key.is_empty() || key.len() > LONGEST_KEY {
            let message = format!("`Idempotency-Key` must have 1 to {LONGEST_KEY} characters");
            return Err(BridgeError::Invalid { what: invalid, message });
        }
        let fingerprint = RequestFingerprint::for_request(route, body.as_bytes(), self.owner_token());
        match conversation.idempotency.run_once(key.to_owned(), fingerprint, work).await {
            Ok(answer) => Ok(answer.into()),
            Err(NotDone::Conflict) => Err(BridgeError::IdempotencyConflict),
            Err(NotDone::NotController) => Err(BridgeError::NotController),
            Err(NotDone::Failed) => Err(BridgeError::Ended),
        }
    }

    async fn handshake(&self, body: Body) -> RouteResult {
        let body = read_body(body).await?;
        let handshake = HandshakeRequest::from_body(&body)?;
        if let Err(rejected) = handshake.speaks_ours() {
            return Ok(ok_response(&rejected));
        }
        let conversation = match &handshake.session_id {
            Some(session) => self.state.find_conversation(session)?,
            None => self.state.all_conversations().into_iter().next().ok_or(BridgeError::Ended)?,
        };
        let mut accepted = None;
        if let Some(declaration) = &handshake.unattended {
            let command = json!({ "type": "negotiate_unattended" }).to_string();
            let command = format!("{},\"declaration\":{}}}", command.trim_end_matches('}'), declaration.as_text());
            match command_result(&conversation.send_command(&command, None).await?) {
                CommandResult::Done(data) => accepted = data,
                CommandResult::Failed(error) => {
                    return Ok(json_response(403, &with_code(error, "invalid_unattended_declaration")));
                }
            }
        }
        let setup = &self.state.setup;
        let session = conversation.session_id();
        let paths = setup.endpoints.session_paths(&session);
        Ok(ok_response(&handshake.accept_client(session, &setup.scopes, paths, accepted)))
    }

    fn list_sessions(&self) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::Commands)?;
        self.require_scope(CommandScope::MessageRead)?;
        let all = self.state.all_conversations();
        let sessions: Vec<_> = all
            .iter()
            .filter(|one| !one.window.is_over())
            .map(|one| json!({ "session_id": one.session_id() }))
            .collect();
        Ok(ok_response(&json!({ "sessions": sessions })))
    }

    async fn open_session(&self, body: Body) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::Commands)?;
        self.require_scope(CommandScope::Session)?;
        let body = read_body(body).await?;
        let invalid = |message: String| BridgeError::Invalid { what: ExpectedInput::Request, message };
        let opening: OpenSessionRequest = match body.trim() {
            "" => OpenSessionRequest::default(),
            body => match serde_json::from_str(body) {
                Ok(opening) => opening,
                Err(error) if error.is_data() => return Err(invalid(error.to_string())),
                Err(_) => return Err(BridgeError::InvalidJson),
            },
        };
        let Ok(room) = Arc::clone(&self.state.session_slots).try_acquire_owned() else {
            return Err(BridgeError::TooMany { limit: SESSIONS });
        };
        if opening.resume.as_deref().is_some_and(|id| id.trim().is_empty() || find::is_path(id)) {
            // A client that may open sessions may not say at which path of this machine they are.
            return Err(invalid("resume is the id of a session, or its beginning".to_owned()));
        }
        let which = opening.resume.map_or(SessionSelector::New, SessionSelector::Resumed);
        let conversation =
            self.state.open_conversation(which, Some(room)).await.map_err(|error| invalid(error.to_string()))?;
        Ok(ok_response(&json!({ "status": "opened", "session_id": conversation.session_id() })))
    }

    fn stream_events(&self, conversation: &Arc<BridgeConversation>) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::Events)?;
        let query = self.head.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
        let last = pairs.into_iter().find(|(name, _)| name == "last_seq").map(|(_, value)| value);
        let window = &conversation.window;
        let after = match bridge::last_seq(last.as_deref())? {
            None => window.last_number(),
            // The client requested all frames.
            Some(0) => window.before_oldest(),
            Some(after) => after,
        };
        if window.is_over() {
            return Err(BridgeError::EventsUnavailable);
        }
        let Ok(permit) = Arc::clone(&self.state.streams).try_acquire_owned() else {
            return Err(BridgeError::EventsUnavailable);
        };
        // Frames that cause work are only for the client that was present then.
        let before = window.last_number();
        let is_back = last.is_some_and(|last| last != "0");
        let held = (permit, conversation.subscribe_events(self.owner_token(), is_back));
        let (resetting, filtering) = (Arc::clone(conversation), Arc::clone(conversation));
        let frames = Arc::clone(window).follow_frames(after, move |first| resetting.reset_frame(first));
        let frames = frames.filter_map(move |(number, frame)| {
            // The room is given back with the stream.
            let _held = &held;
            let is_old = number <= before && filtering.is_work(number);
            std::future::ready((!is_old).then_some(frame))
        });
        Ok(sse::stream_reply(frames, "keepalive"))
    }

    async fn run_command(&self, conversation: &Arc<BridgeConversation>, body: Body) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::Commands)?;
        let body = read_body(body).await?;
        let (id, command) = match bridge::read_command(&body)? {
            Ok(read) => read,
            Err(refused) => return Ok(ok_response(&refused.to_response())),
        };
        self.require_scope(command.required_scope())?;
        if matches!(command, GjcCommand::WorkflowGateResponse { .. }) {
            self.holds_control(conversation)?;
        }
        let (target, line) = (Arc::clone(conversation), body.clone());
        let work = async move {
            match target.send_command(&line, id).await {
                Ok(response) => BridgeAnswer { status: 200, body: response },
                Err(ended) => BridgeError::from(ended).into(),
            }
        };
        self.run_once(conversation, "commands", &body, ExpectedInput::Command, work).await
    }

    fn claim_control(&self, conversation: &BridgeConversation) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::Control)?;
        self.require_scope(CommandScope::Control)?;
        let fresh = fresh_token().ok_or(BridgeError::Ended)?;
        match conversation.claim_control(self.owner_token(), fresh) {
            Ok(owner_token) => Ok(ok_response(&StatusBody::Claimed { owner_token })),
            Err(ControllerBusy) => Err(BridgeError::ControllerBusy),
        }
    }

    async fn release_control(&self, conversation: &BridgeConversation) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::Control)?;
        self.require_scope(CommandScope::Control)?;
        let prompts = conversation.release_control(self.owner_token()).ok_or(BridgeError::NotController)?;
        for ClientPrompt::Dialog(id) | ClientPrompt::Permission(id) in prompts {
            conversation.send_line(answer_lines::cancelled_dialog(&id)).await?;
        }
        Ok(ok_response(&StatusBody::Released))
    }

    async fn answer_prompt(&self, conversation: &Arc<BridgeConversation>, id: String, body: Body) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::UiResponses)?;
        self.require_scope(CommandScope::Control)?;
        self.holds_control(conversation)?;
        let body = read_body(body).await?;
        let route = format!("ui-responses/{id}");
        let target = Arc::clone(conversation);
        if id.starts_with(GATE) {
            let mut gate = bridge::gate_answer(&body, &id)?;
            if gate.idempotency_key.is_none() {
                gate.idempotency_key = header_text(&self.head.headers, KEY).map(str::to_owned);
            }
            let command = answer_lines::gate_answer(&gate);
            let work = async move {
                match target.send_command(&command, None).await {
                    Ok(response) => gate_resolution(command_result(&response)),
                    Err(ended) => BridgeError::from(ended).into(),
                }
            };
            return self.run_once(conversation, &route, &body, ExpectedInput::UiResponse, work).await;
        }
        // An unreadable answer leaves it waiting.
        let read = match conversation.open_prompts.lock().get_prompt(&id) {
            Some(ClientPrompt::Permission(_)) => PromptAnswer::Permission(PermissionAnswer::from_body(&body)?),
            Some(ClientPrompt::Dialog(_)) => PromptAnswer::Dialog(DialogAnswer::from_body(&body)?),
            // Another client may have answered it under the same key.
            None => PromptAnswer::Nothing,
        };
        let work = async move {
            let line = match (target.take_prompt(&id), read) {
                (Ok(ClientPrompt::Dialog(dialog)), PromptAnswer::Dialog(answer)) => {
                    answer_lines::dialog_answer(&dialog, &answer)
                }
                (Ok(ClientPrompt::Permission(dialog)), PromptAnswer::Permission(answer)) => {
                    answer_lines::permission_answer(&dialog, &answer)
                }
                // The prompt under this id is a different one now.
                (Ok(_), _) => return BridgeError::AlreadyResolved.into(),
                (Err(not), _) => return BridgeError::from(not).into(),
            };
            match target.send_line(line).await {
                Ok(()) => BridgeAnswer::from_body(&StatusBody::Accepted),
                Err(ended) => BridgeError::from(ended).into(),
            }
        };
        self.run_once(conversation, &route, &body, ExpectedInput::UiResponse, work).await
    }

    async fn tool_result(&self, conversation: &BridgeConversation, id: &str, body: Body) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::HostToolResults)?;
        self.require_scope(CommandScope::HostTools)?;
        let body = read_body(body).await?;
        let is_known = match bridge::host_tool_result(&body)? {
            HostToolAnswer::Update(_) => conversation.open_prompts.lock().has_work(HostWork::Tool, id),
            HostToolAnswer::Done(_) | HostToolAnswer::Failed(_) => {
                conversation.open_prompts.lock().end_work(HostWork::Tool, id)
            }
        };
        if !is_known {
            return Err(BridgeError::UnknownCall);
        }
        conversation.send_line(with_members(&body, &[("id", id)])).await?;
        Ok(ok_response(&StatusBody::Accepted))
    }

    async fn uri_result(&self, conversation: &BridgeConversation, id: &str, body: Body) -> RouteResult {
        self.require_endpoint(BridgeEndpoint::HostUriResults)?;
        self.require_scope(CommandScope::HostUri)?;
        let body = read_body(body).await?;
        bridge::host_uri_result(&body)?;
        if !conversation.open_prompts.lock().end_work(HostWork::Uri, id) {
            return Err(BridgeError::UnknownCall);
        }
        conversation.send_line(with_members(&body, &[("type", "host_uri_result"), ("id", id)])).await?;
        Ok(ok_response(&StatusBody::Accepted))
    }
}

/// An answer to what waits, as far as it can be read.
enum PromptAnswer {
    Dialog(DialogAnswer),
    Permission(PermissionAnswer),
    Nothing,
}
