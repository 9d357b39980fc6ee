//! Fields of requests, read strictly: a wrong type is an error that names the field and what it takes.

use std::collections::BTreeMap;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use countersign_conversations::chats::{ChatError, Models};
use countersign_core::{id::SessionId, session::ModelRef};
use countersign_http::web::BodyFields;
use serde_json::Value;

use super::problem;

/// How many values an error lists.
const MOST_LISTED: usize = 30;

/// A request that is refused, as its reply says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    status: StatusCode,
    text: String,
}

impl Rejection {
    /// With its status and the words for people.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Of a request that is wrong in itself.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Of something that is not there.
    pub(super) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// Of a session that is not there.
    pub(super) fn no_session() -> Self {
        Self::missing("Session not found")
    }
}

impl From<ChatError> for Rejection {
    fn from(error: ChatError) -> Self {
        Self::new(status_of(&error), error.to_string())
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        problem(self.status, self.text)
    }
}

/// The session that a query names.
///
/// # Errors
/// A query names none.
pub(super) fn session_in(asked: &BTreeMap<String, String>) -> Result<SessionId, Rejection> {
    match asked.get("session_id").map(|id| id.trim()).filter(|id| !id.is_empty()) {
        Some(id) => Ok(SessionId::new(id)),
        None => Err(Rejection::bad("session_id is required")),
    }
}

/// The session that a body names.
///
/// # Errors
/// The reply for a body that names none.
pub(super) fn session(body: &BodyFields) -> Result<SessionId, Rejection> {
    required(body, "session_id").map(SessionId::new)
}

/// A text under `name`, trimmed; `None` where it is absent, `null` or blank.
///
/// # Errors
/// The reply for any other value.
pub(super) fn text<'a>(body: &'a BodyFields, name: &str) -> Result<Option<&'a str>, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(wrong(name, "a text")),
    }
}

/// A text under `name` as it is; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for any other value.
pub(super) fn exact<'a>(body: &'a BodyFields, name: &str) -> Result<Option<&'a str>, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(name, "a text")),
    }
}

/// A text under `name`, trimmed.
///
/// # Errors
/// The reply where there is none, or another value.
pub(super) fn required<'a>(body: &'a BodyFields, name: &str) -> Result<&'a str, Rejection> {
    text(body, name)?.ok_or_else(|| Rejection::bad(format!("{name} is required")))
}

/// A list under `name`; empty where it is absent or `null`.
///
/// # Errors
/// The reply for any other value.
pub(super) fn list<'a>(body: &'a BodyFields, name: &str) -> Result<&'a [Value], Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(wrong(name, "a list")),
    }
}

/// The model that a body names with `model` and `model_provider`; `None` where it names none.
///
/// A model that the named provider does not have is the one of another provider: clients keep a provider from before.
///
/// # Errors
/// The reply for a provider or a model that is not there, with those that are.
pub(super) fn model(body: &BodyFields, models: &Models) -> Result<Option<ModelRef>, Rejection> {
    let (provider, id) = (text(body, "model_provider")?, text(body, "model")?);
    let entries = || models.entries();
    if let Some(provider) = provider
        && entries().all(|entry| entry.provider != provider)
    {
        let mut providers: Vec<&str> = entries().map(|entry| entry.provider.as_str()).collect();
        providers.dedup();
        return Err(unknown("model_provider", providers.into_iter().map(str::to_owned), provider));
    }
    let Some(id) = id else { return Ok(None) };
    match models.find(provider, id).or_else(|| models.find(None, id)) {
        Some(model) => Ok(Some(model)),
        None => Err(unknown("model", entries().map(|entry| format!("{}/{}", entry.provider, entry.id)), id)),
    }
}

/// Whether `name` is true, or what it is `otherwise`, where it is absent or `null`.
///
/// # Errors
/// The reply for anything but true or false.
pub(super) fn flag(body: &BodyFields, name: &str, otherwise: bool) -> Result<bool, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(is)) => Ok(*is),
        Some(_) => Err(wrong(name, "true or false")),
    }
}

/// Whether `name` is true, in JSON or in a form; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for any other value.
pub(super) fn switch(body: &BodyFields, name: &str) -> Result<Option<bool>, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(is)) => Ok(Some(*is)),
        // A form has texts only.
        Some(Value::String(text)) if matches!(text.as_str(), "true" | "on" | "1") => Ok(Some(true)),
        Some(Value::String(text)) if matches!(text.as_str(), "false" | "off" | "0") => Ok(Some(false)),
        Some(_) => Err(wrong(name, "true or false")),
    }
}

/// Rejects a `null` under `name`, whose absence means true: no client can mean that by it.
///
/// # Errors
/// The reply for `null`.
pub(super) fn not_null(body: &BodyFields, name: &str) -> Result<(), Rejection> {
    match body.0.get(name) {
        Some(Value::Null) => Err(wrong(name, "true or false")),
        _ => Ok(()),
    }
}

/// A number of things that a query has under `name`; `None` where it is absent or empty.
///
/// # Errors
/// The reply for anything but a whole number from 0 on.
pub(super) fn count_in(asked: &BTreeMap<String, String>, name: &str) -> Result<Option<usize>, Rejection> {
    match asked.get(name).map(|value| value.trim()).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value.parse().map(Some).map_err(|_| wrong(name, "a whole number from 0 on")),
    }
}

