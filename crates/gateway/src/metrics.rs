//! Metrics of one gateway and its process for Prometheus, at `/metrics`. All of them are in one list, which docs/operations.md is checked
//! against.
//!
//! Values of labels are fixed at compile time, but for the name of the realm: ids, names and texts of users cannot get in.

mod definitions;
mod snapshot;
mod text;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use countersign_config::StoragePaths;
use countersign_core::time::Millis;
use countersign_http::{
    open_connections::OpenConnections,
    reply::{self, HttpProblem},
    web::{GuardedRoutes, METRICS, WebAuth},
};
use countersign_runtime::OwnerHandle;
use countersign_telegram::HealthProbe;

use crate::cluster::HeldLease;

/// Content type.
const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Parts of a gateway that metrics are taken from.
pub(crate) struct MetricsContext {
    /// Owner of the record.
    pub(crate) handle: OwnerHandle,
    /// Logins and tokens.
    pub auth: Arc<WebAuth>,
    /// Start time of the gateway.
    pub(crate) started_at: Millis,
    /// Record and its folder.
    pub storage: StoragePaths,
    /// Health probe of the messenger, if there is one.
    pub telegram: Option<HealthProbe>,
    /// Counts of open connections.
    pub(crate) open_connections: OpenConnections,
    /// Lease of the realm, in a cluster.
    pub(crate) lease: Option<HeldLease>,
    /// Name of the realm, where the process serves several.
    pub(crate) realm: Option<String>,
}

/// Returns the route.
pub(crate) fn routes(context: &Arc<MetricsContext>) -> Router {
    GuardedRoutes::new(&context.auth).add_route("GET", METRICS, serve_metrics).with_state(Arc::clone(context))
}

async fn serve_metrics(State(context): State<Arc<MetricsContext>>) -> Response {
    let Some(snapshot) = snapshot::take_snapshot(&context).await else {
        return HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "the owner of the record does not answer")
            .response_for(METRICS);
    };
    let mut response = reply::with_content_type(
        StatusCode::OK,
        FORM,
        text::write_metrics(definitions::ALL, &snapshot, context.handle.metrics(), context.realm.as_deref())
            .into_bytes(),
    );
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM));
    response
}
