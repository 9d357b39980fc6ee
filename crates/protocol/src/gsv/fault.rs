//! Errors as the wire has them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::WireValue;

/// Errors as the wire numbers them.
pub mod code {
    /// There was no `connect` yet.
    pub const NOT_CONNECTED: i32 = 101;
    /// The protocol's version.
    pub const PROTOCOL: i32 = 102;
    /// The `connect` says something that cannot be.
    pub const HANDSHAKE: i32 = 103;
    /// A parameter is missing or wrong.
    pub const INVALID: i32 = 400;
    /// A token is missing or wrong.
    pub const UNAUTHORIZED: i32 = 401;
    /// This peer may not.
    pub const FORBIDDEN: i32 = 403;
    /// It is not there.
    pub const NOT_FOUND: i32 = 404;
    /// What was posted is longer than is taken. Only in answers to signed requests over HTTP.
    pub const TOO_LARGE: i32 = 413;
    /// It was tried and failed.
    pub const FAILED: i32 = 500;
    /// Who should do it is not there.
    pub const UNAVAILABLE: i32 = 503;
}

/// An error as the wire has it. Clients need the code as a whole number and the message as a text; without either they
/// wait for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GsvError {
    /// One of [`code`].
    pub code: i32,
    /// Error text for people.
    pub message: String,
    /// More, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// True if the same request may be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

impl WireValue for GsvError {}

impl GsvError {
    /// Creates an error without details.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retryable: None }
    }

    /// Creates the error for a missing or wrong parameter.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID, message)
    }

    /// Creates the error for another first request than `connect`.
    pub fn not_connected() -> Self {
        Self::new(code::NOT_CONNECTED, "Not connected")
    }

    /// Creates the error for an unknown method.
    pub fn unknown_method(method: &str) -> Self {
        Self::new(code::NOT_FOUND, format!("Unknown method: {method}"))
    }

    /// Creates the error for an id under which no call waits.
    pub fn unknown_call() -> Self {
        Self::new(code::NOT_FOUND, "Unknown callId")
    }

    /// Creates the error for an id under which no call of a session waits.
    pub fn unknown_session_call(id: &str) -> Self {
        Self::new(code::NOT_FOUND, format!("Unknown session tool call: {id}"))
    }

    /// Creates the error for a tool that no node has.
    pub fn no_node(tool: &str) -> Self {
        Self::new(code::NOT_FOUND, format!("No node provides tool: {tool}"))
    }

    /// Creates the error for an unknown channel, or one without a driver.
    pub fn unknown_channel(channel: &str) -> Self {
        Self::new(code::NOT_FOUND, format!("Unknown channel: {channel}"))
    }

    /// Creates the error for a missing file.
    pub fn no_file(path: &str) -> Self {
        Self::new(code::NOT_FOUND, format!("File not found: {path}"))
    }

    /// Creates the error for a pairing key under which no sender waits.
    pub fn no_pairing(key: &str) -> Self {
        Self::new(code::NOT_FOUND, format!("No pending pairing for {key}"))
    }

    /// Creates the error for a node that disconnected.
    pub fn node_disconnected(node: &str) -> Self {
        Self::new(code::UNAVAILABLE, format!("Node disconnected: {node}"))
    }

    /// Creates the error for a node whose connection was replaced while its log was requested.
    pub fn node_replaced(node: &str) -> Self {
        Self::new(code::UNAVAILABLE, format!("Node replaced during log request: {node}"))
    }

    /// Creates the error for a result from a node that the call was not sent to.
    pub fn not_its_call() -> Self {
        Self::new(code::FORBIDDEN, "Node not authorized for this call")
    }

    /// Creates the error for a missing or wrong token. The connection is closed after it.
    pub fn unauthorized() -> Self {
        Self::new(code::UNAUTHORIZED, "Unauthorized: invalid or missing token")
    }

    /// Creates the error for a method whose time limit passed without an answer.
    pub fn timed_out() -> Self {
        Self::new(code::UNAVAILABLE, "Tool execution timed out")
    }
}
