//! Fields of requests, read strictly: a wrong type is an error that names the field and what it takes.

use std::collections::BTreeMap;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use countersign_conversations::chats::{ChatError, GatewayModels};
use countersign_core::{id::SessionId, session::ModelRef};
use countersign_http::web::BodyFields;
use serde_json::Value;

use super::problem;

/// Most values that an error lists.
const MOST_LISTED: usize = 30;

/// Refusal of a request, with its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestRejection {
    status: StatusCode,
    text: String,
}

impl RequestRejection {
    /// Creates one with its status and the text for users.
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Creates the refusal of an invalid request.
    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Creates the refusal for a missing thing.
    pub(super) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// Creates the refusal for a missing session.
    pub(super) fn no_session() -> Self {
        Self::missing("Session not found")
    }
}

impl From<ChatError> for RequestRejection {
    fn from(error: ChatError) -> Self {
        Self::new(status_of(&error), error.to_string())
    }
}

impl IntoResponse for RequestRejection {
    fn into_response(self) -> Response {
        problem(self.status, self.text)
    }
}

/// Returns the session that a query names.
///
/// # Errors
/// The query names none.
pub(super) fn session_in(params: &BTreeMap<String, String>) -> Result<SessionId, RequestRejection> {
    match params.get("session_id").map(|id| id.trim()).filter(|id| !id.is_empty()) {
        Some(id) => Ok(SessionId::new(id)),
        None => Err(RequestRejection::bad("session_id is required")),
    }
}

/// Returns the session that a body names.
///
/// # Errors
/// The reply for a body that names none.
pub(super) fn session_field(body: &BodyFields) -> Result<SessionId, RequestRejection> {
    required_text(body, "session_id").map(SessionId::new)
}

/// Returns a text under `name`, trimmed; `None` where it is absent, `null` or blank.
///
/// # Errors
/// The reply for any other value.
pub(super) fn text_field<'a>(body: &'a BodyFields, name: &str) -> Result<Option<&'a str>, RequestRejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(wrong_type(name, "a text")),
    }
}

/// Returns a text under `name` as it is; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for any other value.
pub(super) fn exact_text<'a>(body: &'a BodyFields, name: &str) -> Result<Option<&'a str>, RequestRejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong_type(name, "a text")),
    }
}

/// Returns a text under `name`, trimmed.
///
/// # Errors
/// The reply where there is none, or another value.
pub(super) fn required_text<'a>(body: &'a BodyFields, name: &str) -> Result<&'a str, RequestRejection> {
    text_field(body, name)?.ok_or_else(|| RequestRejection::bad(format!("{name} is required")))
}

/// Returns a list under `name`; empty where it is absent or `null`.
///
/// # Errors
/// The reply for any other value.
pub(super) fn list_field<'a>(body: &'a BodyFields, name: &str) -> Result<&'a [Value], RequestRejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(wrong_type(name, "a list")),
    }
}

/// Returns the model that a body names with `model` and `model_provider`; `None` where it names none.
///
/// A model that the named provider does not have is that of another provider: clients keep a provider from before.
///
/// # Errors
/// The reply for an unknown provider or model, with the known ones.
pub(super) fn model_field(body: &BodyFields, models: &GatewayModels) -> Result<Option<ModelRef>, RequestRejection> {
    let (provider, id) = (text_field(body, "model_provider")?, text_field(body, "model")?);
    let entries = || models.entries();
    if let Some(provider) = provider
        && entries().all(|entry| entry.provider != provider)
    {
        let mut providers: Vec<&str> = entries().map(|entry| entry.provider.as_str()).collect();
        providers.dedup();
        return Err(unknown_value("model_provider", providers.into_iter().map(str::to_owned), provider));
    }
    let Some(id) = id else { return Ok(None) };
    match models.find_model(provider, id).or_else(|| models.find_model(None, id)) {
        Some(model) => Ok(Some(model)),
        None => Err(unknown_value("model", entries().map(|entry| format!("{}/{}", entry.provider, entry.id)), id)),
    }
}

/// Returns the flag `name`, or `otherwise` where it is absent or `null`.
///
/// # Errors
/// The reply for anything but true or false.
pub(super) fn flag_field(body: &BodyFields, name: &str, otherwise: bool) -> Result<bool, RequestRejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(is)) => Ok(*is),
        Some(_) => Err(wrong_type(name, "true or false")),
    }
}

/// Returns the flag `name`, from JSON or a form; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for any other value.
pub(super) fn switch_field(body: &BodyFields, name: &str) -> Result<Option<bool>, RequestRejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(is)) => Ok(Some(*is)),
        // A form has texts only.
        Some(Value::String(text)) if matches!(text.as_str(), "true" | "on" | "1") => Ok(Some(true)),
        Some(Value::String(text)) if matches!(text.as_str(), "false" | "off" | "0") => Ok(Some(false)),
        Some(_) => Err(wrong_type(name, "true or false")),
    }
}

/// Rejects a `null` under `name`, whose absence means true: no client can mean that by it.
///
/// # Errors
/// The reply for `null`.
pub(super) fn not_null(body: &BodyFields, name: &str) -> Result<(), RequestRejection> {
    match body.0.get(name) {
        Some(Value::Null) => Err(wrong_type(name, "true or false")),
        _ => Ok(()),
    }
}

/// Returns a count that a query has under `name`; `None` where it is absent or empty.
///
/// # Errors
/// The reply for anything but a whole number from 0 on.
pub(super) fn count_in(params: &BTreeMap<String, String>, name: &str) -> Result<Option<usize>, RequestRejection> {
    match params.get(name).map(|value| value.trim()).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => value.parse().map(Some).map_err(|_| wrong_type(name, "a whole number from 0 on")),
    }
}

