//! Reads the requests of the HTTPS bridge and writes its answers.
//!
//! It must not know HTTP's own rules, sessions, or who holds control: status codes and bodies are all it has. Source:
//! docs/protocol/gjc.md, Bridge.

mod adapter_frame;
mod dialog;
mod endpoints;
mod handshake;
mod idempotency;
mod permission;

use serde::{Deserialize, Serialize};

pub use self::adapter_frame::{AdapterFrame, ClientMarker, FrameSubject, with_members, with_response_id};
pub use self::dialog::{DialogAnswer, DialogPayload};
pub use self::endpoints::{BridgeConfigError, BridgeEndpoint, EnabledEndpoints, EndpointPaths, HelpBody, read_scopes};
pub use self::handshake::{CAPABILITIES, HandshakeAccepted, HandshakeRejected, HandshakeRequest};
pub use self::idempotency::{MOST_KEYS, RepeatOutcome, RequestFingerprint};
pub use self::permission::{
    PermissionAnswer, PermissionFrame, PermissionKind, PermissionOption, PermissionRequest, ToolCallCard,
};
use super::command::{self, CommandStrictness, GjcCommand, GjcParseError};
use super::host_tool::HostToolAnswer;
use super::host_uri::HostUriResult;
use super::unattended::CommandScope;
use crate::json::{RawJson, replace_lone_surrogates, wire_values};
use crate::omp::OmpRequestId;
use crate::omp::command::{fields::CommandFields, host_tool_answer, uri_result};

/// The environment variable that holds the bridge's token. Commands of the agent do not inherit it.
pub const TOKEN_VARIABLE: &str = "GJC_BRIDGE_TOKEN";

/// Number of frames that are kept for a client that reconnects.
pub const REPLAY_WINDOW: usize = 1000;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// There is no token, or a wrong one.
    #[error("unauthorized")]
    Unauthorized,
    /// There is no such path, or no such session.
    #[error("not found")]
    NotFound,
    /// The endpoint is off.
    #[error("endpoint {} is off", .0.name())]
    EndpointDisabled(BridgeEndpoint),
    /// The token has not the scope.
    #[error("scope {} is missing", .0.name())]
    ScopeDenied(CommandScope),
    /// The body is not JSON.
    #[error("the body is not JSON")]
    InvalidJson,
    /// The body has another form: the code that the route has for that.
    #[error("{message}")]
    Invalid {
        /// Kind of the expected input.
        what: ExpectedInput,
        /// Description of the error.
        message: String,
    },
    /// The events cannot be had now.
    #[error("events are unavailable")]
    EventsUnavailable,
    /// Somebody else holds control.
    #[error("somebody else holds control")]
    ControllerBusy,
    /// Whoever asks does not hold control.
    #[error("the owner token holds no control")]
    NotController,
    /// What is answered does not wait.
    #[error("nothing waits for this")]
    UnknownRequest,
    /// What is answered was answered before.
    #[error("already resolved")]
    AlreadyResolved,
    /// No call and no request at a URI has this id.
    #[error("nothing waits for this")]
    UnknownCall,
    /// The same key came with another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyConflict,
    /// Whoever asks may not speak here at all. Ours.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The body is longer than is read. Ours.
    #[error("the body is longer than {limit} bytes")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// The body did not come in time. Ours.
    #[error("the body did not come in time")]
    TooSlow,
    /// The session has ended, or is ending. Ours.
    #[error("the session has ended")]
    Ended,
    /// There are as many sessions as there may be. Ours.
    #[error("{limit} sessions are open, which is the limit")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

/// What a body should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedInput {
    /// A handshake.
    Request,
    /// A command.
    Command,
    /// A number of a frame.
    LastSeq,
    /// What is said about a call.
    HostToolResult,
    /// What is said about a request at a URI.
    HostUriResult,
    /// An answer to a dialog or a permission.
    UiResponse,
}

/// The body of an error. Its members depend on the route, as in the original.
#[derive(Serialize)]
struct ErrorBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl BridgeError {
    /// Returns the status code.
    pub const fn status_code(&self) -> u16 {
        match self {
            Self::InvalidJson | Self::Invalid { .. } => 400,
            Self::Unauthorized => 401,
            Self::EndpointDisabled(_) | Self::ScopeDenied(_) | Self::NotController | Self::Forbidden(_) => 403,
            Self::NotFound | Self::UnknownCall => 404,
            Self::ControllerBusy | Self::UnknownRequest | Self::AlreadyResolved | Self::IdempotencyConflict => 409,
            Self::TooSlow => 408,
            Self::TooLarge { .. } => 413,
            Self::EventsUnavailable | Self::Ended | Self::TooMany { .. } => 503,
        }
    }

