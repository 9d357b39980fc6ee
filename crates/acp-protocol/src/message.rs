//! Frames of JSON-RPC 2.0, one a line.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

/// Id of a request: a number or a text. Null is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
}

impl RequestId {
    /// Returns the value as an id, if it can be one.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self::Number(number.clone())),
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns the number that it is, if it is a whole one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            Self::Text(_) => None,
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// Codes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The line is no JSON.
    Parse,
    /// The JSON is no request, or the request does not fit here.
    InvalidRequest,
    /// No method has this name.
    MethodNotFound,
    /// A parameter is not accepted.
    InvalidParams,
    /// The request failed.
    Internal,
    /// The request was cancelled.
    Cancelled,
    /// What the request names does not exist.
    NotFound,
}

impl ErrorCode {
    /// Returns the number on the wire.
    pub const fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::Cancelled => -32800,
            Self::NotFound => -32002,
        }
    }
}

/// A message of an editor.
#[derive(Clone, Debug, PartialEq)]
pub enum IncomingMessage {
    /// It expects a reply.
    Request {
        /// Its id.
        id: RequestId,
        /// Its method.
        method: String,
        /// Its parameters; absent parameters are an empty object.
        params: Value,
    },
    /// It expects none.
    Notification {
        /// Its method.
        method: String,
        /// Its parameters.
        params: Value,
    },
    /// The reply to a request of ours.
    Response {
        /// The id of that request.
        id: RequestId,
        /// The result, or the text of an error.
        result: Result<Value, String>,
    },
}

/// Why a line is no message. The reply has this id, or null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFault {
    /// The id of the request, if the line has one.
    pub id: Option<RequestId>,
    /// The kind of error.
    pub code: ErrorCode,
    /// For people.
    pub text: String,
}

impl MessageFault {
    fn invalid(id: Option<RequestId>, text: impl Into<String>) -> Self {
        Self { id, code: ErrorCode::InvalidRequest, text: text.into() }
    }
}

/// Reads a line.
///
/// # Errors
/// [`MessageFault`] with the reply that it gets.
pub fn parse_message(line: &str) -> Result<IncomingMessage, MessageFault> {
    let parsed: Value = serde_json::from_str(line).map_err(|error| MessageFault {
        id: None,
        code: ErrorCode::Parse,
        text: format!("Parse error: {error}"),
    })?;
    let Value::Object(mut members) = parsed else {
        let text = if parsed.is_array() { "batches are not supported" } else { "expected a JSON object" };
        return Err(MessageFault::invalid(None, format!("Invalid request: {text}")));
    };
    let given_id = members.shift_remove("id");
    let id = given_id.as_ref().and_then(RequestId::from_value);
    match members.get("jsonrpc") {
        Some(Value::String(version)) if version == "2.0" => {}
        found => {
            let found = found.map_or_else(|| "absent".to_owned(), brief_json);
            return Err(MessageFault::invalid(id, format!("Invalid request: jsonrpc: {found}: expected \"2.0\"")));
        }
    }
    if let (Some(given), None) = (&given_id, &id) {
        let given = brief_json(given);
        return Err(MessageFault::invalid(None, format!("Invalid request: id: {given}: expected a number or a text")));
    }
    match members.shift_remove("method") {
        Some(Value::String(method)) => {
            let params = members.shift_remove("params").unwrap_or_else(|| json!({}));
            Ok(match id {
                Some(id) => IncomingMessage::Request { id, method, params },
                None => IncomingMessage::Notification { method, params },
            })
        }
        Some(other) => {
            let other = brief_json(&other);
            Err(MessageFault::invalid(id, format!("Invalid request: method: {other}: expected a text")))
        }
        None => read_response(id, members),
    }
}

fn read_response(id: Option<RequestId>, mut members: Map<String, Value>) -> Result<IncomingMessage, MessageFault> {
    let Some(id) = id else {
        return Err(MessageFault::invalid(None, "Invalid request: expected a method, or the id of a request"));
    };
    if let Some(error) = members.shift_remove("error").filter(|error| !error.is_null()) {
        let text = error.get("message").and_then(Value::as_str).map_or_else(|| brief_json(&error), str::to_owned);
        return Ok(IncomingMessage::Response { id, result: Err(text) });
    }
    match members.shift_remove("result") {
        Some(result) => Ok(IncomingMessage::Response { id, result: Ok(result) }),
        // Nothing is gained by an error about a reply.
        None => Ok(IncomingMessage::Response { id, result: Err("neither a result nor an error".to_owned()) }),
    }
}

