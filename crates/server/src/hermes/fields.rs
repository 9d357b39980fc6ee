//! Fields of requests, read strictly: a wrong type is an error that names the field and what it takes.

use std::collections::BTreeMap;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use countersign_core::id::SessionId;
use serde_json::Value;

use super::{chat, problem};
use crate::{chats::ChatError, web::Body};

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
        Self::new(chat::status_of(&error), error.to_string())
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
pub(super) fn session(body: &Body) -> Result<SessionId, Rejection> {
    match text(body, "session_id")? {
        Some(id) => Ok(SessionId::new(id)),
        None => Err(Rejection::bad("session_id is required")),
    }
}

/// A text under `name`, trimmed; `None` where it is absent, `null` or blank.
///
/// # Errors
/// The reply for any other value.
pub(super) fn text<'a>(body: &'a Body, name: &str) -> Result<Option<&'a str>, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(wrong(name, "a text")),
    }
}

/// Whether `name` is true, or what it is `otherwise`, where it is absent or `null`.
///
/// # Errors
/// The reply for anything but true or false.
pub(super) fn flag(body: &Body, name: &str, otherwise: bool) -> Result<bool, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(is)) => Ok(*is),
        Some(_) => Err(wrong(name, "true or false")),
    }
}

/// A number of things under `name`; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for anything but a whole number from 0 on.
pub(super) fn count(body: &Body, name: &str) -> Result<Option<usize>, Rejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(name, "a whole number from 0 on")),
        },
    }
}

fn wrong(name: &str, takes: &str) -> Rejection {
    Rejection::bad(format!("{name} must be {takes}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Body, Rejection, count, flag, session, text};

    fn refused<T>(read: Result<T, Rejection>) -> String {
        read.err().map(|rejection| rejection.text).unwrap_or_default()
    }

    #[test]
    fn a_field_of_a_wrong_type_is_named_with_what_it_takes() {
        let body = |value: Value| Body(value.as_object().unwrap().clone());
        for wrong in [json!(1), json!([]), json!({}), json!("x")] {
            let body = body(json!({ "f": wrong, "session_id": wrong }));
            let is_text = wrong.is_string();
            assert_eq!(refused(text(&body, "f")), if is_text { "" } else { "f must be a text" });
            assert_eq!(refused(session(&body)), if is_text { "" } else { "session_id must be a text" });
            assert_eq!(refused(flag(&body, "f", true)), "f must be true or false");
        }
        for wrong in [json!(-1), json!(1.5), json!("3"), json!(true)] {
            assert_eq!(refused(count(&body(json!({ "f": wrong })), "f")), "f must be a whole number from 0 on");
        }
        for empty in [json!({}), json!({ "f": null })] {
            let body = body(empty);
            assert_eq!((text(&body, "f"), count(&body, "f"), flag(&body, "f", true)), (Ok(None), Ok(None), Ok(true)));
            assert_eq!(refused(session(&body)), "session_id is required");
        }
        let body = body(json!({ "text": " a ", "blank": "  ", "count": 7, "flag": false }));
        assert_eq!((text(&body, "text"), text(&body, "blank")), (Ok(Some("a")), Ok(None)));
        assert_eq!((count(&body, "count"), flag(&body, "flag", true)), (Ok(Some(7)), Ok(false)));
    }
}
