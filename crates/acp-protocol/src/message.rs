//! Frames of JSON-RPC 2.0, one a line.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
    ser::Error as _,
};
use serde_json::{Value, json, value::RawValue};

/// Id of a request: a number or a text. Null is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestId {
    /// A number, as it was written.
    Number(String),
    /// A text.
    Text(String),
}

impl RequestId {
    /// Returns the value as an id, if it can be one.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self::Number(number.to_string())),
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns the number that it is, if it is a whole one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.parse().ok(),
            Self::Text(_) => None,
        }
    }
}

impl From<u64> for RequestId {
    fn from(number: u64) -> Self {
        Self::Number(number.to_string())
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => {
                RawValue::from_string(number.clone()).map_err(S::Error::custom)?.serialize(serializer)
            }
            Self::Text(text) => text.serialize(serializer),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => f.write_str(number),
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

/// Members of a message that have a meaning.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Members at the top of a message.
#[derive(Default)]
struct LineHead<'a> {
    members: [Option<&'a RawValue>; MEMBERS.len()],
    /// Member that is there twice, with its later value.
    repeated: Option<(&'static str, &'a RawValue)>,
}

impl<'a> LineHead<'a> {
    fn member(&self, name: &str) -> Option<&'a RawValue> {
        MEMBERS.iter().zip(self.members).find_map(|(known, value)| value.filter(|_| *known == name))
    }
}

impl<'de> Deserialize<'de> for LineHead<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeadVisitor;

        impl<'de> Visitor<'de> for HeadVisitor {
            type Value = LineHead<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut head = LineHead::default();
                while let Some(name) = map.next_key::<String>()? {
                    match MEMBERS.iter().position(|known| *known == name) {
                        None => drop(map.next_value::<IgnoredAny>()?),
                        Some(place) => {
                            let value = map.next_value()?;
                            if head.members[place].replace(value).is_some() {
                                head.repeated = head.repeated.or(Some((MEMBERS[place], value)));
                            }
                        }
                    }
                }
                Ok(head)
            }
        }

        deserializer.deserialize_map(HeadVisitor)
    }
}

/// Reads a line.
///
/// # Errors
/// [`MessageFault`] with the reply that it gets.
pub fn parse_message(line: &str) -> Result<IncomingMessage, MessageFault> {
    let head: LineHead<'_> = serde_json::from_str(line).map_err(|error| match error.is_data() {
        true if line.trim_start().starts_with('[') => {
            MessageFault::invalid(None, "Invalid request: batches are not supported")
        }
        true => MessageFault::invalid(None, "Invalid request: expected a JSON object"),
        false => MessageFault { id: None, code: ErrorCode::Parse, text: format!("Parse error: {error}") },
    })?;
    let id = head.member("id").map(read_id).transpose();
    let known_id = || id.as_ref().ok().cloned().flatten();
    if let Some((name, value)) = head.repeated {
        // Another reader may take the other value. Of two ids neither is the one to answer.
        let id = if name == "id" { None } else { known_id() };
        let text =
            format!("Invalid request: {name}: {}: expected it once, but it is repeated", brief_text(value.get()));
        return Err(MessageFault::invalid(id, text));
    }
    match head.member("jsonrpc").map(RawValue::get) {
        Some(version) if serde_json::from_str(version).is_ok_and(|version: String| version == "2.0") => {}
        found => {
            let found = found.map_or_else(|| "absent".to_owned(), brief_text);
            let text = format!("Invalid request: jsonrpc: {found}: expected \"2.0\"");
            return Err(MessageFault::invalid(known_id(), text));
        }
    }
    let id = id?;
    let Some(method) = head.member("method") else { return read_response(id, &head) };
    match serde_json::from_str::<String>(method.get()) {
        Ok(method) => {
            let params = read_params(id.as_ref(), head.member("params"))?;
            Ok(match id {
                Some(id) => IncomingMessage::Request { id, method, params },
                None => IncomingMessage::Notification { method, params },
            })
        }
        Err(_) => {
            let given = brief_text(method.get());
            Err(MessageFault::invalid(id, format!("Invalid request: method: {given}: expected a text")))
        }
    }
}

/// Reads an id. A number that does not fit into 64 bits could not be found again under the same value.
fn read_id(raw: &RawValue) -> Result<RequestId, MessageFault> {
    let given = raw.get();
    match serde_json::from_str(given) {
        Ok(Value::String(text)) => Ok(RequestId::Text(text)),
        Ok(Value::Number(_)) if given.parse::<i64>().is_ok() || given.parse::<u64>().is_ok() => {
            Ok(RequestId::Number(given.to_owned()))
        }
        Ok(Value::Number(_)) => {
            let text = format!(
                "Invalid request: id: {}: expected a text, or a whole number of at most 64 bits",
                brief_text(given)
            );
            Err(MessageFault::invalid(Some(RequestId::Number(given.to_owned())), text))
        }
        Ok(_) | Err(_) => {
            let given = brief_text(given);
            Err(MessageFault::invalid(None, format!("Invalid request: id: {given}: expected a number or a text")))
        }
    }
}

