//! What clients ask before anything is said: health, models, settings, and what this gateway has not. Source:
//! docs/protocol/hermes.md, Settings.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::{Door, transcript};
use crate::web::{Body, Routes, reply};

pub(super) fn routes(door: &Arc<Door>) -> Router {
    Routes::new(&door.site.auth)
        .at("GET", "/health", health)
        .at("GET", "/api/models", models)
        .at("GET", "/api/settings", settings)
        .at("GET", "/api/profiles", profiles)
        .at("GET", "/api/profile/active", profile)
        .at("GET", "/api/projects", projects)
        .at("GET", "/api/workspaces", workspaces)
        .at("GET", "/api/reasoning", reasoning)
        .at("POST", "/api/client-events/log", log)
        .with_state(Arc::clone(door))
}

async fn health(State(door): State<Arc<Door>>) -> Response {
    let source = door.site.handle.source(countersign_runtime::Lane::Request);
    let read = source.read(|engine| (engine.state().sessions().count(), engine.state().runs().count()));
    let patience = std::time::Duration::from_secs(2);
    let Ok(Some(((sessions, runs), _))) = tokio::time::timeout(patience, read).await else {
        let told = json!({ "status": "degraded", "sessions": 0, "active_streams": 0, "uptime_seconds": uptime(&door) });
        return reply::json(StatusCode::SERVICE_UNAVAILABLE, &told);
    };
    reply::ok(&json!({
        "status": "ok",
        "sessions": sessions,
        "active_streams": runs,
        "active_runs": runs,
        "runs": [],
        "last_run_finished_at": Value::Null,
        "server_started_at": transcript::seconds(door.site.started_at),
        "uptime_seconds": uptime(&door),
    }))
}

fn uptime(door: &Door) -> f64 {
    door.site.clock.now().since(door.site.started_at).as_secs_f64()
}

async fn models(State(door): State<Arc<Door>>) -> Response {
    let models = door.site.chats.models();
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

async fn settings(State(door): State<Arc<Door>>) -> Response {
    let usual = door.site.chats.models().usual();
    reply::ok(&json!({
        "onboarding_completed": true,
        "default_model": usual.map(|model| model.id),
        "auth_enabled": door.site.auth.is_guarded(),
        "bot_name": "Countersign",
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
    let told = door.site.chats.workspaces().into_iter().map(|folder| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        json!({ "path": folder, "name": name })
    });
    reply::ok(&json!({ "workspaces": told.collect::<Vec<_>>(), "last": "" }))
}

async fn reasoning() -> Response {
    reply::ok(&json!({
        "show_reasoning": true, "reasoning_effort": "", "supported_efforts": [], "supports_reasoning_effort": false,
    }))
}

/// What a page noticed of itself. It may be of use to whoever looks into the program's log.
async fn log(body: Body) -> Response {
    tracing::debug!(fields = body.0.len(), "a page told of something");
    reply::ok(&json!({ "ok": true }))
}