    /// Returns the body.
    pub fn error_body(&self) -> RawJson {
        let message = self.to_string();
        let message = message.as_str();
        let mut body = ErrorBody { status: None, code: None, error: None, endpoint: None, scope: None, message: None };
        match self {
            Self::Unauthorized => body.error = Some("unauthorized"),
            Self::NotFound => body.error = Some("not_found"),
            Self::EndpointDisabled(endpoint) => {
                body.error = Some("endpoint_disabled");
                body.endpoint = Some(endpoint.name());
            }
            Self::ScopeDenied(scope) => {
                body.error = Some("scope_denied");
                body.scope = Some(scope.name());
            }
            Self::InvalidJson => body.error = Some("invalid_json"),
            Self::Invalid { what, message } => {
                body.error = Some(what.error_code());
                body.message = Some(message);
            }
            Self::EventsUnavailable => body.error = Some("events_unavailable"),
            Self::ControllerBusy => body.error = Some("controller_busy"),
            Self::NotController => (body.status, body.code) = (Some("rejected"), Some("not_controller")),
            Self::UnknownRequest => (body.status, body.code) = (Some("rejected"), Some("unknown_request")),
            Self::AlreadyResolved => (body.status, body.code) = (Some("rejected"), Some("already_resolved")),
            Self::UnknownCall => body.error = Some("unknown_request"),
            Self::IdempotencyConflict => body.error = Some("idempotency_conflict"),
            Self::Forbidden(_) => (body.error, body.message) = (Some("forbidden"), Some(message)),
            Self::TooLarge { .. } => (body.error, body.message) = (Some("body_too_large"), Some(message)),
            Self::TooSlow => (body.error, body.message) = (Some("body_timeout"), Some(message)),
            Self::Ended => (body.error, body.message) = (Some("session_ended"), Some(message)),
            Self::TooMany { .. } => (body.error, body.message) = (Some("too_many_sessions"), Some(message)),
        }
        RawJson::from_wire(&body)
    }
}

impl ExpectedInput {
    const fn error_code(self) -> &'static str {
        match self {
            Self::Request => "invalid_request",
            Self::Command => "invalid_command",
            Self::LastSeq => "invalid_last_seq",
            Self::HostToolResult => "invalid_host_tool_result",
            Self::HostUriResult => "invalid_host_uri_result",
            Self::UiResponse => "invalid_ui_response",
        }
    }
}

/// A body that is one status: `{"status":…}` and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum StatusBody {
    /// `GET /healthz`.
    Ok,
    /// An answer was taken.
    Accepted,
    /// Control is held now.
    Claimed {
        /// Shows that it is.
        owner_token: String,
    },
    /// Control was released: no client holds it.
    Released,
}

/// The payload of a `reset` frame: frames were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResetPayload {
    reason: &'static str,
    /// The first frame that follows.
    pub first_seq: u64,
}

impl ResetPayload {
    /// Creates the payload that reports the loss of everything before `first_seq`.
    pub const fn new(first_seq: u64) -> Self {
        Self { reason: "replay_window_exceeded", first_seq }
    }

    /// Returns the id of the frame, and its number: the one before the first that follows.
    pub fn frame_id_and_seq(&self) -> (String, u64) {
        (format!("reset-{}", self.first_seq), self.first_seq.saturating_sub(1))
    }
}

/// The body of an answer to a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct GateAnswer {
    /// Id of the gate; the same as in the path.
    pub gate_id: String,
    /// Not yet looked at.
    pub answer: RawJson,
    /// Idempotency key: the same key with the same answer is the same answer. A header may have it too.
    pub idempotency_key: Option<String>,
}

/// Reads the body of `POST …/commands`.
///
/// A value that a command cannot have is no error of the request: the response to the command reports it.
///
/// # Errors
/// [`BridgeError::InvalidJson`] and [`ExpectedInput::Command`].
pub fn read_command(body: &str) -> Result<Result<(Option<OmpRequestId>, GjcCommand), GjcParseError>, BridgeError> {
    let body = replace_lone_surrogates(body);
    let fields = read_object(&body, ExpectedInput::Command)?;
    let invalid = |message: String| BridgeError::Invalid { what: ExpectedInput::Command, message };
    if fields.id().is_some_and(|_| fields.optional_field::<String>("id").is_err()) {
        return Err(invalid("`id` must be a string".to_owned()));
    }
    let name = fields.type_name().unwrap_or("undefined");
    match command::read_command(name, &fields, CommandStrictness::Bridge) {
        Ok(Some(command)) => Ok(Ok((fields.id(), command))),
        Ok(None) => Err(invalid(format!("Unknown command: {name}"))),
        Err(GjcParseError::Line(malformed)) => Err(invalid(malformed.to_string())),
        Err(GjcParseError::Shape { reason, .. }) => Err(invalid(reason)),
        Err(refused @ GjcParseError::Refused { .. }) => Ok(Err(refused)),
    }
}

