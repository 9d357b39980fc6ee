//! Log lines of the program about requests: a number that all lines of one share, its method, path and end.
//!
//! Neither the query nor any header is logged: those may be secret.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use axum::{extract::Request, middleware::Next, response::Response};
use tracing::{Instrument as _, debug, debug_span};

/// Counts requests since the process began.
static NUMBER: AtomicU64 = AtomicU64::new(1);

pub(super) async fn log_request(request: Request, next: Next) -> Response {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let span = debug_span!("request", number, method = %request.method(), path = request.uri().path());
    async {
        let begun = Instant::now();
        let response = next.run(request).await;
        debug!(status = response.status().as_u16(), took = ?begun.elapsed(), "answered");
        response
    }
    .instrument(span)
    .await
}
