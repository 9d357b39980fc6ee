//! Bodies of requests as types: unknown members are refused by name, and so is an empty text.
//!
//! This module must not know a route. Null counts as absent; a text is trimmed.

use std::fmt;

use axum::{
    Extension, RequestExt as _,
    extract::{FromRequest, Request},
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use countersign_conversations::chats::RequestKey;
use countersign_http::web::{BodyFields, HttpCaller};
use serde::{
    de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

use super::ApiError;

/// Longest idempotency key, in characters.
const LONGEST_KEY: usize = 200;
/// Member that a page without script sends in addition to those of a body.
const CSRF: &str = "csrf";

/// Body of a request to one of the routes.
pub(crate) trait RequestBody: DeserializeOwned + Send {
    /// Returns the error of `member` if it is missing, or has a value that its type does not take.
    fn invalid_member(member: &str) -> ApiError {
        ApiError::bad_request(format!("{member} is missing"))
    }
}

/// Request with a body: its caller, and its content.
pub(crate) struct ApiRequest<T> {
    /// Caller.
    pub(crate) caller: HttpCaller,
    /// Content.
    pub(crate) body: T,
    headers: HeaderMap,
    members: Map<String, Value>,
}

impl<T> ApiRequest<T> {
    /// Returns the key under which a repetition of this request has no effect of its own.
    ///
    /// # Errors
    /// A value that is no text, or empty, or too long.
    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, ApiError> {
        let Some(key) = self.headers.get("idempotency-key") else { return Ok(None) };
        let plain = key.to_str().ok().map(str::trim).filter(|key| (1..=LONGEST_KEY).contains(&key.len()));
        let wrong =
            || ApiError::bad_request(format!("invalid Idempotency-Key: expected 1 to {LONGEST_KEY} ASCII characters"));
        plain.map(Some).ok_or_else(wrong)
    }

    /// Returns the same key for conversations. `what` names the route.
    ///
    /// # Errors
    /// As [`ApiRequest::idempotency_key`].
    pub(crate) fn keyed_request(&self, what: &str) -> Result<Option<RequestKey>, ApiError> {
        Ok(self.idempotency_key()?.map(|key| RequestKey::new(&self.caller.principal, key, what, &self.members)))
    }
}

impl<S: Send + Sync, T: RequestBody> FromRequest<S> for ApiRequest<T> {
    type Rejection = Response;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Response> {
        let Extension(caller) =
            request.extract_parts::<Extension<HttpCaller>>().await.map_err(|none| none.into_response())?;
        let headers = request.headers().clone();
        let BodyFields(members) =
            BodyFields::from_request(request, state).await.map_err(|refused| refused.into_response())?;
        let body = read_body(&members).map_err(|failure| failure.into_response())?;
        Ok(Self { caller, body, headers, members })
    }
}

/// Reads the members of a body.
fn read_body<T: RequestBody>(members: &Map<String, Value>) -> Result<T, ApiError> {
    T::deserialize(BodyMembers(members)).map_err(|error| match error {
        BodyError::Unknown { name, known: [] } => {
            ApiError::bad_request(format!("unknown member {name:?}: expected no members"))
        }
        BodyError::Unknown { name, known } => {
            ApiError::bad_request(format!("unknown member {name:?}: expected one of {}", known.join(", ")))
        }
        BodyError::Member(member, MemberError::Unfit) => T::invalid_member(member),
        BodyError::Member(member, MemberError::NoText) => ApiError::bad_request(format!("{member} must be a string")),
        BodyError::Member(member, MemberError::Empty { is_optional: true }) => {
            ApiError::bad_request(format!("{member} is empty: leave it out, or give a text"))
        }
        BodyError::Member(member, MemberError::Empty { is_optional: false }) => {
            ApiError::bad_request(format!("{member} is empty: give a text"))
        }
        BodyError::Member(member, MemberError::NoObject) => {
            ApiError::bad_request(format!("{member} must be an object"))
        }
        BodyError::Member(member, MemberError::NoneOf { known, word }) => {
            ApiError::bad_request(format!("invalid {member} {word:?}: expected {}", join_choices(known)))
        }
    })
}

/// Joins the words, with "or" before the last.
fn join_choices(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [firsts @ .., last] => format!("{} or {last}", firsts.join(", ")),
    }
}

/// Reason why a body is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BodyError {
    /// Unknown member.
    Unknown { name: String, known: &'static [&'static str] },
    /// One of its members is invalid. The name is empty until the caller that knows it adds it.
    Member(&'static str, MemberError),
}

