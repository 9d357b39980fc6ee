//! Format of replies: JSON, pages, and errors as the adapter of the path writes them.

use std::{collections::BTreeMap, io::Write as _};

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::Response,
};
use serde::Serialize;
use serde_json::{Value, json};

/// From how many bytes on a body is compressed.
const WORTH_IT: u64 = 1024;
/// The longest body that is compressed, in bytes. Anything longer is a file or a stream.
const LARGEST: u64 = 8 << 20;
/// Most bytes that are read of the framework's own error text.
const LONGEST_REFUSAL: usize = 64 << 10;
/// Pages load nothing from elsewhere and are shown in no other page.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Returns a JSON reply.
pub fn json<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => with_content_type(status, "application/json; charset=utf-8", text),
        Err(error) => {
            tracing::error!(%error, "failed to encode a reply as JSON");
            with_content_type(
                StatusCode::INTERNAL_SERVER_ERROR,
                "application/json",
                br#"{"error":"internal error"}"#.to_vec(),
            )
        }
    }
}

/// Returns a JSON reply that all went well.
pub fn ok<T: Serialize + ?Sized>(value: &T) -> Response {
    json(StatusCode::OK, value)
}

/// Returns a page.
pub fn html(status: StatusCode, page: String) -> Response {
    with_content_type(status, "text/html; charset=utf-8", page.into_bytes())
}

/// Returns any other body.
pub fn with_content_type(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProblem {
    status: StatusCode,
    text: String,
    /// Further members for programs of our own interface.
    more: BTreeMap<&'static str, Value>,
}

impl HttpProblem {
    /// Makes an error with the text for people.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), more: BTreeMap::new() }
    }

    /// Returns the same with a further member for programs of our own interface.
    #[must_use]
    pub fn with_member(mut self, name: &'static str, value: Value) -> Self {
        self.more.insert(name, value);
        self
    }

    /// Returns the response in the format of the adapter with this path: our own interface a problem document (RFC 9457), hermes
    /// `{"error"}`.
    pub fn response_for(&self, path: &str) -> Response {
        if path.starts_with("/api/v1/") {
            let title = self.status.canonical_reason().unwrap_or("Error");
            let mut body =
                json!({ "type": "about:blank", "title": title, "status": self.status.as_u16(), "detail": self.text });
            for (name, value) in &self.more {
                body[*name] = value.clone();
            }
            let mut response = json(self.status, &body);
            let kind = HeaderValue::from_static("application/problem+json");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            return response;
        }
        if path.starts_with("/api/") || path == "/health" {
            return json(self.status, &json!({ "error": self.text }));
        }
        with_content_type(self.status, "text/plain; charset=utf-8", format!("{}\n", self.text).into_bytes())
    }
}

/// Adds the headers for browsers to every reply, and compresses bodies that are worth it.
pub async fn finish_response(request: Request, next: Next) -> Response {
    let takes_gzip = takes_gzip(request.headers());
    let path = request.uri().path().to_owned();
    let mut response = match *request.method() {
        // A page of another origin gets nothing more, so its browser keeps the request back.
        Method::OPTIONS => Response::default(),
        _ => next.run(request).await,
    };
    if path.starts_with("/api/") && response.status().is_client_error() {
        response = in_its_words(response, &path).await;
    }
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("server", "HermesWebUI/compatible Countersign"),
    ] {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    let is_small = axum::body::HttpBody::size_hint(response.body())
        .exact()
        .is_none_or(|size| !(WORTH_IT..LARGEST).contains(&size));
    if !takes_gzip
        || is_small
        || response.headers().contains_key(header::CONTENT_ENCODING)
        || is_picture(response.headers())
    {
        return response;
    }
    compress_response(response).await
}

/// Rewrites an error of the framework itself, with no body or in plain text, to the format of the path's adapter.
async fn in_its_words(mut response: Response, path: &str) -> Response {
    let is_bare = axum::body::HttpBody::size_hint(response.body()).exact() == Some(0);
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let status = response.status();
    // That path has no route, or none with that method.
    let of_status = match status {
        StatusCode::NOT_FOUND => Some(format!("there is nothing at {path}")),
        StatusCode::METHOD_NOT_ALLOWED => Some(format!("{path} does not take this method")),
        _ => None,
    };
    let text = if is_bare {
        of_status
    } else if kind.starts_with("text/plain") {
        let body = to_bytes(std::mem::take(response.body_mut()), LONGEST_REFUSAL).await.unwrap_or_default();
        Some(String::from_utf8_lossy(&body).trim().to_owned())
    } else {
        None
    };
    let Some(text) = text else { return response };
    let allow = response.headers_mut().remove(header::ALLOW);
    let mut response = HttpProblem::new(status, text).response_for(path);
    response.headers_mut().extend(allow.map(|allow| (header::ALLOW, allow)));
    response
}

fn is_picture(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    (kind.starts_with("image/") && kind != "image/svg+xml") || kind.starts_with("font/") || kind == "application/zip"
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

async fn compress_response(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return with_content_type(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Vec::new());
    };
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let body = match packed.write_all(&bytes).and_then(|()| packed.finish()) {
        Ok(packed) => {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
            parts.headers.remove(header::CONTENT_LENGTH);
            Body::from(packed)
        }
        Err(_) => Body::from(bytes),
    };
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, StatusCode};

    use super::{HttpProblem, takes_gzip};

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (line, want) in
            [("gzip", true), ("deflate, gzip;q=0.5", true), ("gzip;q=0", false), ("identity", false), ("br", false)]
        {
            let mut headers = HeaderMap::new();
            headers.insert("accept-encoding", line.parse().unwrap());
            assert_eq!(takes_gzip(&headers), want, "{line}");
        }
    }

    #[test]
    fn a_problem_has_the_form_of_its_adapter() {
        let problem = HttpProblem::new(StatusCode::NOT_FOUND, "there is no such gate");
        for (path, want) in [
            ("/api/v1/gates/1", "application/problem+json"),
            ("/api/session", "application/json; charset=utf-8"),
            ("/console/gates/1", "text/plain; charset=utf-8"),
        ] {
            let reply = problem.response_for(path);
            assert_eq!(reply.headers()["content-type"], want, "{path}");
            assert_eq!(reply.status(), StatusCode::NOT_FOUND);
        }
    }
}