/// Whether a query has `name` set, or what it is `otherwise`, where it is absent or empty.
///
/// # Errors
/// The reply for anything but 0, 1, false and true.
pub(super) fn flag_in(asked: &BTreeMap<String, String>, name: &str, otherwise: bool) -> Result<bool, Rejection> {
    match asked.get(name).map_or("", |value| value.trim()) {
        "" => Ok(otherwise),
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(Rejection::bad(format!("{name} must be 0 or 1, not {other}"))),
    }
}

/// A number of things under `name`; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for anything but a whole number from 0 on.
pub(super) fn count(body: &BodyFields, name: &str) -> Result<Option<usize>, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(name, "a whole number from 0 on")),
        },
    }
}

fn unknown(name: &str, known: impl Iterator<Item = String>, value: &str) -> Rejection {
    let known: Vec<String> = known.collect();
    let listed = known.iter().take(MOST_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match known.len().saturating_sub(MOST_LISTED) {
        0 => String::new(),
        left_out => format!(" or {left_out} more"),
    };
    Rejection::bad(format!("{name} must be one of {listed}{more}, not {value}"))
}

fn wrong(name: &str, takes: &str) -> Rejection {
    Rejection::bad(format!("{name} must be {takes}"))
}

/// The status of the reply to something that could not be said.
const fn status_of(error: &ChatError) -> StatusCode {
    match error {
        ChatError::Unknown => StatusCode::NOT_FOUND,
        ChatError::NotOurs => StatusCode::FORBIDDEN,
        ChatError::Busy | ChatError::KeyTaken => StatusCode::CONFLICT,
        ChatError::Invalid(_) => StatusCode::BAD_REQUEST,
        ChatError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::{
        BodyFields, MOST_LISTED, Rejection, count, count_in, exact, flag, flag_in, list, not_null, required, session,
        switch, text, unknown,
    };

    fn refused<T>(read: Result<T, Rejection>) -> String {
        read.err().map(|rejection| rejection.text).unwrap_or_default()
    }

    #[test]
    fn a_field_of_a_wrong_type_is_named_with_what_it_takes() {
        let body = |value: Value| BodyFields(value.as_object().unwrap().clone());
        for wrong in [json!(1), json!([]), json!({}), json!("x")] {
            let body = body(json!({ "f": wrong, "session_id": wrong }));
            let is_text = wrong.is_string();
            assert_eq!(refused(text(&body, "f")), if is_text { "" } else { "f must be a text" });
            assert_eq!(refused(session(&body)), if is_text { "" } else { "session_id must be a text" });
            assert_eq!(refused(exact(&body, "f")), if is_text { "" } else { "f must be a text" });
            assert_eq!(refused(flag(&body, "f", true)), "f must be true or false");
            assert_eq!(refused(switch(&body, "f")), "f must be true or false");
            assert_eq!(refused(list(&body, "f")), if wrong.is_array() { "" } else { "f must be a list" });
        }
        for wrong in [json!(-1), json!(1.5), json!("3"), json!(true)] {
            assert_eq!(refused(count(&body(json!({ "f": wrong })), "f")), "f must be a whole number from 0 on");
        }
        for empty in [json!({}), json!({ "f": null })] {
            let body = body(empty);
            assert_eq!((text(&body, "f"), count(&body, "f"), flag(&body, "f", true)), (Ok(None), Ok(None), Ok(true)));
            assert_eq!((exact(&body, "f"), switch(&body, "f"), list(&body, "f")), (Ok(None), Ok(None), Ok(&[][..])));
            assert_eq!(refused(session(&body)), "session_id is required");
            assert_eq!(refused(required(&body, "f")), "f is required");
        }
        let body = body(
            json!({ "text": " a ", "blank": "  ", "count": 7, "flag": false, "on": "on", "off": "0", "null": null }),
        );
        assert_eq!((exact(&body, "text"), required(&body, "text")), (Ok(Some(" a ")), Ok("a")));
        assert_eq!(
            (switch(&body, "on"), switch(&body, "off"), switch(&body, "flag")),
            (Ok(Some(true)), Ok(Some(false)), Ok(Some(false)))
        );
        assert_eq!(
            (refused(not_null(&body, "null")), not_null(&body, "f")),
            ("null must be true or false".to_owned(), Ok(()))
        );
        assert_eq!((text(&body, "text"), text(&body, "blank")), (Ok(Some("a")), Ok(None)));
        assert_eq!((count(&body, "count"), flag(&body, "flag", true)), (Ok(Some(7)), Ok(false)));
    }

    #[test]
    fn a_parameter_of_an_address_is_read_as_strictly() {
        let asked = |value: &str| BTreeMap::from([("p".to_owned(), value.to_owned())]);
        for wrong in ["x", "-1", "1.5", "yes"] {
            assert_eq!(refused(count_in(&asked(wrong), "p")), "p must be a whole number from 0 on");
            assert_eq!(refused(flag_in(&asked(wrong), "p", true)), format!("p must be 0 or 1, not {wrong}"));
        }
        for none in [asked(" "), BTreeMap::new()] {
            assert_eq!((count_in(&none, "p"), flag_in(&none, "p", true)), (Ok(None), Ok(true)));
        }
        assert_eq!((count_in(&asked("30"), "p"), flag_in(&asked("0"), "p", true)), (Ok(Some(30)), Ok(false)));
    }

    #[test]
    fn an_unknown_value_is_told_with_those_that_are_known() {
        let told = |known: usize| unknown("f", (0..known).map(|number| format!("v{number}")), "x").text;
        assert_eq!(told(2), "f must be one of v0, v1, not x");
        assert!(told(MOST_LISTED + 3).ends_with("v29 or 3 more, not x"), "{}", told(MOST_LISTED + 3));
    }
}