/// Returns the flag `name` of a query, or `otherwise` where it is absent or empty.
///
/// # Errors
/// The reply for anything but 0, 1, false and true.
pub(super) fn flag_in(
    params: &BTreeMap<String, String>,
    name: &str,
    otherwise: bool,
) -> Result<bool, RequestRejection> {
    match params.get(name).map_or("", |value| value.trim()) {
        "" => Ok(otherwise),
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(RequestRejection::bad(format!("{name} must be 0 or 1, not {other}"))),
    }
}

/// Returns a count under `name`; `None` where it is absent or `null`.
///
/// # Errors
/// The reply for anything but a whole number from 0 on.
pub(super) fn count_field(body: &BodyFields, name: &str) -> Result<Option<usize>, RequestRejection> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(wrong_type(name, "a whole number from 0 on")),
        },
    }
}

fn unknown_value(name: &str, known: impl Iterator<Item = String>, value: &str) -> RequestRejection {
    let known: Vec<String> = known.collect();
    let listed = known.iter().take(MOST_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match known.len().saturating_sub(MOST_LISTED) {
        0 => String::new(),
        left_out => format!(" or {left_out} more"),
    };
    RequestRejection::bad(format!("{name} must be one of {listed}{more}, not {value}"))
}

fn wrong_type(name: &str, takes: &str) -> RequestRejection {
    RequestRejection::bad(format!("{name} must be {takes}"))
}

/// Returns the status of the reply to a message that was refused.
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
        BodyFields, MOST_LISTED, RequestRejection, count_field, count_in, exact_text, flag_field, flag_in, list_field,
        not_null, required_text, session_field, switch_field, text_field, unknown_value,
    };

    fn refused<T>(read: Result<T, RequestRejection>) -> String {
        read.err().map(|rejection| rejection.text).unwrap_or_default()
    }

    #[test]
    fn a_field_of_a_wrong_type_is_named_with_what_it_takes() {
        let body = |value: Value| BodyFields(value.as_object().unwrap().clone());
        for wrong in [json!(1), json!([]), json!({}), json!("x")] {
            let body = body(json!({ "f": wrong, "session_id": wrong }));
            let is_text = wrong.is_string();
            assert_eq!(refused(text_field(&body, "f")), if is_text { "" } else { "f must be a text" });
            assert_eq!(refused(session_field(&body)), if is_text { "" } else { "session_id must be a text" });
            assert_eq!(refused(exact_text(&body, "f")), if is_text { "" } else { "f must be a text" });
            assert_eq!(refused(flag_field(&body, "f", true)), "f must be true or false");
            assert_eq!(refused(switch_field(&body, "f")), "f must be true or false");
            assert_eq!(refused(list_field(&body, "f")), if wrong.is_array() { "" } else { "f must be a list" });
        }
        for wrong in [json!(-1), json!(1.5), json!("3"), json!(true)] {
            assert_eq!(refused(count_field(&body(json!({ "f": wrong })), "f")), "f must be a whole number from 0 on");
        }
        for empty in [json!({}), json!({ "f": null })] {
            let body = body(empty);
            assert_eq!(
                (text_field(&body, "f"), count_field(&body, "f"), flag_field(&body, "f", true)),
                (Ok(None), Ok(None), Ok(true))
            );
            assert_eq!(
                (exact_text(&body, "f"), switch_field(&body, "f"), list_field(&body, "f")),
                (Ok(None), Ok(None), Ok(&[][..]))
            );
            assert_eq!(refused(session_field(&body)), "session_id is required");
            assert_eq!(refused(required_text(&body, "f")), "f is required");
        }
        let body = body(
            json!({ "text": " a ", "blank": "  ", "count": 7, "flag": false, "on": "on", "off": "0", "null": null }),
        );
        assert_eq!((exact_text(&body, "text"), required_text(&body, "text")), (Ok(Some(" a ")), Ok("a")));
        assert_eq!(
            (switch_field(&body, "on"), switch_field(&body, "off"), switch_field(&body, "flag")),
            (Ok(Some(true)), Ok(Some(false)), Ok(Some(false)))
        );
        assert_eq!(
            (refused(not_null(&body, "null")), not_null(&body, "f")),
            ("null must be true or false".to_owned(), Ok(()))
        );
        assert_eq!((text_field(&body, "text"), text_field(&body, "blank")), (Ok(Some("a")), Ok(None)));
        assert_eq!((count_field(&body, "count"), flag_field(&body, "flag", true)), (Ok(Some(7)), Ok(false)));
    }

    #[test]
    fn a_parameter_of_an_address_is_read_as_strictly() {
        let params_with = |value: &str| BTreeMap::from([("p".to_owned(), value.to_owned())]);
        for wrong in ["x", "-1", "1.5", "yes"] {
            assert_eq!(refused(count_in(&params_with(wrong), "p")), "p must be a whole number from 0 on");
            assert_eq!(refused(flag_in(&params_with(wrong), "p", true)), format!("p must be 0 or 1, not {wrong}"));
        }
        for none in [params_with(" "), BTreeMap::new()] {
            assert_eq!((count_in(&none, "p"), flag_in(&none, "p", true)), (Ok(None), Ok(true)));
        }
        assert_eq!(
            (count_in(&params_with("30"), "p"), flag_in(&params_with("0"), "p", true)),
            (Ok(Some(30)), Ok(false))
        );
    }

    #[test]
    fn an_error_for_an_unknown_value_lists_the_known_ones() {
        let message_for = |known: usize| unknown_value("f", (0..known).map(|number| format!("v{number}")), "x").text;
        assert_eq!(message_for(2), "f must be one of v0, v1, not x");
        assert!(message_for(MOST_LISTED + 3).ends_with("v29 or 3 more, not x"), "{}", message_for(MOST_LISTED + 3));
    }
}
