//! What clients ask before anything is said: health, models, and what this gateway has not. Source:
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

use super::{Door, transcript};

/// How long something may take of which it is said whether it is well.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn routes(door: &Arc<Door>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/health", health)
        .add_route("GET", "/api/models", models)
        .add_route("GET", "/api/profiles", profiles)
        .add_route("GET", "/api/profile/active", profile)
        .add_route("GET", "/api/projects", projects)
        .add_route("GET", "/api/workspaces", workspaces)
        .add_route("POST", "/api/client-events/log", log)
        .with_state(Arc::clone(door))
}

async fn health(State(door): State<Arc<Door>>, asked: Query<BTreeMap<String, String>>) -> Response {
    let is_deep = asked.get("deep").is_some_and(|deep| matches!(deep.as_str(), "1" | "true" | "yes" | "on"));
    let source = door.context.handle.source(countersign_runtime::InboxLane::Request);
    let read = source.read_state(|engine| (engine.state().sessions().count(), engine.state().runs().count()));
    let (requests, last) = door.traffic.so_far();
    let accept_loop = json!({ "requests_total": requests, "last_request_at": transcript::seconds(last) });
    let began = Instant::now();
    let read = tokio::time::timeout(PATIENCE, read).await;
    let Ok(Some(((sessions, runs), _))) = read else {
        let mut told = json!({
            "status": "degraded", "sessions": 0, "active_streams": 0, "uptime_seconds": uptime(&door),
            "accept_loop": accept_loop,
        });
        if is_deep {
            told["checks"] = json!({ "engine": check(false, began) });
        }
        return reply::json(StatusCode::SERVICE_UNAVAILABLE, &told);
    };
    let engine = check(true, began);
    let mut told = json!({
        "status": "ok",
        "sessions": sessions,
        "active_streams": runs,
        "active_runs": runs,
        // Anybody may ask this, and names of sessions are not for anybody.
        "runs": [],
        "last_run_finished_at": door.journals.finished().map(transcript::seconds),
        "server_started_at": transcript::seconds(door.context.started_at),
        "uptime_seconds": uptime(&door),
        "accept_loop": accept_loop,
    });
    if !is_deep {
        return reply::ok(&told);
    }
    let (is_well, mut checks) = deep(&door).await;
    checks["engine"] = engine;
    told["checks"] = checks;
    if is_well {
        return reply::ok(&told);
    }
    told["status"] = json!("degraded");
    reply::json(StatusCode::SERVICE_UNAVAILABLE, &told)
}

/// Whether what every page needs can be read: the record's end and the list of sessions.
async fn deep(door: &Door) -> (bool, Value) {
    let log = door.context.handle.log();
    let began = Instant::now();
    let record = matches!(tokio::time::timeout(PATIENCE, log.head(Partition::ZERO)).await, Ok(Ok(_)));
    let record_check = check(record, began);
    let began = Instant::now();
    let sessions = matches!(tokio::time::timeout(PATIENCE, sessions::probe(log)).await, Ok(Ok(())));
    (record && sessions, json!({ "record": record_check, "sessions": check(sessions, began) }))
}

fn check(is_well: bool, began: Instant) -> Value {
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    json!({ "status": if is_well { "ok" } else { "error" }, "ms": ms })
}

fn uptime(door: &Door) -> f64 {
    door.context.clock.now().since(door.context.started_at).as_secs_f64()
}

async fn models(State(door): State<Arc<Door>>) -> Response {
    let models = door.context.chats.models();
    let usual = models.usual();
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

async fn profiles() -> Response {
    let only = json!({ "name": "default", "is_default": true, "is_active": true });
    reply::ok(&json!({ "profiles": [only], "active": "default", "single_profile_mode": true }))
}

async fn profile() -> Response {
    reply::ok(&json!({ "name": "default", "is_default": true }))
}

async fn projects() -> Response {
    reply::ok(&json!({ "projects": [] }))
}

async fn workspaces(State(door): State<Arc<Door>>) -> Response {
    let told = door.context.chats.workspaces().await.into_iter().map(|folder| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        json!({ "path": folder, "name": name })
    });
    reply::ok(&json!({ "workspaces": told.collect::<Vec<_>>(), "last": "" }))
}

/// What a page noticed of itself. It may be of use to whoever looks into the program's log.
async fn log(body: BodyFields) -> Response {
    tracing::debug!(fields = body.0.len(), "a page told of something");
    reply::ok(&json!({ "ok": true }))
}
