//! What clients ask for that this gateway has not, in the form from which they see that: an empty list, a feature that is off.
//! Source: docs/protocol/hermes.md, Left out.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, Uri},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    Door,
    fields::{self, Rejection},
    problem,
};
use crate::{
    chats::ChatError,
    web::{Body, Routes, reply},
};

type Asked = Query<BTreeMap<String, String>>;

/// What is asked, and what the answer is.
const TABLE: &[(&str, fn() -> Value)] = &[
    ("/api/transcribe/capability", || json!({ "ok": true, "available": false, "enabled": false, "provider": null })),
    ("/api/dashboard/config", || json!({ "enabled": "never", "mode": "never", "url": "" })),
    ("/api/dashboard/status", || json!({ "running": false, "available": false, "enabled": "never" })),
    ("/api/updates/check", || json!({ "disabled": true })),
    ("/api/git-info", || json!({ "git": null })),
    ("/api/personalities", || json!({ "personalities": [] })),
    ("/api/commands", || json!({ "commands": [] })),
    ("/api/commands/bundles", || json!({ "bundles": [] })),
    ("/api/prompts", || json!({ "prompts": [] })),
    ("/api/skills", || json!({ "skills": [] })),
    ("/api/crons", || json!({ "jobs": [] })),
    ("/api/crons/recent", || json!({ "completions": [], "since": 0 })),
    ("/api/providers", || json!({ "providers": [] })),
    ("/api/provider/quota", || json!({ "ok": false, "supported": false })),
    ("/api/extensions/status", || json!({ "enabled": false, "extensions": [] })),
    ("/api/plugins", || json!({ "plugins": [] })),
    ("/api/mcp/servers", || json!({ "servers": [] })),
    ("/api/mcp/tools", || json!({ "tools": [], "total": 0, "servers": [] })),
    ("/api/gateway/status", || json!({ "running": false, "platforms": [] })),
    ("/api/background/status", || json!({ "results": [] })),
];

pub(super) fn routes(door: &Arc<Door>) -> Router {
    let mut routes = Routes::new(&door.site.auth);
    for (path, _) in TABLE {
        routes = routes.at("GET", path, absent);
    }
    routes
        .at("POST", "/api/updates/check", absent)
        .at("GET", "/api/models/live", live)
        .at("POST", "/api/session/anchor-scene", scene)
        .with_state(Arc::clone(door))
}

async fn absent(uri: Uri) -> Response {
    match TABLE.iter().find(|(path, _)| *path == uri.path()) {
        Some((_, answer)) => reply::ok(&answer()),
        None => problem(StatusCode::NOT_FOUND, "not found"),
    }
}

/// The models of one provider: those of the configuration, because none is asked for more.
async fn live(State(door): State<Arc<Door>>, asked: Asked) -> Response {
    let provider = asked.get("provider").map(|name| name.trim()).filter(|name| !name.is_empty());
    let all = door.site.chats.models();
    let listed = all.entries().filter(|entry| provider.is_none_or(|provider| entry.provider == provider));
    let models: Vec<Value> = listed.map(|entry| json!({ "id": entry.id, "label": entry.name })).collect();
    reply::ok(&json!({ "provider": provider, "count": models.len(), "models": models }))
}

/// How a client drew the calls of a turn. It draws them again from the messages, which have them.
async fn scene(State(door): State<Arc<Door>>, body: Body) -> Result<Response, Rejection> {
    let session = fields::session(&body)?;
    match door.site.chats.thinking(&session).await {
        Ok(_) | Err(ChatError::NotOurs) => Ok(reply::ok(&json!({ "ok": true, "persisted": false }))),
        Err(error) => Err(error.into()),
    }
}
