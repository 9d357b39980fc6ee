//! The wire of the agent-gate door: JSON-RPC 2.0 in WebSocket text frames.
//!
//! Source: docs/protocol/agent-gate.md.

#[cfg(feature = "fuzzing")]
mod fuzz;

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;

/// The largest frame in either direction, in bytes.
pub const LARGEST_FRAME: usize = 1 << 20;

/// Errors as the wire numbers them.
pub mod code {
    /// It is not JSON.
    pub const PARSE: i32 = -32700;
    /// It has the wrong shape.
    pub const INVALID: i32 = -32600;
    /// There is no such method.
    pub const NO_METHOD: i32 = -32601;
    /// A person refused.
    pub const REFUSED: i32 = -32001;
    /// Nobody decided in time.
    pub const EXPIRED: i32 = -32002;
    /// Policy refused.
    pub const DENIED: i32 = -32003;
    /// It was tried and failed, or cannot be done at all.
    pub const FAILED: i32 = -32004;
    /// Whoever asks did not show who it is.
    pub const UNAUTHENTICATED: i32 = -32005;
    /// Too much, or too often.
    pub const LIMITED: i32 = -32006;
}

/// Close codes of a connection.
pub mod close {
    /// Close code of a finished connection; the client does not come back.
    pub const NORMAL: u16 = 1000;
    /// A frame was too large.
    pub const TOO_LARGE: u16 = 1009;
    /// The gateway restarts; the client comes back.
    pub const RESTART: u16 = 1012;
    /// Close code for an agent that is connected already.
    pub const CONNECTED: u16 = 4000;
}

/// Request of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentGateRequest {
    /// Shows who it is.
    Auth {
        /// Its token; absent if it gave none, or no text.
        token: Option<String>,
    },
    /// Asks for an action.
    ToolRequest {
        /// The tool's name.
        tool: String,
        /// The tool's arguments.
        args: Map<String, Value>,
        /// Idempotency key: the same key again is the same request. Ours.
        key: Option<String>,
    },
    /// Asks which tools there are.
    ListTools,
    /// Asks for results that it has not received.
    PendingResults,
}

/// An error as the wire has it.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonRpcError {
    /// One of [`code`].
    pub code: i32,
    /// Error text for people.
    pub message: String,
    /// More, for programs.
    pub data: Option<Value>,
}

impl JsonRpcError {
    /// Creates an error without data.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonRpcFrame {
    /// The client's id as the JSON text that it wrote; `null` if it gave none or an unreadable one.
    pub id: String,
    /// The request, or the error that its sender gets.
    pub request: Result<AgentGateRequest, JsonRpcError>,
}

#[derive(Deserialize)]
struct JsonRpcEnvelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<Value>,
    #[serde(default)]
    params: Option<Value>,
}

/// Reads one frame.
pub fn read_frame(frame: &str) -> JsonRpcFrame {
    let fails =
        |code, message: &str| JsonRpcFrame { id: "null".to_owned(), request: Err(JsonRpcError::new(code, message)) };
    if serde_json::from_str::<serde::de::IgnoredAny>(frame).is_err() {
        return fails(code::PARSE, "Parse error");
    }
    if !frame.trim_start().starts_with('{') {
        return fails(code::INVALID, "Invalid request: not an object");
    }
    let envelope: JsonRpcEnvelope<'_> = match serde_json::from_str(frame) {
        Ok(envelope) => envelope,
        // Too deep a nesting is a parse error too; a member that is there twice is not.
        Err(error) if error.is_data() => return fails(code::INVALID, "Invalid request: a member is there twice"),
        Err(_) => return fails(code::PARSE, "Parse error"),
    };
    let id = envelope.id.map_or("null", RawValue::get).to_owned();
    let request = parse_request(&id, envelope.method, envelope.params);
    JsonRpcFrame { id, request }
}

fn parse_request(id: &str, method: Option<Value>, params: Option<Value>) -> Result<AgentGateRequest, JsonRpcError> {
    let invalid = |message: &str| Err(JsonRpcError::new(code::INVALID, message));
    let method = match method {
        Some(Value::String(method)) if !method.is_empty() => method,
        None | Some(Value::Null | Value::String(_)) => return invalid("Missing method"),
        Some(_) => return invalid("Invalid request: method is not a text"),
    };
    let params = match params {
        None => Ok(Map::new()),
        Some(Value::Object(params)) => Ok(params),
        Some(_) => Err(JsonRpcError::new(code::INVALID, "Invalid request: params is not an object")),
    };
    match method.as_str() {
        "auth" => Ok(AgentGateRequest::Auth { token: params?.get("token").and_then(Value::as_str).map(str::to_owned) }),
        "list_tools" => params.map(|_| AgentGateRequest::ListTools),
        "get_pending_results" => params.map(|_| AgentGateRequest::PendingResults),
        "tool_request" if id == "null" => invalid("Missing request id"),
        "tool_request" => tool_request(params?),
        method => Err(JsonRpcError::new(code::NO_METHOD, format!("Unknown method: {method}"))),
    }
}

fn tool_request(mut params: Map<String, Value>) -> Result<AgentGateRequest, JsonRpcError> {
    let invalid = |message: &str| Err(JsonRpcError::new(code::INVALID, message));
    let tool = match params.remove("tool") {
        Some(Value::String(tool)) if !tool.is_empty() => tool,
        None | Some(Value::Null | Value::String(_)) => return invalid("Missing tool name"),
        Some(_) => return invalid("Invalid request: tool is not a text"),
    };
    let args = match params.remove("args") {
        None => Map::new(),
        Some(Value::Object(args)) => args,
        Some(_) => return invalid("Invalid request: args is not an object"),
    };
    let key = match params.remove("idempotency_key") {
        None | Some(Value::Null) => None,
        Some(Value::String(key)) if !key.is_empty() => Some(key),
        Some(_) => return invalid("Invalid request: idempotency_key is not a text"),
    };
    Ok(AgentGateRequest::ToolRequest { tool, args, key })
}

/// Encodes a reply to the request of `id`, which is JSON text, with a result that is JSON text.
pub fn encode_result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","result":{result},"id":{id}}}"#)
}

/// Encodes an error reply.
pub fn encode_error(id: &str, fault: &JsonRpcError) -> String {
    let mut text =
        format!(r#"{{"jsonrpc":"2.0","error":{{"code":{},"message":{}"#, fault.code, Value::from(&*fault.message));
    if let Some(data) = &fault.data {
        // Writing to a String cannot fail.
        let _ = write!(text, r#","data":{data}"#);
    }
    let _ = write!(text, r#"}},"id":{id}}}"#);
    text
}

/// Encodes the result of an action that was done, with its data as JSON text.
pub fn executed_result(data: &str) -> String {
    format!(r#"{{"status":"executed","data":{data}}}"#)
}

#[cfg(test)]
mod tests;
