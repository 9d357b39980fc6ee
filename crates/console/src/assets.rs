//! Stylesheet and script, which are part of the program.

use std::sync::LazyLock;

use axum::{
    extract::RawQuery,
    http::{HeaderValue, header},
    response::Response,
};
use countersign_core::digest::Digest;
use countersign_http::reply;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("app.js");

/// URL of the stylesheet: another version has another address.
pub(super) static STYLE_AT: LazyLock<String> =
    LazyLock::new(|| format!("/console/style.css?{}", content_version(STYLE)));
/// URL of the script.
pub(super) static SCRIPT_AT: LazyLock<String> =
    LazyLock::new(|| format!("/console/app.js?{}", content_version(SCRIPT)));

fn content_version(text: &str) -> String {
    Digest::hash_bytes(text.as_bytes()).to_string().chars().take(12).collect()
}

pub(super) async fn serve_style(RawQuery(query): RawQuery) -> Response {
    asset_response("text/css; charset=utf-8", STYLE, query)
}

pub(super) async fn serve_script(RawQuery(query): RawQuery) -> Response {
    asset_response("text/javascript; charset=utf-8", SCRIPT, query)
}

/// Returns a file that browsers may cache if they requested this version.
fn asset_response(kind: &'static str, text: &'static str, query: Option<String>) -> Response {
    let mut response = reply::with_content_type(axum::http::StatusCode::OK, kind, text.as_bytes().to_vec());
    let keep = if query == Some(content_version(text)) { "public, max-age=31536000, immutable" } else { "no-cache" };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    response
}
