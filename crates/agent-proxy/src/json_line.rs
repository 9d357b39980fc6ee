//! Lines of JSON-RPC: their heads, and lines of our own.
//!
//! A line whose head two readers could understand differently is no message: it is not passed on.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

/// Error code for a line that is no JSON.
pub(crate) const PARSE_ERROR: i32 = -32700;
/// Error code for a message that is no request, notification or answer.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// Error code for wrong parameters.
pub(crate) const INVALID_PARAMS: i32 = -32602;
/// Error code for what failed here.
pub(crate) const INTERNAL_ERROR: i32 = -32603;
/// Error code for a call that was denied.
pub(crate) const DENIED: i32 = -32003;
/// Error code for a request that was cancelled.
pub(crate) const CANCELLED: i32 = -32800;

/// Id of a request: a number or a text, which are never the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestId(String);

impl RequestId {
    /// Creates an id of our own.
    pub(crate) fn own(text: &str) -> Self {
        Self(Value::from(text).to_string())
    }

    /// Reads a whole number or a text. Another number would not come back as it was written.
    pub(crate) fn from_value(id: &Value) -> Option<Self> {
        match id {
            Value::Number(number) if !number.is_f64() => Some(Self(id.to_string())),
            Value::String(_) => Some(Self(id.to_string())),
            _ => None,
        }
    }

    /// Returns the id as JSON.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Reports whether the id is a text that begins with `prefix`.
    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        self.0.strip_prefix('"').is_some_and(|text| text.starts_with(prefix))
    }
}

/// Kind of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Request {
        id: RequestId,
        method: String,
    },
    Notification {
        method: String,
    },
    /// Answer of either kind.
    Answer {
        id: RequestId,
    },
    /// Error without the id of a request.
    LooseError,
}

/// Message of one side.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: MessageKind,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// Reason why a line is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MalformedLine {
    pub(crate) code: i32,
    pub(crate) problem: String,
    /// Id of the request, if it can be read.
    pub(crate) id: Value,
}

/// Members at the top of a message.
#[derive(Default)]
struct LineHead<'a> {
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// Members that have a meaning.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

impl<'de> Deserialize<'de> for LineHead<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeadVisitor;

        impl<'de> Visitor<'de> for HeadVisitor {
            type Value = LineHead<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut head = LineHead::default();
                let mut seen = [false; MEMBERS.len()];
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    let Some(place) = MEMBERS.iter().position(|known| known.eq_ignore_ascii_case(&name)) else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    // Another reader may take the other one, or know no case.
                    if std::mem::replace(&mut seen[place], true) || *name != *MEMBERS[place] {
                        return Err(serde::de::Error::custom(format!("{} is there twice or misspelt", MEMBERS[place])));
                    }
                    match MEMBERS[place] {
                        "id" => head.id = Some(map.next_value()?),
                        "method" => head.method = Some(map.next_value()?),
                        "params" => head.params = Some(map.next_value()?),
                        "result" => head.result = Some(map.next_value()?),
                        "error" => head.error = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(head)
            }
        }

        deserializer.deserialize_map(HeadVisitor)
    }
}

impl<'a> Message<'a> {
    /// Reads the head of a line.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, MalformedLine> {
        let malformed = |code, problem: &str, id: Option<&RawValue>| MalformedLine {
            code,
            problem: problem.to_owned(),
            id: id.and_then(|id| serde_json::from_str(id.get()).ok()).unwrap_or_default(),
        };
        let head: LineHead<'a> = serde_json::from_slice(line).map_err(|error| {
            let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
            malformed(code, &format!("expected one JSON object in a line: {error}"), None)
        })?;
        let invalid = |problem: &str| malformed(INVALID_REQUEST, problem, head.id);
        let id = match head.id.map(RawValue::get) {
            None => None,
            Some("null") if head.error.is_some() && head.method.is_none() => None,
            Some(id) => {
                let id = serde_json::from_str(id).ok().and_then(|id| RequestId::from_value(&id));
                Some(id.ok_or_else(|| {
                    malformed(INVALID_REQUEST, "id: expected a whole number of at most 64 bits, or a text", None)
                })?)
            }
        };
        let is_answer = head.result.is_some() || head.error.is_some();
        let kind = match (head.method, id) {
            (Some(_), _) if is_answer => {
                return Err(invalid("expected a request or an answer, not both in one message"));
            }
            (Some(method), Some(id)) => MessageKind::Request { id, method: method.into_owned() },
            (Some(method), None) => MessageKind::Notification { method: method.into_owned() },
            (None, Some(id)) if is_answer => MessageKind::Answer { id },
            (None, None) if head.error.is_some() => MessageKind::LooseError,
            (None, _) => return Err(invalid("method: expected a text, or result or error for an answer")),
        };
        Ok(Self { kind, params: head.params, result: head.result, error: head.error })
    }

    /// Returns the parameters as text.
    pub(crate) fn raw_params(&self) -> &'a str {
        self.params.map_or("null", RawValue::get)
    }

    /// Returns the parameters, of which a name that is there twice has the last value.
    pub(crate) fn params(&self) -> Value {
        parse_value(self.params)
    }

    /// Returns the result, if it is an answer with one.
    pub(crate) fn result(&self) -> Option<Value> {
        self.error.is_none().then(|| parse_value(self.result))
    }

    /// Returns the error, if it is an answer with one.
    pub(crate) fn error(&self) -> Option<Value> {
        self.error.map(|error| parse_value(Some(error)))
    }
}

