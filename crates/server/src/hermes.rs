//! The hermes door: HTTP and server-sent events, for browsers and phones. Source: docs/protocol/hermes.md.
//!
//! It decides nothing: what clients send becomes commands, what the log says becomes frames.

mod prompts;

use std::sync::Arc;

use axum::Router;

use crate::site::Site;

/// The routes of the door. `None` if the record cannot be followed any more.
pub(crate) async fn routes(site: &Arc<Site>) -> Option<Router> {
    let prompts = prompts::Prompts::open(site).await?;
    Some(prompts::routes(site, &prompts))
}
