//! Requests of clients for features that this gateway lacks, answered in the form that shows it: an empty list, a feature that is off.
//! Source: docs/protocol/hermes.md, Left out.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use countersign_conversations::chats::ChatError;
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes},
};
use serde_json::{Value, json};

use super::{
    HermesAdapter,
    fields::{self, RequestRejection},
    problem,
};

/// Path and its answer.
type AbsentRoute = (&'static str, fn() -> Value);

/// Paths and their answers.
const TABLE: &[AbsentRoute] = &[
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
    // The complete list of models is at `/api/models`.
    ("/api/models/live", || json!({ "models": [], "count": 0 })),
    ("/api/health/agent", || json!({ "alive": null })),
    ("/api/model/auxiliary", || json!({ "tasks": [], "main": {} })),
    ("/api/extensions/registry", || json!({ "extensions": [] })),
    ("/api/provider/cost-history", || json!({ "ok": false, "history": [] })),
    ("/api/background/status", || json!({ "results": [] })),
];

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    let mut routes = GuardedRoutes::new(&door.context.auth);
    for (path, _) in TABLE {
        routes = routes.add_route("GET", path, answer_absent);
    }
    routes
        .add_route("POST", "/api/updates/check", answer_absent)
        .add_route("POST", "/api/session/anchor-scene", acknowledge_scene)
        .with_state(Arc::clone(door))
}

async fn answer_absent(uri: Uri) -> Response {
    match TABLE.iter().find(|(path, _)| *path == uri.path()) {
        Some((_, answer)) => reply::ok(&answer()),
        None => problem(StatusCode::NOT_FOUND, "not found"),
    }
}

/// Acknowledges a client's drawing of the calls of a turn. The client draws them again from the messages, which contain them.
async fn acknowledge_scene(
    State(door): State<Arc<HermesAdapter>>,
    body: BodyFields,
) -> Result<Response, RequestRejection> {
    let session = fields::session_field(&body)?;
    match door.context.chats.thinking_level(&session).await {
        Ok(_) | Err(ChatError::NotOurs) => Ok(reply::ok(&json!({ "ok": true, "persisted": false }))),
        Err(error) => Err(error.into()),
    }
}
