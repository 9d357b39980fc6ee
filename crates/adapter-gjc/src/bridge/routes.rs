//! The routes of the bridge, and the order in which a request is looked at: who asks, what is switched on, what the token is
//! for, and then what is said.
//!
//! It must not know what commands do.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
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
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::json;

use super::{
    Answer, House, SESSIONS, Which, answers,
    control::{Busy, fresh_token},
    conversation::{Conversation, Ended},
    keys::NotDone,
    waiting::{NotWaiting, Prompt, Work},
};

/// How long a body may be, in bytes.
const LARGEST: usize = 32 << 20;
/// How long it may take to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a key may be, in bytes.
const LONGEST_KEY: usize = 255;
/// How the id of every gate begins.
const GATE: &str = "wg_";
/// Shows who holds control.
const OWNER: &str = "x-gjc-bridge-owner-token";
/// Tells a request that comes again.
const KEY: &str = "idempotency-key";

type Outcome = Result<Response, BridgeError>;

/// Answers one request.
pub(super) async fn answer(State(house): State<Arc<House>>, request: Request) -> Response {
    let told = match house.hosts.check_request(&request, house.is_tls) {
        Ok(()) => {
            let (head, body) = request.into_parts();
            Visit { house, head }.route(body).await
        }
        Err(why) => Err(BridgeError::Forbidden(why.trim_end())),
    };
    told.unwrap_or_else(|error| answered(error.status_code(), &error.error_body()))
}

fn answered(status: u16, body: &RawJson) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply::with_content_type(status, "application/json", body.as_text().as_bytes().to_vec())
}

fn ok(body: &(impl WireValue + ?Sized)) -> Response {
    answered(200, &RawJson::from_wire(body))
}

impl Answer {
    fn of(body: &(impl WireValue + ?Sized)) -> Self {
        Self { status: 200, body: RawJson::from_wire(body) }
    }
}

impl From<BridgeError> for Answer {
    fn from(error: BridgeError) -> Self {
        Self { status: error.status_code(), body: error.error_body() }
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        answered(answer.status, &answer.body)
    }
}

