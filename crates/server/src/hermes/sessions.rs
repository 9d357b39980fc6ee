//! Sessions: new ones, the list, one with its messages. Source: docs/protocol/hermes.md, Sessions.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_core::{
    id::SessionId,
    session::{DenialReach, Stopped},
};
use serde_json::{Value, json};

use super::{
    Door,
    chat::refused,
    journal::stream_id,
    problem,
    transcript::{self, MOST_MESSAGES, Messages},
};
use crate::{
    chats::Wish,
    web::{Body, Routes, reply},
};

/// How the record calls sessions that were opened through this door.
pub(super) const DOOR: &str = "hermes";

type Asked = Query<BTreeMap<String, String>>;

pub(super) fn routes(door: &Arc<Door>) -> Router {
    Routes::new(&door.site.auth)
        .at("POST", "/api/session/new", new)
        .at("GET", "/api/sessions", list)
        .at("GET", "/api/session", one)
        .at("GET", "/api/session/status", status)
        .at("POST", "/api/session/rename", rename)
        .with_state(Arc::clone(door))
}

async fn new(State(door): State<Arc<Door>>, body: Body) -> Response {
    let model = body.text("model").map(|id| (body.text("model_provider").map(str::to_owned), id.to_owned()));
    let wish = Wish {
        workspace: body.text("workspace").map(str::to_owned),
        model,
        stopped: Stopped::IsForgotten,
        denials: DenialReach::Session,
        ..Wish::default()
    };
    let id = match door.site.chats.open(DOOR, wish).await {
        Ok(id) => id,
        Err(error) => return refused(&error),
    };
    told(&door, &id, Messages::Last(MOST_MESSAGES)).await
}

async fn told(door: &Door, id: &SessionId, messages: Messages) -> Response {
    match transcript::session(&door.site.handle, id, messages).await {
        Some(session) => {
            let mut session = json!(session);
            session["composer_draft"] = door.preferences.draft(id);
            reply::ok(&json!({ "session": session }))
        }
        None => problem(StatusCode::NOT_FOUND, "Session not found"),
    }
}

async fn list(State(door): State<Arc<Door>>) -> Response {
    let Some(mut sessions) = transcript::list(&door.site.handle).await else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "the record cannot be read");
    };
    // The front end gives up the stream of a turn that is not in the list.
    for session in sessions.iter_mut().filter(|session| !session.is_streaming) {
        if let Some(run) = door.journals.unread(&SessionId::new(session.session_id.as_str())) {
            session.active_stream_id = Some(stream_id(run));
            session.is_streaming = true;
        }
    }
    let archived = sessions.iter().filter(|session| session.archived).count();
    reply::ok(&json!({
        "sessions": sessions,
        "cli_count": 0,
        "archived_count": archived,
        "server_time": transcript::seconds(door.site.clock.now()),
        "server_tz": chrono::Local::now().format("%z").to_string(),
        "active_profile": "default",
    }))
}

async fn one(State(door): State<Arc<Door>>, asked: Asked) -> Response {
    let Some(id) = asked.get("session_id").filter(|id| !id.trim().is_empty()) else {
        return problem(StatusCode::BAD_REQUEST, "session_id is required");
    };
    let limit = asked.get("msg_limit").and_then(|limit| limit.parse::<usize>().ok()).filter(|limit| *limit > 0);
    let before = asked.get("msg_before").and_then(|before| before.parse::<usize>().ok());
    let most = limit.map_or(MOST_MESSAGES, |limit| limit.min(MOST_MESSAGES));
    let messages = match (asked.get("messages").map(String::as_str), before) {
        (Some("0" | "false"), _) => Messages::Counted,
        (_, None) => Messages::Last(most),
        (_, Some(before)) => Messages::Before { before, most },
    };
    told(&door, &SessionId::new(id.trim()), messages).await
}

async fn status(State(door): State<Arc<Door>>, asked: Asked) -> Response {
    let Some(id) = asked.get("session_id").filter(|id| !id.trim().is_empty()) else {
        return problem(StatusCode::BAD_REQUEST, "session_id is required");
    };
    // The index knows no more than the sum, and clients show what was read and what was written: of the newest.
    let newest = Messages::Last(MOST_MESSAGES);
    let Some(session) = transcript::session(&door.site.handle, &SessionId::new(id.trim()), newest).await else {
        return problem(StatusCode::NOT_FOUND, "Session not found");
    };
    reply::ok(&json!({
        "session_id": session.session_id,
        "title": session.title,
        "model": session.model,
        "workspace": session.workspace,
        "message_count": session.message_count,
        "agent_running": session.is_streaming,
        "active_stream_id": session.active_stream_id,
        "input_tokens": session.input_tokens,
        "output_tokens": session.output_tokens,
        "total_tokens": session.input_tokens + session.output_tokens,
        "estimated_cost": Value::Null,
    }))
}

async fn rename(State(door): State<Arc<Door>>, body: Body) -> Response {
    let Some(id) = body.text("session_id").map(SessionId::new) else {
        return problem(StatusCode::BAD_REQUEST, "session_id is required");
    };
    let Some(title) = body.text("title") else {
        return problem(StatusCode::BAD_REQUEST, "title is required");
    };
    match door.site.chats.rename(&id, title).await {
        Ok(()) => told(&door, &id, Messages::Without).await,
        Err(error) => refused(&error),
    }
}