/// Returns a notice about a message without an id whose method is no notification that passes.
pub(crate) fn not_passed(sender: &str, method: &str) -> String {
    let method = shown_line(method.as_bytes());
    format!("a message of {sender} is not passed on: method {method}: expected an id, or the name of a notification")
}

/// Returns the beginning of a line for a notice.
pub(crate) fn shown_line(line: &[u8]) -> String {
    const MOST: usize = 200;
    String::from_utf8_lossy(&line[..line.len().min(MOST)]).trim_end().escape_debug().to_string()
}

fn parse_value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Form of the lines of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineForm {
    /// With the member `jsonrpc`.
    Marked,
    /// Without it.
    Bare,
}

impl LineForm {
    fn line(self, members: Value) -> Vec<u8> {
        let mut message = match self {
            Self::Marked => json!({ "jsonrpc": "2.0" }),
            Self::Bare => json!({}),
        };
        if let (Value::Object(message), Value::Object(members)) = (&mut message, members) {
            message.extend(members);
        }
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    pub(crate) fn request(self, id: &RequestId, method: &str, params: &Value) -> Vec<u8> {
        self.line(json!({ "id": id.to_value(), "method": method, "params": params }))
    }

    pub(crate) fn notification(self, method: &str, params: &Value) -> Vec<u8> {
        self.line(json!({ "method": method, "params": params }))
    }

    pub(crate) fn result(self, id: &RequestId, result: &Value) -> Vec<u8> {
        self.line(json!({ "id": id.to_value(), "result": result }))
    }

    pub(crate) fn error(self, id: &Value, code: i32, message: &str) -> Vec<u8> {
        self.line(json!({ "id": id, "error": { "code": code, "message": message } }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{INVALID_REQUEST, LineForm, Message, MessageKind, PARSE_ERROR, RequestId};

    fn id(value: serde_json::Value) -> RequestId {
        RequestId::from_value(&value).unwrap()
    }

    #[test]
    fn a_message_is_known_by_its_members() {
        for (line, want) in [
            (r#"{"jsonrpc":"2.0","id":0,"method":"a"}"#, MessageKind::Request { id: id(json!(0)), method: "a".into() }),
            (
                r#"{"id":"0","method":"a","params":{"id":7}}"#,
                MessageKind::Request { id: id(json!("0")), method: "a".into() },
            ),
            (r#"{"method":"a\/b"}"#, MessageKind::Notification { method: "a/b".into() }),
            (r#"{"id":0,"result":null}"#, MessageKind::Answer { id: id(json!(0)) }),
            (r#"{"id":"x","error":{}}"#, MessageKind::Answer { id: id(json!("x")) }),
            (r#"{"id":null,"error":{}}"#, MessageKind::LooseError),
        ] {
            assert_eq!(Message::parse(line.as_bytes()).unwrap().kind, want, "{line}");
        }
        assert_ne!(id(json!(0)), id(json!("0")));
        assert_eq!(id(serde_json::from_str(r#""\u0061""#).unwrap()), id(json!("a")));
    }

    #[test]
    fn a_line_that_two_readers_could_understand_differently_is_no_message() {
        for (line, code) in [
            (r#"{"id":1,"method":"a","method":"b"}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":"a","Method":"b"}"#, INVALID_REQUEST),
            (r#"{"id":1,"PARAMS":{},"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":1,"method":"a","result":{}}"#, INVALID_REQUEST),
            (r#"{"id":null,"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":[1],"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":1.5,"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":123456789012345678901234567890,"method":"a"}"#, INVALID_REQUEST),
            (r#"{"id":1}"#, INVALID_REQUEST),
            (r#"[{"id":1,"method":"a"}]"#, INVALID_REQUEST),
            ("17", INVALID_REQUEST),
            ("", PARSE_ERROR),
            ("Starting…", PARSE_ERROR),
            (r#"{"id":1,"method":"a"} {"id":2,"method":"b"}"#, PARSE_ERROR),
        ] {
            assert_eq!(Message::parse(line.as_bytes()).unwrap_err().code, code, "{line}");
        }
    }

    #[test]
    fn lines_of_our_own_have_the_form_of_their_protocol() {
        let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
        assert_eq!(
            text(LineForm::Marked.result(&id(json!(0)), &json!({}))),
            "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n"
        );
        assert_eq!(
            text(LineForm::Bare.error(&json!("a"), -1, "no")),
            "{\"id\":\"a\",\"error\":{\"code\":-1,\"message\":\"no\"}}\n"
        );
    }
}
