//! The gateway's own interface over HTTP, for programs: what waits, sessions, everything that happens, the record.
//!
//! It decides nothing: an answer becomes a command, and who may ask for what stands in the table of routes. What is sent is
//! described in docs/protocol/api.md and, for programs, at `/api/v1/openapi.json`.

mod audit;
mod cursor;
mod events;
mod gates;
mod openapi;
mod params;
mod policy;
mod sessions;

use std::sync::Arc;

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use countersign_conversations::chats::{ChatError, Chats};
use countersign_http::{
    reply::Problem,
    web::{Auth, Routes},
};
use countersign_policy_admin::household::Household;
use countersign_runtime::{Clock, Handle, Refused, store::ReadError};
use countersign_view::Protocol;
use tokio::sync::Semaphore;

use events::{Feed, View};

/// Below what all of it stands.
const ROOT: &str = "/api/v1/";
/// The door of sessions that are opened here.
const DOOR: &str = Protocol::Api.name();

/// The parts of a gateway that the routes work with.
pub struct ApiContext {
    /// The owner of the record.
    pub handle: Handle,
    /// The gateway's own conversations.
    pub chats: Arc<Chats>,
    /// Logins and tokens.
    pub auth: Arc<Auth>,
    /// The time.
    pub clock: Clock,
    /// Agents, tools, people and folders that rules are about.
    pub household: Household,
    /// Permit to verify the whole chain, which one caller may do at a time.
    pub verifying: Arc<Semaphore>,
}

/// What the routes work with.
struct Api {
    context: Arc<ApiContext>,
    /// What happens, without the texts and with them.
    plain: Feed,
    whole: Feed,
}

/// What a handler gives: a reply, or what went wrong.
type Answered = Result<Response, Failure>;

/// The routes.
pub fn routes(context: &Arc<ApiContext>) -> Router {
    let api = Api {
        plain: Feed::new(context.handle.clone(), View::Plain),
        whole: Feed::new(context.handle.clone(), View::Whole),
        context: Arc::clone(context),
    };
    Routes::new(&context.auth)
        .at("GET", "/api/v1/gates", gates::list)
        .at("GET", "/api/v1/gates/{id}", gates::one)
        .at("POST", "/api/v1/gates/{id}/allow", gates::allow)
        .at("POST", "/api/v1/gates/{id}/deny", gates::deny)
        .at("POST", "/api/v1/gates/{id}/answer", gates::answer)
        .at("GET", "/api/v1/sessions", sessions::list)
        .at("POST", "/api/v1/sessions", sessions::open)
        .at("GET", "/api/v1/sessions/{id}", sessions::one)
        .at("POST", "/api/v1/sessions/{id}/messages", sessions::say)
        .at("POST", "/api/v1/sessions/{id}/steer", sessions::steer)
        .at("POST", "/api/v1/sessions/{id}/stop", sessions::stop)
        .at("GET", "/api/v1/events", events::stream)
        .at("GET", "/api/v1/audit", audit::list)
        .at("GET", "/api/v1/audit/head", audit::head)
        .at("GET", "/api/v1/audit/verify", audit::verify)
        .at("GET", "/api/v1/audit/{lsn}", audit::one)
        .at("POST", "/api/v1/policy/explain", policy::explain)
        .at("GET", "/api/v1/openapi.json", openapi::document)
        .with_state(Arc::new(api))
}

/// What went wrong, as a problem document.
#[derive(Clone, Debug, PartialEq)]
struct Failure(Problem);

impl Failure {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self(Problem::new(status, text))
    }

    fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    fn closing() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the gateway is closing")
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.0.reply(ROOT)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        tracing::warn!(%error, "the record cannot be read for a program");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the record cannot be read now")
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let status = match &refused {
            Refused::Refusal(_) => StatusCode::CONFLICT,
            Refused::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refused::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Refused::NotRecorded(_) | Refused::Unsure(_) | Refused::Unreadable(_) | Refused::Closed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self::new(status, refused.to_string())
    }
}

impl From<ChatError> for Failure {
    fn from(error: ChatError) -> Self {
        let status = match &error {
            ChatError::Unknown => StatusCode::NOT_FOUND,
            ChatError::NotOurs | ChatError::Busy => StatusCode::CONFLICT,
            ChatError::Invalid(_) | ChatError::KeyTaken => StatusCode::UNPROCESSABLE_ENTITY,
            ChatError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let text = match &error {
            ChatError::Busy => "this session is at work: queue the message, steer its run, or stop it".to_owned(),
            other => other.to_string(),
        };
        Self::new(status, text)
    }
}
