//! HTTP API of the gateway, for programs: gates, sessions, events, the record.
//!
//! It decides nothing: an answer becomes a command, and the table of routes has the permissions. Bodies are
//! described in docs/protocol/api.md and, for programs, at `/api/v1/openapi.json`.

mod audit;
mod body;
mod cursor;
mod events;
mod gates;
mod mcp_servers;
mod openapi;
mod operations;
mod params;
mod policy;
mod sessions;
mod wire;

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use countersign_conversations::chats::{ChatError, Conversations};
use countersign_http::{
    read_failures::log_read_failure,
    reply::HttpProblem,
    web::{GuardedRoutes, WebAuth},
};
use countersign_policy_admin::tool_inventory::ToolInventory;
use countersign_runtime::{Clock, OwnerError, OwnerHandle, store::LogReadError};
use countersign_view::{Protocol, mcp_server_status::McpServerStatus};
use serde_json::Value;
use tokio::sync::Semaphore;

use events::{ContentMode, EventFeed};

/// Prefix of all routes.
const ROOT: &str = "/api/v1/";
/// Adapter of sessions that are opened here.
const DOOR: &str = Protocol::Api.name();

/// Parts of a gateway that the routes work with.
pub struct ApiContext {
    /// Owner of the record.
    pub handle: OwnerHandle,
    /// Conversations of the gateway.
    pub chats: Arc<Conversations>,
    /// Logins and tokens.
    pub auth: Arc<WebAuth>,
    /// Clock.
    pub clock: Clock,
    /// Agents, tools, approvers and folders that rules name.
    pub tool_inventory: ToolInventory,
    /// MCP servers.
    pub mcp_servers: Arc<dyn McpServerStatus>,
    /// Permit to verify the whole chain, which one caller may do at a time.
    pub verifying: Arc<Semaphore>,
}

/// State of the routes.
struct ApiState {
    context: Arc<ApiContext>,
    /// Events without the texts, and with them.
    plain: EventFeed,
    whole: EventFeed,
    /// OpenAPI document. Built at the first request.
    document: LazyLock<Value>,
}

/// Result of a handler: a reply, or an error.
type ApiResult = Result<Response, ApiError>;

/// Returns the routes.
pub fn routes(context: &Arc<ApiContext>) -> Router {
    let api = ApiState {
        plain: EventFeed::new(context.handle.clone(), ContentMode::Plain),
        whole: EventFeed::new(context.handle.clone(), ContentMode::Whole),
        document: LazyLock::new(|| openapi::build_document(operations::OPERATIONS)),
        context: Arc::clone(context),
    };
    let none = GuardedRoutes::new(&context.auth);
    let all = operations::OPERATIONS.iter().fold(none, |routes, one| (one.mount)(routes, one.method, one.path));
    all.with_state(Arc::new(api))
}

/// Error, as a problem document.
#[derive(Clone, Debug, PartialEq)]
struct ApiError(HttpProblem);

impl ApiError {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self(HttpProblem::new(status, text))
    }

    fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    fn gateway_closing() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the gateway is closing")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.0.response_for(ROOT)
    }
}

impl From<LogReadError> for ApiError {
    fn from(error: LogReadError) -> Self {
        log_read_failure(&error, "refused an API request");
        if error.is_of_silent_database() {
            return Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the record cannot be read: its database does not answer; try again later",
            );
        }
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the record cannot be read: try again later")
    }
}

impl From<OwnerError> for ApiError {
    fn from(refused: OwnerError) -> Self {
        let status = match &refused {
            OwnerError::Refusal(_) => StatusCode::CONFLICT,
            OwnerError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            OwnerError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            OwnerError::NotRecorded(_) | OwnerError::Unsure(_) | OwnerError::Unreadable(_) | OwnerError::Closed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self::new(status, refused.to_string())
    }
}

impl From<ChatError> for ApiError {
    fn from(error: ChatError) -> Self {
        let status = match &error {
            ChatError::Unknown => StatusCode::NOT_FOUND,
            ChatError::NotOurs | ChatError::Busy => StatusCode::CONFLICT,
            ChatError::Invalid(_) | ChatError::KeyTaken => StatusCode::UNPROCESSABLE_ENTITY,
            ChatError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let text = match &error {
            ChatError::Busy => "the session has an active run: queue the message, steer the run, or stop it".to_owned(),
            other => other.to_string(),
        };
        Self::new(status, text)
    }
}