/// Reads `last_seq` of the query; absent means from now on.
///
/// # Errors
/// [`ExpectedInput::LastSeq`] for anything but a whole number.
pub fn last_seq(text: Option<&str>) -> Result<Option<u64>, BridgeError> {
    let invalid = |_| BridgeError::Invalid {
        what: ExpectedInput::LastSeq,
        message: "`last_seq` must be a whole number that is not negative".to_owned(),
    };
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

/// Reads the body of `POST …/host-tool-results/{id}`. The id is that of the path.
///
/// # Errors
/// [`BridgeError::InvalidJson`] and [`ExpectedInput::HostToolResult`].
pub fn host_tool_result(body: &str) -> Result<HostToolAnswer, BridgeError> {
    let body = replace_lone_surrogates(body);
    let fields = read_object(&body, ExpectedInput::HostToolResult)?;
    let answer = host_tool_answer(fields.type_name().unwrap_or_default(), &fields);
    answer.ok_or_else(|| BridgeError::Invalid {
        what: ExpectedInput::HostToolResult,
        message: "needs a host_tool_update with `partialResult` or a host_tool_result with `result`, \
                  whose `content` is a list of objects with a `type`"
            .to_owned(),
    })
}

/// Reads the body of `POST …/host-uri-results/{id}`. The id is that of the path.
///
/// # Errors
/// [`BridgeError::InvalidJson`] and [`ExpectedInput::HostUriResult`].
pub fn host_uri_result(body: &str) -> Result<HostUriResult, BridgeError> {
    let body = replace_lone_surrogates(body);
    let fields = read_object(&body, ExpectedInput::HostUriResult)?;
    let result = uri_result(&body).filter(|_| fields.type_name().is_none_or(|name| name == "host_uri_result"));
    result.ok_or_else(|| BridgeError::Invalid {
        what: ExpectedInput::HostUriResult,
        message: "needs a host_uri_result".to_owned(),
    })
}

/// Reads the body of `POST …/ui-responses/{gate id}`.
///
/// # Errors
/// [`BridgeError::InvalidJson`] and [`ExpectedInput::UiResponse`]: without a gate, with another one than the path's, and
/// without an answer.
pub fn gate_answer(body: &str, path_id: &str) -> Result<GateAnswer, BridgeError> {
    let body = replace_lone_surrogates(body);
    let fields = read_object(&body, ExpectedInput::UiResponse)?;
    let invalid = |message: String| BridgeError::Invalid { what: ExpectedInput::UiResponse, message };
    let gate_id: String = fields.required_field("gate_id").map_err(|error| invalid(error.to_string()))?;
    if gate_id != path_id {
        return Err(invalid("`gate_id` must be that of the path".to_owned()));
    }
    let answer = fields.raw_member("answer").ok_or_else(|| invalid("`answer` is required".to_owned()))?;
    let idempotency_key = fields.optional_field("idempotency_key").map_err(|error| invalid(error.to_string()))?;
    Ok(GateAnswer { gate_id, answer: answer.to_owned().into(), idempotency_key })
}

/// Reads a body that serde knows.
fn read_json<T: for<'de> Deserialize<'de>>(body: &str, what: ExpectedInput) -> Result<T, BridgeError> {
    serde_json::from_str(&replace_lone_surrogates(body)).map_err(|error| match error.is_data() {
        true => BridgeError::Invalid { what, message: error.to_string() },
        false => BridgeError::InvalidJson,
    })
}

fn read_object(body: &str, what: ExpectedInput) -> Result<CommandFields<'_>, BridgeError> {
    CommandFields::from_line(body).map_err(|malformed| match malformed {
        crate::omp::OmpParseError::NotAnObject => {
            BridgeError::Invalid { what, message: "the body must be an object".to_owned() }
        }
        _ => BridgeError::InvalidJson,
    })
}

/// Reads, for a fuzz loop, `body` as the body of every route.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzz(body: &str) {
    let errors = [
        read_command(body).err(),
        host_tool_result(body).err(),
        host_uri_result(body).err(),
        gate_answer(body, "wg_1").err(),
        HandshakeRequest::from_body(body).err(),
        DialogAnswer::from_body(body).err(),
        PermissionAnswer::from_body(body).err(),
    ];
    for error in errors.into_iter().flatten() {
        let body = error.error_body();
        let parsed = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(body.as_text());
        assert!(parsed.is_ok_and(|members| !members.is_empty()), "{:?}", body.as_text());
    }
}

wire_values! { ErrorBody<'_>, StatusBody, ResetPayload }
