//! Count of requests, for `/health`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use countersign_core::time::Millis;
use countersign_runtime::Clock;

/// Requests so far.
pub(super) struct RequestStats {
    clock: Clock,
    total: AtomicU64,
    last: AtomicU64,
}

impl RequestStats {
    /// Creates one without requests.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, total: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Returns their number, and the time of the last; 0 before the first.
    pub(super) fn so_far(&self) -> (u64, Millis) {
        (self.total.load(Ordering::Relaxed), Millis(self.last.load(Ordering::Relaxed)))
    }
}

/// Counts a request.
pub(super) async fn count_request(State(traffic): State<Arc<RequestStats>>, request: Request, next: Next) -> Response {
    traffic.total.fetch_add(1, Ordering::Relaxed);
    traffic.last.fetch_max(traffic.clock.now().0, Ordering::Relaxed);
    next.run(request).await
}
