//! Streamed replies: each keeps its connection, and together they leave some of them to those with short requests,
//! such as an answer to a pending gate.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use countersign_runtime::metrics::Gauge;
use futures_util::StreamExt as _;
use tokio::sync::Semaphore;

use super::accept::ConnectionInfo;
use crate::reply::HttpProblem;

/// Connections that are kept free of streams, if there are as many to spare.
const RESERVE: usize = 64;
/// Seconds after which a client should retry if there is no room for its stream.
const AGAIN: &str = "5";

/// The room for streams at a port.
#[derive(Clone, Debug)]
pub(super) struct StreamQuota {
    room: Arc<Semaphore>,
    most: usize,
    /// Counts those that are open.
    open: Arc<Gauge>,
}

impl StreamQuota {
    /// Makes the limit for a port with `most` connections.
    pub(super) fn new(most: usize, open: Arc<Gauge>) -> Self {
        let most = most - RESERVE.min(most.div_ceil(2));
        Self { room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))), most, open }
    }

    /// Returns the same limit, with another count of those that are open.
    pub(super) fn counted_by(&self, open: Arc<Gauge>) -> Self {
        Self { open, ..self.clone() }
    }
}

/// Gives a reply that is a stream its place, or refuses it.
pub(super) async fn admit_stream(State(streams): State<StreamQuota>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let guest = request.extensions().get::<ConnectionInfo>().cloned();
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return response;
    }
    let Ok(permit) = Arc::clone(&streams.room).try_acquire_owned() else {
        let mut refused = HttpProblem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("The gateway has {} streams open, its limit (rate_limit.max_connections)", streams.most),
        )
        .response_for(&path);
        refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(AGAIN));
        return refused;
    };
    // A client that may have a stream is authenticated; its place is not given away.
    if guest.is_some_and(|guest| !guest.place.mark_authenticated()) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let open = streams.open.increment_guard();
    response.map(|body| {
        let frames = body.into_data_stream().map(move |frame: Result<Bytes, axum::Error>| {
            // The room is given back with the body.
            let _held = (&permit, &open);
            frame
        });
        Body::from_stream(frames)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{
        Router,
        body::Body,
        http::{Request, StatusCode},
        middleware::from_fn_with_state,
        routing::get,
    };
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::{StreamQuota, admit_stream};
    use crate::web::sse;

    #[tokio::test]
    async fn streams_leave_room_for_what_is_short_and_give_theirs_back() {
        for (most, want) in [(0, 0), (1, 0), (2, 1), (5, 2), (128, 64), (20_000, 19_936)] {
            assert_eq!(StreamQuota::new(most, Arc::default()).most, want, "{most}");
        }
        let streams = StreamQuota::new(5, Arc::default());
        let app = Router::new()
            .route("/api/stream", get(async || sse::stream_reply(futures_util::stream::pending(), "quiet")))
            .route("/api/short", get(async || "here"))
            .layer(from_fn_with_state(streams, admit_stream));
        let app = TowerToHyperService::new(app);
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            app.call(request).await.unwrap()
        };
        let held = [ask("/api/stream").await, ask("/api/stream").await];
        assert!(held.iter().all(|reply| reply.status() == StatusCode::OK));
        let refused = ask("/api/stream").await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "5");
        assert_eq!(ask("/api/short").await.status(), StatusCode::OK);
        drop(held);
        assert_eq!(ask("/api/stream").await.status(), StatusCode::OK);
    }
}
