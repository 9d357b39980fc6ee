//! Figures of this process for Prometheus, at `/metrics`. All of them stand in one list, which docs/operations.md is checked
//! against.
//!
//! What labels may say is fixed when this is compiled: no id, name or text of anybody gets in.

mod list;
pub(crate) mod open;
mod seen;
mod text;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use crate::{
    site::Site,
    web::{Problem, Routes, reply},
};

/// Where they are.
pub(crate) const PATH: &str = "/metrics";
/// The form of what is told.
const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The route.
pub(crate) fn routes(site: &Arc<Site>) -> Router {
    Routes::new(&site.auth).at("GET", PATH, metrics).with_state(Arc::clone(site))
}

async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let Some(seen) = seen::look(&site).await else {
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the owner of the record does not answer").reply(PATH);
    };
    let mut told = reply::plain(StatusCode::OK, FORM, text::write(list::ALL, &seen).into_bytes());
    told.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM));
    told
}
