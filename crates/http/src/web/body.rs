//! Bodies of requests: JSON objects and forms, of bounded size, in bounded time.

use std::time::Duration;

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
    http::{StatusCode, header},
    response::Response,
};
use serde_json::{Map, Value};

use crate::reply::HttpProblem;

/// Largest body, in bytes.
const LARGEST: usize = 4 << 20;
/// Time limit of receiving it.
const PATIENCE: Duration = Duration::from_secs(20);

/// The fields of a body: a JSON object, or a form whose values are texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyFields(pub Map<String, Value>);

/// Reason why a body was not taken. The request had no effect.
#[derive(Clone, Debug)]
pub struct BodyRejection {
    path: String,
    problem: HttpProblem,
}

impl axum::response::IntoResponse for BodyRejection {
    fn into_response(self) -> Response {
        self.problem.response_for(&self.path)
    }
}

impl BodyFields {
    /// Returns the text under `name`, trimmed; `None` if it is absent, `null`, empty or no text.
    pub fn text_field(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Reports whether `name` is true: JSON's `true`, or the value of a ticked box.
    pub fn is_set(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::Bool(is)) => *is,
            Some(Value::String(text)) => matches!(text.as_str(), "true" | "on" | "1"),
            _ => false,
        }
    }
}

impl<S: Send + Sync> FromRequest<S> for BodyFields {
    type Rejection = BodyRejection;

    async fn from_request(request: Request, _: &S) -> Result<Self, BodyRejection> {
        let path = request.uri().path().to_owned();
        let refused =
            |status, text: String| BodyRejection { path: path.clone(), problem: HttpProblem::new(status, text) };
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_form = kind.starts_with("application/x-www-form-urlencoded");
        let reading = to_bytes(request.into_body(), LARGEST);
        let bytes = match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                return Err(if is_over_limit(&error) {
                    refused(StatusCode::PAYLOAD_TOO_LARGE, format!("Request body is larger than {LARGEST} bytes"))
                } else {
                    refused(StatusCode::BAD_REQUEST, "Request body broke off".to_owned())
                });
            }
            Err(_) => return Err(refused(StatusCode::REQUEST_TIMEOUT, "Request body took too long".to_owned())),
        };
        parse_fields(&bytes, is_form).map(Self).map_err(|(status, text)| refused(status, text))
    }
}

/// Reports whether reading a body ended because it had more bytes than the limit.
pub fn is_over_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}

/// Parses the fields of `bytes`, or returns the reason why they have none.
fn parse_fields(bytes: &[u8], is_form: bool) -> Result<Map<String, Value>, (StatusCode, String)> {
    // curl labels it a form by default, and it is none.
    if is_form && bytes.trim_ascii_start().starts_with(b"{") {
        return Err((
            StatusCode::BAD_REQUEST,
            "The body looks like JSON and is called a form: send Content-Type: application/json".to_owned(),
        ));
    }
    if is_form {
        let pairs = serde_urlencoded::from_bytes::<Vec<(String, String)>>(bytes)
            .map_err(|error| (StatusCode::BAD_REQUEST, format!("Invalid form: {error}")))?;
        return Ok(pairs.into_iter().map(|(name, value)| (name, Value::String(value))).collect());
    }
    if bytes.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err((StatusCode::BAD_REQUEST, "Request body must be a JSON object".to_owned())),
        Err(error) => Err((StatusCode::BAD_REQUEST, format!("Invalid JSON: {error}"))),
    }
}

/// Reads, for a fuzz loop, `bytes` as a body of either kind, and checks that a refusal has words, that a form has texts only, and that
/// the fields of both read back the same when they are written out.
///
/// # Panics
/// If that does not hold: a finding.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    for is_form in [false, true] {
        match parse_fields(bytes, is_form) {
            Err((_, text)) => assert!(!text.is_empty()),
            Ok(fields) => {
                let body = BodyFields(fields);
                for (name, value) in &body.0 {
                    assert!(!is_form || value.is_string(), "{name}: {value}");
                    assert!(body.text_field(name).is_none_or(|text| !text.is_empty() && text.trim() == text));
                    assert!(!body.is_set(name) || value.is_boolean() || value.is_string());
                }
                let written = match is_form {
                    true => serde_urlencoded::to_string(&body.0).expect("texts are a form"),
                    false => Value::Object(body.0.clone()).to_string(),
                };
                assert_eq!(parse_fields(written.as_bytes(), is_form).as_ref(), Ok(&body.0), "{written:?}");
            }
        }
    }
}
