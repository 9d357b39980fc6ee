//! Health of a realm: its record, its services and its messenger.

use std::{sync::Arc, time::Duration};

use countersign_runtime::{InboxLane, OwnerHandle, services::ServiceClient};
use countersign_telegram::HealthProbe;
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::json;

/// Creates the health check of a realm.
pub(super) fn health_check(
    handle: OwnerHandle,
    services: Arc<ServiceClient>,
    names: Vec<String>,
    telegram: Option<HealthProbe>,
) -> Box<dyn Fn() -> BoxFuture<'static, (bool, String)> + Send + Sync> {
    Box::new(move || {
        let (handle, services, names) = (handle.clone(), Arc::clone(&services), names.clone());
        // A messenger that has not had the time to connect is not unhealthy.
        let telegram = telegram.as_ref().map(|report| report()).map(|it| it.failed.is_none() || it.is_well());
        async move {
            let source = handle.source(InboxLane::Request);
            let database = tokio::time::timeout(Duration::from_secs(2), source.read_state(|_| ())).await;
            let database = matches!(database, Ok(Some(_)));
            let checks = names.iter().map(|name| async { (name.clone(), services.check_health(name).await.is_ok()) });
            let services: serde_json::Map<String, serde_json::Value> =
                futures_util::future::join_all(checks).await.into_iter().map(|(name, is)| (name, is.into())).collect();
            // A service that is down is its own trouble; a gateway without its record or its messenger is of no use.
            let is_well = database && telegram.unwrap_or(true);
            let status = if is_well { "healthy" } else { "unhealthy" };
            let mut checks = json!({ "database": database, "services": services });
            if let Some(telegram) = telegram {
                checks["telegram"] = telegram.into();
            }
            (is_well, json!({ "status": status, "checks": checks }).to_string())
        }
        .boxed()
    })
}