/// Returns a value as JSON, cut if it is long.
pub(super) fn brief_json(value: &Value) -> String {
    const LONGEST: usize = 120;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Encodes the result of a request, with the line end.
pub fn encode_result(id: &RequestId, result: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct Frame<'a, T> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        result: &'a T,
    }
    encode_frame(&Frame { jsonrpc: "2.0", id, result })
}

/// Encodes the error of a request, with the line end. Without an id it is null.
pub fn encode_error(id: Option<&RequestId>, code: ErrorCode, text: &str) -> Bytes {
    encode_frame(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.number(), "message": text } }))
}

/// Encodes a notification, with the line end.
pub fn encode_notification(method: &str, params: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct Frame<'a, T> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a T,
    }
    encode_frame(&Frame { jsonrpc: "2.0", method, params })
}

/// Encodes a request, with the line end.
pub fn encode_request(id: &RequestId, method: &str, params: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct Frame<'a, T> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        method: &'a str,
        params: &'a T,
    }
    encode_frame(&Frame { jsonrpc: "2.0", id, method, params })
}

fn encode_frame(frame: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(frame).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{IncomingMessage, RequestId, encode_error, encode_result, parse_message};

    #[test]
    fn ids_are_numbers_from_zero_or_texts_and_come_back_as_they_were() {
        for id in [json!(0), json!(7), json!(-1), json!("a"), json!("0")] {
            let line = json!({ "jsonrpc": "2.0", "id": id, "method": "m", "params": { "a": 1 } }).to_string();
            let Ok(IncomingMessage::Request { id: read, method, params }) = parse_message(&line) else {
                panic!("{line}")
            };
            assert_eq!((method.as_str(), params), ("m", json!({ "a": 1 })));
            let reply: Value = serde_json::from_slice(&encode_result(&read, &json!({}))).unwrap();
            assert_eq!(reply, json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
        }
    }

    #[test]
    fn a_line_that_is_no_message_gets_an_error_that_says_why() {
        for (line, want) in [
            ("{", "-32700 null Parse error: EOF while parsing an object at line 1 column 1"),
            ("[]", "-32600 null Invalid request: batches are not supported"),
            ("7", "-32600 null Invalid request: expected a JSON object"),
            (r#"{"id":1,"method":"m"}"#, r#"-32600 1 Invalid request: jsonrpc: absent: expected "2.0""#),
            (
                r#"{"jsonrpc":"1.0","id":"x","method":"m"}"#,
                r#"-32600 "x" Invalid request: jsonrpc: "1.0": expected "2.0""#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
                "-32600 null Invalid request: id: null: expected a number or a text",
            ),
            (
                r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#,
                "-32600 null Invalid request: id: [1]: expected a number or a text",
            ),
            (r#"{"jsonrpc":"2.0","id":3,"method":4}"#, "-32600 3 Invalid request: method: 4: expected a text"),
            (r#"{"jsonrpc":"2.0"}"#, "-32600 null Invalid request: expected a method, or the id of a request"),
        ] {
            let fault = parse_message(line).unwrap_err();
            let reply: Value =
                serde_json::from_slice(&encode_error(fault.id.as_ref(), fault.code, &fault.text)).unwrap();
            let error = &reply["error"];
            let got = format!("{} {} {}", error["code"], reply["id"], error["message"].as_str().unwrap());
            assert_eq!(got, want, "{line}");
        }
    }

    #[test]
    fn replies_are_results_or_the_texts_of_errors() {
        for (line, want) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Ok(Value::Null)),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, Ok(json!({}))),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#, Err("no")),
            (r#"{"jsonrpc":"2.0","id":1,"error":7}"#, Err("7")),
            (r#"{"jsonrpc":"2.0","id":1}"#, Err("neither a result nor an error")),
        ] {
            let result = want.map_err(str::to_owned);
            assert_eq!(parse_message(line), Ok(IncomingMessage::Response { id: RequestId::from(1), result }), "{line}");
        }
    }
}