/// Reason why a member is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MemberError {
    /// Missing, or its type does not take its value.
    Unfit,
    NoText,
    Empty {
        is_optional: bool,
    },
    NoObject,
    /// Value that is none of the known words.
    NoneOf {
        known: &'static [&'static str],
        word: String,
    },
}

impl BodyError {
    fn with_member(self, member: &'static str) -> Self {
        match self {
            Self::Member(_, error) => Self::Member(member, error),
            unknown @ Self::Unknown { .. } => unknown,
        }
    }
}

impl From<MemberError> for BodyError {
    fn from(error: MemberError) -> Self {
        Self::Member("", error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid body: {self:?}")
    }
}

impl std::error::Error for BodyError {}

impl de::Error for BodyError {
    /// Errors of types and values come here too.
    fn custom<T: fmt::Display>(_: T) -> Self {
        MemberError::Unfit.into()
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        MemberError::NoneOf { known, word: word.to_owned() }.into()
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::Unknown { name: name.to_owned(), known }
    }

    fn missing_field(member: &'static str) -> Self {
        Self::Member(member, MemberError::Unfit)
    }
}

/// All members of a body.
struct BodyMembers<'a>(&'a Map<String, Value>);

impl<'de> Deserializer<'de> for BodyMembers<'_> {
    type Error = BodyError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BodyError> {
        Err(de::Error::invalid_type(de::Unexpected::Map, &visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, BodyError> {
        let is_known = |name: &str| known.contains(&name) || name == CSRF;
        if let Some(name) = self.0.keys().find(|name| !is_known(name)) {
            return Err(de::Error::unknown_field(name, known));
        }
        visitor.visit_map(OrderedMembers { members: self.0, names: known.iter(), next: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

/// Members that are present, in the order of the type, so that the first error is always the same.
struct OrderedMembers<'a> {
    members: &'a Map<String, Value>,
    names: std::slice::Iter<'static, &'static str>,
    next: Option<(&'static str, &'a Value)>,
}

impl<'de> MapAccess<'de> for OrderedMembers<'_> {
    type Error = BodyError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, BodyError> {
        let there = |name: &&'static str| Some((*name, self.members.get(*name).filter(|value| !value.is_null())?));
        self.next = self.names.find_map(there);
        self.next.map(|(name, _)| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, BodyError> {
        let (name, value) = self.next.take().ok_or(MemberError::Unfit)?;
        seed.deserialize(BodyMember { value, is_optional: false }).map_err(|error| error.with_member(name))
    }
}

/// Value of one member, which is not null.
struct BodyMember<'a> {
    value: &'a Value,
    /// True if the body may leave it out.
    is_optional: bool,
}

impl BodyMember<'_> {
    fn text_value(&self) -> Result<&str, BodyError> {
        match self.value.as_str().map(str::trim) {
            None => Err(MemberError::NoText.into()),
            Some("") => Err(MemberError::Empty { is_optional: self.is_optional }.into()),
            Some(text) => Ok(text),
        }
    }
}

impl<'de> Deserializer<'de> for BodyMember<'_> {
    type Error = BodyError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BodyError> {
        self.value.clone().deserialize_any(visitor).map_err(de::Error::custom)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BodyError> {
        visitor.visit_some(Self { is_optional: true, ..self })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, BodyError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BodyError> {
        visitor.visit_str(self.text_value()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BodyError> {
        visitor.visit_str(self.text_value()?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, BodyError> {
        visitor.visit_enum(self.text_value()?.into_deserializer())
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, BodyError> {
        if !self.value.is_object() {
            return Err(MemberError::NoObject.into());
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ApiError, read_body};
    use crate::wire::{
        gates::{AllowRequest, AnswerRequest, AnswerTexts, DenyRequest, GrantScope, GrantSeconds},
        policy::ExplainRequest,
        sessions::{BusyChoice, MessageRequest, OpenRequest, SteerRequest, StopRequest},
    };

    fn parse<T: super::RequestBody>(body: Value) -> Result<T, ApiError> {
        read_body(body.as_object().unwrap())
    }

    #[test]
    fn a_body_is_read_into_its_type() {
        let allow = AllowRequest {
            scope: Some(GrantScope::Session),
            rule: Some("turn(*)".to_owned()),
            lasts: Some(GrantSeconds(60)),
        };
        let body = json!({ "scope": " session ", "rule": " turn(*)\n", "lasts": 60, "csrf": "x" });
        assert_eq!(parse(body), Ok(allow));
        let nothing = AllowRequest { scope: None, rule: None, lasts: None };
        assert_eq!(parse(json!({ "scope": null, "rule": null, "lasts": null })), Ok(nothing));
        let answers = AnswerTexts(vec![" a ".to_owned(), "b".to_owned()]);
        assert_eq!(parse(json!({ "answers": [" a ", "b"] })), Ok(AnswerRequest { answers }));
        let message = MessageRequest { text: "hello".to_owned(), when_busy: Some(BusyChoice::Queue) };
        assert_eq!(parse(json!({ "text": "hello", "when_busy": "queue" })), Ok(message));
        let arguments = json!({ "a": " b ", "c": null }).as_object().cloned();
        let explain = ExplainRequest { tool: "turn".to_owned(), arguments: arguments.clone(), agent: None };
        assert_eq!(parse(json!({ "tool": "turn", "arguments": arguments })), Ok(explain));
        assert_eq!(parse(json!({})), Ok(StopRequest {}));
    }

    #[test]
    fn what_is_wrong_with_a_body_names_the_member_and_what_is_accepted() {
        fn describe_problem<T: super::RequestBody + std::fmt::Debug>(body: Value) -> String {
            let Err(ApiError(problem)) = parse::<T>(body.clone()) else { panic!("{body} is taken") };
            format!("{problem:?}").split('"').skip(1).collect::<Vec<_>>().join("\"")
        }
        for (message, want) in [
            (
                describe_problem::<AllowRequest>(json!({ "scop": "once", "lasts": 0 })),
                r#"unknown member \"scop\": expected one of scope, rule, lasts"#,
            ),
            (describe_problem::<StopRequest>(json!({ "now": true })), r#"unknown member \"now\": expected no members"#),
            (describe_problem::<AllowRequest>(json!({ "rule": 1, "scope": 1 })), "scope must be a string"),
            (describe_problem::<AllowRequest>(json!({ "scope": " " })), "scope is empty: leave it out, or give a text"),
            (
                describe_problem::<AllowRequest>(json!({ "scope": "forever" })),
                r#"invalid scope \"forever\": expected once, session or always"#,
            ),
            (describe_problem::<AllowRequest>(json!({ "rule": "" })), "rule is empty: leave it out, or give a text"),
            (
                describe_problem::<AllowRequest>(json!({ "lasts": "60" })),
                "lasts must be a number of seconds, at least 1",
            ),
            (describe_problem::<AllowRequest>(json!({ "lasts": 0 })), "lasts must be a number of seconds, at least 1"),
            (
                describe_problem::<AllowRequest>(json!({ "lasts": 1.5 })),
                "lasts must be a number of seconds, at least 1",
            ),
            (
                describe_problem::<AllowRequest>(json!({ "lasts": 3_153_600_001_u64 })),
                "lasts must be a number of seconds, at least 1",
            ),
            (describe_problem::<DenyRequest>(json!({ "reason": [] })), "reason must be a string"),
            (describe_problem::<AnswerRequest>(json!({})), "answers must be a list of texts, none of them empty"),
            (
                describe_problem::<AnswerRequest>(json!({ "answers": null })),
                "answers must be a list of texts, none of them empty",
            ),
            (
                describe_problem::<AnswerRequest>(json!({ "answers": "yes" })),
                "answers must be a list of texts, none of them empty",
            ),
            (
                describe_problem::<AnswerRequest>(json!({ "answers": [] })),
                "answers must be a list of texts, none of them empty",
            ),
            (
                describe_problem::<AnswerRequest>(json!({ "answers": ["a", " "] })),
                "answers must be a list of texts, none of them empty",
            ),
            (
                describe_problem::<AnswerRequest>(json!({ "answers": ["a", 1] })),
                "answers must be a list of texts, none of them empty",
            ),
            (describe_problem::<OpenRequest>(json!({ "model": {} })), "model must be a string"),
            (describe_problem::<MessageRequest>(json!({})), "text is missing: give the text of the message"),
            (
                describe_problem::<MessageRequest>(json!({ "text": null })),
                "text is missing: give the text of the message",
            ),
            (
                describe_problem::<MessageRequest>(json!({ "text": "x", "when_busy": "wait" })),
                r#"invalid when_busy \"wait\": expected refuse, queue or steer"#,
            ),
            (describe_problem::<SteerRequest>(json!({ "text": "\n" })), "text is empty: give a text"),
            (
                describe_problem::<ExplainRequest>(json!({ "arguments": {} })),
                "tool is missing: give the name of a tool",
            ),
            (
                describe_problem::<ExplainRequest>(json!({ "tool": "x", "arguments": [] })),
                "arguments must be an object",
            ),
        ] {
            assert!(message.starts_with(want), "{message} is not {want}");
        }
    }
}