impl From<Ended> for BridgeError {
    fn from(_: Ended) -> Self {
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
struct Visit {
    house: Arc<House>,
    head: Parts,
}

/// The body of `POST /v1/sessions`.
#[derive(Default, Deserialize)]
#[serde(rename = "Opening")]
struct Opening {
    #[serde(default)]
    resume: Option<String>,
}

impl Visit {
    async fn route(&self, body: Body) -> Outcome {
        let (method, path) = (&self.head.method, self.head.uri.path());
        match (method, path) {
            (&Method::GET, "/healthz") => return Ok(ok(&StatusBody::Ok)),
            (&Method::GET, "/v1/help") => return Ok(ok(&self.house.setup.endpoints.help_body())),
            _ => {}
        }
        self.comes_in().await?;
        match (method, path) {
            (&Method::POST, "/v1/handshake") => return self.handshake(body).await,
            (&Method::GET, "/v1/sessions") => return self.sessions(),
            (&Method::POST, "/v1/sessions") => return self.begin(body).await,
            _ => {}
        }
        let rest = path.strip_prefix("/v1/sessions/").ok_or(BridgeError::NotFound)?;
        let (session, route) = rest.split_once('/').ok_or(BridgeError::NotFound)?;
        let conversation = self.house.find(&decoded(session))?;
        match (method, route.split_once('/')) {
            (&Method::GET, None) if route == "events" => self.events(&conversation),
            (&Method::POST, None) if route == "commands" => self.command(&conversation, body).await,
            (&Method::POST, None) if route == "control:claim" => self.claim(&conversation),
            (&Method::POST, None) if route == "control:disconnect" => self.disconnect(&conversation).await,
            (&Method::POST, Some(("ui-responses", id))) => self.respond(&conversation, decoded(id), body).await,
            (&Method::POST, Some(("host-tool-results", id))) => {
                self.tool_result(&conversation, &decoded(id), body).await
            }
            (&Method::POST, Some(("host-uri-results", id))) => self.uri_result(&conversation, &decoded(id), body).await,
            _ => Err(BridgeError::NotFound),
        }
    }

    /// Looks who asks.
    async fn comes_in(&self) -> Result<(), BridgeError> {
        if !bearer(&self.head.headers).is_some_and(|token| self.house.knows(token)) {
            return Err(BridgeError::Unauthorized);
        }
        let Some(guest) = self.head.extensions.get::<listen::ConnectionInfo>() else { return Ok(()) };
        // Whoever has shown the token is no stranger; nobody takes its place for one.
        if !guest.place.mark_authenticated() {
            return Err(BridgeError::EventsUnavailable);
        }
        if !guest.peer.may_decide().await {
            return Err(BridgeError::Forbidden(listen::peer::REFUSED));
        }
        Ok(())
    }

    fn is_on(&self, endpoint: BridgeEndpoint) -> Result<(), BridgeError> {
        let is_on = self.house.setup.endpoints.is_enabled(endpoint);
        if is_on { Ok(()) } else { Err(BridgeError::EndpointDisabled(endpoint)) }
    }

    fn may(&self, scope: CommandScope) -> Result<(), BridgeError> {
        if self.house.setup.scopes.contains(&scope) { Ok(()) } else { Err(BridgeError::ScopeDenied(scope)) }
    }

    fn owner(&self) -> Option<&str> {
        text(&self.head.headers, OWNER)
    }

    fn holds_control(&self, conversation: &Conversation) -> Result<(), BridgeError> {
        if conversation.is_controller(self.owner()) { Ok(()) } else { Err(BridgeError::NotController) }
    }

    /// Does `work` once for the key of the request, if it has one.
    async fn once(
        &self,
        conversation: &Conversation,
        route: &str,
        body: &str,
        invalid: ExpectedInput,
        work: impl Future<Output = Answer> + Send + 'static,
    ) -> Outcome {
        let Some(key) = text(&self.head.headers, KEY) else {
            // It is done, whether or not whoever asked is still there.
            let done = tokio::spawn(work).await.map_err(|_| BridgeError::Ended)?;
            return Ok(done.into());
        };
        if key.is_empty() || key.len() > LONGEST_KEY {
            let message = format!("`Idempotency-Key` must have 1 to {LONGEST_KEY} characters");
            return Err(BridgeError::Invalid { what: invalid, message });
        }
        let fingerprint = RequestFingerprint::for_request(route, body.as_bytes(), self.owner());
        match conversation.keys.once(key.to_owned(), fingerprint, work).await {
            Ok(answer) => Ok(answer.into()),
            Err(NotDone::Conflict) => Err(BridgeError::IdempotencyConflict),
            Err(NotDone::NotController) => Err(BridgeError::NotController),
            Err(NotDone::Failed) => Err(BridgeError::Ended),
        }
    }

    async fn handshake(&self, body: Body) -> Outcome {
        let body = read(body).await?;
        let handshake = HandshakeRequest::from_body(&body)?;
        if let Err(rejected) = handshake.speaks_ours() {
            return Ok(ok(&rejected));
        }
        let conversation = match &handshake.session_id {
            Some(session) => self.house.find(session)?,
            None => self.house.all().into_iter().next().ok_or(BridgeError::Ended)?,
        };
        let mut accepted = None;
        if let Some(declaration) = &handshake.unattended {
            let command = json!({ "type": "negotiate_unattended" }).to_string();
            let command = format!("{},\"declaration\":{}}}", command.trim_end_matches('}'), declaration.as_text());
            match said(&conversation.ask(&command, None).await?) {
                Said::Done(data) => accepted = data,
                Said::Failed(error) => return Ok(answered(403, &coded(error, "invalid_unattended_declaration"))),
            }
        }
        let setup = &self.house.setup;
        let session = conversation.session();
        let paths = setup.endpoints.session_paths(&session);
        Ok(ok(&handshake.accept_client(session, &setup.scopes, paths, accepted)))
    }

    fn sessions(&self) -> Outcome {
        self.is_on(BridgeEndpoint::Commands)?;
        self.may(CommandScope::MessageRead)?;
        let all = self.house.all();
        let sessions: Vec<_> =
            all.iter().filter(|one| !one.window.is_over()).map(|one| json!({ "session_id": one.session() })).collect();
        Ok(ok(&json!({ "sessions": sessions })))
    }

    async fn begin(&self, body: Body) -> Outcome {
        self.is_on(BridgeEndpoint::Commands)?;
        self.may(CommandScope::Session)?;
        let body = read(body).await?;
        let invalid = |message: String| BridgeError::Invalid { what: ExpectedInput::Request, message };
        let opening: Opening = match body.trim() {
            "" => Opening::default(),
            body => match serde_json::from_str(body) {
                Ok(opening) => opening,
                Err(error) if error.is_data() => return Err(invalid(error.to_string())),
                Err(_) => return Err(BridgeError::InvalidJson),
            },
        };
        let Ok(room) = Arc::clone(&self.house.rooms).try_acquire_owned() else {
            return Err(BridgeError::TooMany { limit: SESSIONS });
        };
        if opening.resume.as_deref().is_some_and(|id| id.trim().is_empty() || find::is_path(id)) {
            // Whoever may open sessions may not say where on this machine they lie.
            return Err(invalid("resume is the id of a session, or its beginning".to_owned()));
        }
        let which = opening.resume.map_or(Which::New, Which::Resumed);
        let conversation = self.house.begin(which, Some(room)).await.map_err(|error| invalid(error.to_string()))?;
        Ok(ok(&json!({ "status": "opened", "session_id": conversation.session() })))
    }

    fn events(&self, conversation: &Arc<Conversation>) -> Outcome {
        self.is_on(BridgeEndpoint::Events)?;
        let query = self.head.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
        let last = pairs.into_iter().find(|(name, _)| name == "last_seq").map(|(_, value)| value);
        let window = &conversation.window;
        let after = match bridge::last_seq(last.as_deref())? {
            None => window.last(),
            // All that there is was asked for.
            Some(0) => window.oldest(),
            Some(after) => after,
        };
        if window.is_over() {
            return Err(BridgeError::EventsUnavailable);
        }
        let Ok(permit) = Arc::clone(&self.house.streams).try_acquire_owned() else {
            return Err(BridgeError::EventsUnavailable);
        };
        // What has somebody do something was for who was there then.
        let before = window.last();
        let is_back = last.is_some_and(|last| last != "0");
        let held = (permit, conversation.listen(self.owner(), is_back));
        let (resetting, asked) = (Arc::clone(conversation), Arc::clone(conversation));
        let frames = Arc::clone(window).follow(after, move |first| resetting.reset(first));
        let frames = frames.filter_map(move |(number, frame)| {
            // The room is given back with the stream.
            let _held = &held;
            let is_old = number <= before && asked.is_work(number);
            std::future::ready((!is_old).then_some(frame))
        });
        Ok(sse::stream_reply(frames, "keepalive"))
    }

    async fn command(&self, conversation: &Arc<Conversation>, body: Body) -> Outcome {
        self.is_on(BridgeEndpoint::Commands)?;
        let body = read(body).await?;
        let (id, command) = match bridge::read_command(&body)? {
            Ok(read) => read,
            Err(refused) => return Ok(ok(&refused.to_response())),
        };
        self.may(command.required_scope())?;
        if matches!(command, GjcCommand::WorkflowGateResponse { .. }) {
            self.holds_control(conversation)?;
        }
        let (asked, line) = (Arc::clone(conversation), body.clone());
        let work = async move {
            match asked.ask(&line, id).await {
                Ok(response) => Answer { status: 200, body: response },
                Err(ended) => BridgeError::from(ended).into(),
            }
        };
        self.once(conversation, "commands", &body, ExpectedInput::Command, work).await
    }

    fn claim(&self, conversation: &Conversation) -> Outcome {
        self.is_on(BridgeEndpoint::Control)?;
        self.may(CommandScope::Control)?;
        let fresh = fresh_token().ok_or(BridgeError::Ended)?;
        match conversation.claim(self.owner(), fresh) {
            Ok(owner_token) => Ok(ok(&StatusBody::Claimed { owner_token })),
            Err(Busy) => Err(BridgeError::ControllerBusy),
        }
    }

    async fn disconnect(&self, conversation: &Conversation) -> Outcome {
        self.is_on(BridgeEndpoint::Control)?;
        self.may(CommandScope::Control)?;
        let prompts = conversation.release(self.owner()).ok_or(BridgeError::NotController)?;
        for Prompt::Dialog(id) | Prompt::Permission(id) in prompts {
            conversation.say(answers::cancelled(&id)).await?;
        }
        Ok(ok(&StatusBody::Released))
    }

    async fn respond(&self, conversation: &Arc<Conversation>, id: String, body: Body) -> Outcome {
        self.is_on(BridgeEndpoint::UiResponses)?;
        self.may(CommandScope::Control)?;
        self.holds_control(conversation)?;
        let body = read(body).await?;
        let route = format!("ui-responses/{id}");
        let asked = Arc::clone(conversation);
        if id.starts_with(GATE) {
            let mut gate = bridge::gate_answer(&body, &id)?;
            if gate.idempotency_key.is_none() {
                gate.idempotency_key = text(&self.head.headers, KEY).map(str::to_owned);
            }
            let command = answers::gate(&gate);
            let work = async move {
                match asked.ask(&command, None).await {
                    Ok(response) => resolution(said(&response)),
                    Err(ended) => BridgeError::from(ended).into(),
                }
            };
            return self.once(conversation, &route, &body, ExpectedInput::UiResponse, work).await;
        }
        // What cannot be read leaves it waiting.
        let read = match conversation.waiting.lock().shows(&id) {
            Some(Prompt::Permission(_)) => Read::Permission(PermissionAnswer::from_body(&body)?),
            Some(Prompt::Dialog(_)) => Read::Dialog(DialogAnswer::from_body(&body)?),
            // Somebody may have answered it under the same key.
            None => Read::Nothing,
        };
        let work = async move {
            let line = match (asked.take(&id), read) {
                (Ok(Prompt::Dialog(dialog)), Read::Dialog(answer)) => answers::dialog(&dialog, &answer),
                (Ok(Prompt::Permission(dialog)), Read::Permission(answer)) => answers::permission(&dialog, &answer),
                // What waits under this id is another thing than it was.
                (Ok(_), _) => return BridgeError::AlreadyResolved.into(),
                (Err(not), _) => return BridgeError::from(not).into(),
            };
            match asked.say(line).await {
                Ok(()) => Answer::of(&StatusBody::Accepted),
                Err(ended) => BridgeError::from(ended).into(),
            }
        };
        self.once(conversation, &route, &body, ExpectedInput::UiResponse, work).await
    }

    async fn tool_result(&self, conversation: &Conversation, id: &str, body: Body) -> Outcome {
        self.is_on(BridgeEndpoint::HostToolResults)?;
        self.may(CommandScope::HostTools)?;
        let body = read(body).await?;
        let is_known = match bridge::host_tool_result(&body)? {
            HostToolAnswer::Update(_) => conversation.waiting.lock().is_asked(Work::Tool, id),
            HostToolAnswer::Done(_) | HostToolAnswer::Failed(_) => conversation.waiting.lock().done(Work::Tool, id),
        };
        if !is_known {
            return Err(BridgeError::UnknownCall);
        }
        conversation.say(with_members(&body, &[("id", id)])).await?;
        Ok(ok(&StatusBody::Accepted))
    }

    async fn uri_result(&self, conversation: &Conversation, id: &str, body: Body) -> Outcome {
        self.is_on(BridgeEndpoint::HostUriResults)?;
        self.may(CommandScope::HostUri)?;
        let body = read(body).await?;
        bridge::host_uri_result(&body)?;
        if !conversation.waiting.lock().done(Work::Uri, id) {
            return Err(BridgeError::UnknownCall);
        }
        conversation.say(with_members(&body, &[("type", "host_uri_result"), ("id", id)])).await?;
        Ok(ok(&StatusBody::Accepted))
    }
}

/// An answer to what waits, as far as it can be read.
enum Read {
    Dialog(DialogAnswer),
    Permission(PermissionAnswer),
    Nothing,
}

/// What a command came to.
enum Said {
    Done(Option<RawJson>),
    Failed(RawJson),
}

#[derive(Deserialize)]
struct Responded {
    success: bool,
    #[serde(default)]
    data: Option<RawJson>,
    #[serde(default)]
    error: Option<RawJson>,
}

fn said(response: &RawJson) -> Said {
    match response.decode_as::<Responded>() {
        Ok(Responded { success: true, data, .. }) => Said::Done(data),
        Ok(Responded { error: Some(error), .. }) => Said::Failed(error),
        Ok(_) | Err(_) => Said::Failed(RawJson::from_wire("the command failed")),
    }
}

/// What is told of an answer to a gate: what became of it, or an error with its code.
fn resolution(said: Said) -> Answer {
    match said {
        Said::Done(data) => Answer { status: 200, body: data.unwrap_or_else(|| RawJson::from_wire(&())) },
        Said::Failed(error) => {
            let body = coded(error, "unattended_not_negotiated");
            #[derive(Deserialize)]
            struct Coded {
                code: String,
            }
            let is_denied = body.decode_as::<Coded>().is_ok_and(|error| error.code.ends_with("_denied"));
            Answer { status: if is_denied { 403 } else { 409 }, body }
        }
    }
}

/// An error as an object with a code. One that is a text gets `code`.
fn coded(error: RawJson, code: &str) -> RawJson {
    match error.decode_as::<String>() {
        Ok(message) => json!({ "code": code, "message": message }).into(),
        Err(_) => error,
    }
}

/// Reads a body, as text: bytes that are none are read as U+FFFD.
async fn read(body: Body) -> Result<String, BridgeError> {
    match tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST)).await {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(error)) => {
            let is_long =
                std::error::Error::source(&error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
            Err(if is_long { BridgeError::TooLarge { limit: LARGEST } } else { BridgeError::InvalidJson })
        }
        Err(_) => Err(BridgeError::TooSlow),
    }
}

fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
