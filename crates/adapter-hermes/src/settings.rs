//! Requests of clients before a chat: health, models, and missing features. Source:
//! docs/protocol/hermes.md, Settings.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_conversations::sessions;
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes},
};
use countersign_runtime::store::{Log as _, Partition};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{HermesAdapter, transcript};

/// Timeout of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/health", get_health)
        .add_route("GET", "/api/models", list_models)
        .add_route("GET", "/api/profiles", list_profiles)
        .add_route("GET", "/api/profile/active", active_profile)
        .add_route("GET", "/api/projects", list_projects)
        .add_route("GET", "/api/workspaces", list_workspaces)
        .add_route("POST", "/api/client-events/log", log_client_event)
        .with_state(Arc::clone(door))
}

async fn get_health(State(door): State<Arc<HermesAdapter>>, params: Query<BTreeMap<String, String>>) -> Response {
    let is_deep = params.get("deep").is_some_and(|deep| matches!(deep.as_str(), "1" | "true" | "yes" | "on"));
    let source = door.context.handle.source(countersign_runtime::InboxLane::Request);
    let read = source.read_state(|engine| (engine.state().sessions().count(), engine.state().runs().count()));
    let (requests, last) = door.traffic.so_far();
    let accept_loop = json!({ "requests_total": requests, "last_request_at": transcript::unix_seconds(last) });
    let began = Instant::now();
    let read = tokio::time::timeout(HEALTH_TIMEOUT, read).await;
    let Ok(Some(((sessions, runs), _))) = read else {
        let mut body = json!({
            "status": "degraded", "sessions": 0, "active_streams": 0, "uptime_seconds": uptime_seconds(&door),
            "accept_loop": accept_loop,
        });
        if is_deep {
            body["checks"] = json!({ "engine": check_result(false, began) });
        }
        return reply::json(StatusCode::SERVICE_UNAVAILABLE, &body);
    };
    let engine = check_result(true, began);
    let mut body = json!({
        "status": "ok",
        "sessions": sessions,
        "active_streams": runs,
        "active_runs": runs,
        // This needs no login, and names of sessions are not public.
        "runs": [],
        "last_run_finished_at": door.journals.last_finished().map(transcript::unix_seconds),
        "server_started_at": transcript::unix_seconds(door.context.started_at),
        "uptime_seconds": uptime_seconds(&door),
        "accept_loop": accept_loop,
    });
    if !is_deep {
        return reply::ok(&body);
    }
    let (is_well, mut checks) = deep_checks(&door).await;
    checks["engine"] = engine;
    body["checks"] = checks;
    if is_well {
        return reply::ok(&body);
    }
    body["status"] = json!("degraded");
    reply::json(StatusCode::SERVICE_UNAVAILABLE, &body)
}

/// Reports whether the data of every page can be read: the record's end and the list of sessions.
async fn deep_checks(door: &HermesAdapter) -> (bool, Value) {
    let log = door.context.handle.log();
    let began = Instant::now();
    let record = matches!(tokio::time::timeout(HEALTH_TIMEOUT, log.head(Partition::ZERO)).await, Ok(Ok(_)));
    let record_check = check_result(record, began);
    let began = Instant::now();
    let sessions = matches!(tokio::time::timeout(HEALTH_TIMEOUT, sessions::probe_list(log)).await, Ok(Ok(())));
    (record && sessions, json!({ "record": record_check, "sessions": check_result(sessions, began) }))
}

fn check_result(is_well: bool, began: Instant) -> Value {
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    json!({ "status": if is_well { "ok" } else { "error" }, "ms": ms })
}

fn uptime_seconds(door: &HermesAdapter) -> f64 {
    door.context.clock.now().since(door.context.started_at).as_secs_f64()
}

async fn list_models(State(door): State<Arc<HermesAdapter>>) -> Response {
    let models = door.context.chats.models();
    let usual = models.default_model();
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for entry in models.entries() {
        groups.entry(&entry.provider).or_default().push(json!({ "id": entry.id, "label": entry.name }));
    }
    let groups = groups
        .into_iter()
        .map(|(provider, models)| json!({ "provider": provider, "provider_id": provider, "models": models }));
    reply::ok(&json!({
        "active_provider": usual.as_ref().map(|model| &model.provider),
        "default_model": usual.as_ref().map_or("", |model| &model.id),
        "groups": groups.collect::<Vec<_>>(),
        "aliases": {},
        "configured_model_badges": {},
    }))
}

async fn list_profiles() -> Response {
    let only = json!({ "name": "default", "is_default": true, "is_active": true });
    reply::ok(&json!({ "profiles": [only], "active": "default", "single_profile_mode": true }))
}

async fn active_profile() -> Response {
    reply::ok(&json!({ "name": "default", "is_default": true }))
}

async fn list_projects() -> Response {
    reply::ok(&json!({ "projects": [] }))
}

async fn list_workspaces(State(door): State<Arc<HermesAdapter>>) -> Response {
    let rows = door.context.chats.list_workspaces().await.into_iter().map(|folder| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        json!({ "path": folder, "name": name })
    });
    reply::ok(&json!({ "workspaces": rows.collect::<Vec<_>>(), "last": "" }))
}

/// Logs an event of a page, for operators who read the program's log.
async fn log_client_event(body: BodyFields) -> Response {
    tracing::debug!(fields = body.0.len(), "a page reported an event");
    reply::ok(&json!({ "ok": true }))
}
