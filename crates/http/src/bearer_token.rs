//! Bearer token of a request.
//!
//! It must not know whose it is.

use axum::http::HeaderMap;

/// Returns the token in a request's header.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get("authorization")?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
