//! Parts of a request as text: its body, a segment of its path, its headers.
//!
//! It must not know what a route does with them.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, header},
};
use countersign_protocol::gjc::bridge::BridgeError;
use percent_encoding::percent_decode_str;

/// Maximum size of a body, in bytes.
const LARGEST: usize = 32 << 20;
/// Maximum time for a body to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a body, as text: bytes that are none are read as U+FFFD.
pub(super) async fn read_body(body: Body) -> Result<String, BridgeError> {
    match tokio::time::timeout(PATIENCE, to_bytes(body, LARGEST)).await {
        Ok(Ok(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(Err(error)) => {
            let is_long =
                std::error::Error::source(&error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
            Err(if is_long { BridgeError::TooLarge { limit: LARGEST } } else { BridgeError::InvalidJson })
        }
        Err(_) => Err(BridgeError::TooSlow),
    }
}

pub(super) fn decode_segment(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

pub(super) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = header_text(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