/// Reads parameters: an object. Absent and null ones are an empty object.
fn read_params(id: Option<&RequestId>, raw: Option<&RawValue>) -> Result<Value, MessageFault> {
    let fault = |problem: String| MessageFault {
        id: id.cloned(),
        code: ErrorCode::InvalidParams,
        text: format!("Invalid params: params: {problem}"),
    };
    match raw.map(|raw| serde_json::from_str(raw.get())) {
        None | Some(Ok(Value::Null)) => Ok(json!({})),
        Some(Ok(params @ Value::Object(_))) => Ok(params),
        Some(Ok(other)) => Err(fault(format!("{}: expected an object", brief_json(&other)))),
        Some(Err(error)) => Err(fault(error.to_string())),
    }
}

fn read_response(id: Option<RequestId>, head: &LineHead<'_>) -> Result<IncomingMessage, MessageFault> {
    let Some(id) = id else {
        return Err(MessageFault::invalid(None, "Invalid request: expected a method, or the id of a request"));
    };
    let read = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).map_err(|error| error.to_string());
    let result = match head.member("error").map(read) {
        Some(Err(problem)) => Err(problem),
        Some(Ok(error)) if !error.is_null() => {
            Err(error.get("message").and_then(Value::as_str).map_or_else(|| brief_json(&error), str::to_owned))
        }
        None | Some(Ok(_)) => match head.member("result") {
            Some(result) => read(result),
            // Nothing is gained by an error about a reply.
            None => Err("neither a result nor an error".to_owned()),
        },
    };
    Ok(IncomingMessage::Response { id, result })
}

/// Returns a value as JSON, cut if it is long.
pub(super) fn brief_json(value: &Value) -> String {
    brief_text(&value.to_string())
}

fn brief_text(text: &str) -> String {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Encodes the result of a request, with the line end.
pub fn encode_result(id: &RequestId, result: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct ResultFrame<'a, T> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        result: &'a T,
    }
    encode_frame(&ResultFrame { jsonrpc: "2.0", id, result })
}

/// Encodes the error of a request, with the line end. Without an id it is null.
pub fn encode_error(id: Option<&RequestId>, code: ErrorCode, text: &str) -> Bytes {
    #[derive(Serialize)]
    struct ErrorFrame<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RequestId>,
        error: Value,
    }
    encode_frame(&ErrorFrame { jsonrpc: "2.0", id, error: json!({ "code": code.number(), "message": text }) })
}

/// Encodes a notification, with the line end.
pub fn encode_notification(method: &str, params: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct NotificationFrame<'a, T> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a T,
    }
    encode_frame(&NotificationFrame { jsonrpc: "2.0", method, params })
}

/// Encodes a request, with the line end.
pub fn encode_request(id: &RequestId, method: &str, params: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct RequestFrame<'a, T> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        method: &'a str,
        params: &'a T,
    }
    encode_frame(&RequestFrame { jsonrpc: "2.0", id, method, params })
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
        for id in [json!(0), json!(7), json!(-1), json!(u64::MAX), json!(i64::MIN), json!("a"), json!("0")] {
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
            (
                r#"{"jsonrpc":"2.0","id":5,"method":"a","method":"b"}"#,
                r#"-32600 5 Invalid request: method: "b": expected it once, but it is repeated"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":5,"id":6,"method":"a"}"#,
                "-32600 null Invalid request: id: 6: expected it once, but it is repeated",
            ),
            (
                r#"{"jsonrpc":"2.0","id":5,"method":"a","params":{},"params":{"a":1}}"#,
                r#"-32600 5 Invalid request: params: {"a":1}: expected it once, but it is repeated"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":5,"result":1,"\u0072esult":2}"#,
                "-32600 5 Invalid request: result: 2: expected it once, but it is repeated",
            ),
            (
                r#"{"jsonrpc":"2.0","id":6,"method":"a","params":[1]}"#,
                "-32602 6 Invalid params: params: [1]: expected an object",
            ),
            (
                r#"{"jsonrpc":"2.0","id":6,"method":"a","params":"x"}"#,
                r#"-32602 6 Invalid params: params: "x": expected an object"#,
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
    fn a_number_that_is_no_id_is_refused_under_the_number_itself() {
        for id in
            ["123456789012345678901234567890", "18446744073709551616", "-9223372036854775809", "1.5", "1.0", "1e3"]
        {
            let fault = parse_message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).unwrap_err();
            let reply = encode_error(fault.id.as_ref(), fault.code, &fault.text);
            let want = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"Invalid request: id: {id}: expected a text, or a whole number of at most 64 bits"}}}}"#
            );
            assert_eq!(String::from_utf8(reply.to_vec()).unwrap(), want + "\n");
        }
    }

    #[test]
    fn absent_and_null_parameters_are_an_empty_object() {
        for line in [r#"{"jsonrpc":"2.0","method":"m"}"#, r#"{"jsonrpc":"2.0","method":"m","params":null}"#] {
            let want = IncomingMessage::Notification { method: "m".to_owned(), params: json!({}) };
            assert_eq!(parse_message(line), Ok(want), "{line}");
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
