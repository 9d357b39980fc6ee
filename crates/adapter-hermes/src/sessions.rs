//! Sessions: new ones, the list, one with its messages. Source: docs/protocol/hermes.md, Sessions.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_conversations::chats::Wish;
use countersign_core::{
    id::SessionId,
    session::{DenialReach, StoppedRun},
};
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes},
};
use countersign_view::Protocol;
use serde_json::{Value, json};

use super::{
    Door,
    fields::{self, Rejection},
    journal::stream_id,
    transcript::{self, MOST_MESSAGES, Messages},
};

/// How the record calls sessions that were opened through this door.
pub(super) const DOOR: &str = Protocol::Hermes.name();

type Asked = Query<BTreeMap<String, String>>;
type Outcome = Result<Response, Rejection>;

pub(super) fn routes(door: &Arc<Door>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("POST", "/api/session/new", new)
        .add_route("GET", "/api/sessions", list)
        .add_route("GET", "/api/session", one)
        .add_route("GET", "/api/session/status", status)
        .add_route("POST", "/api/session/rename", rename)
        .with_state(Arc::clone(door))
}

async fn new(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let chats = &door.context.chats;
    let wish = Wish {
        workspace: fields::text(&body, "workspace")?.map(str::to_owned),
        model: fields::model(&body, chats.models())?.map(|model| (Some(model.provider), model.id)),
        stopped: StoppedRun::IsForgotten,
        denials: DenialReach::Session,
        ..Wish::default()
    };
    let id = chats.open(DOOR, wish).await?;
    told(&door, &id, Messages::Last(MOST_MESSAGES)).await
}

async fn told(door: &Door, id: &SessionId, messages: Messages) -> Outcome {
    let Some(session) = transcript::session(&door.context.handle, id, messages).await else {
        return Err(Rejection::no_session());
    };
    let mut session = json!(session);
    session["composer_draft"] = door.preferences.draft(id);
    Ok(reply::ok(&json!({ "session": session })))
}

async fn list(State(door): State<Arc<Door>>) -> Outcome {
    let Some(mut sessions) = transcript::list(&door.context.handle).await else {
        return Err(Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "the record cannot be read"));
    };
    // The front end gives up the stream of a turn that is not in the list.
    for session in sessions.iter_mut().filter(|session| !session.is_streaming) {
        if let Some(run) = door.journals.unread(&SessionId::new(session.session_id.as_str())) {
            session.active_stream_id = Some(stream_id(run));
            session.is_streaming = true;
        }
    }
    let archived = sessions.iter().filter(|session| session.archived).count();
    Ok(reply::ok(&json!({
        "sessions": sessions,
        "cli_count": 0,
        "archived_count": archived,
        "server_time": transcript::seconds(door.context.clock.now()),
        "server_tz": chrono::Local::now().format("%z").to_string(),
        "active_profile": "default",
    })))
}

async fn one(State(door): State<Arc<Door>>, asked: Asked) -> Outcome {
    let id = fields::session_in(&asked)?;
    let limit = fields::count_in(&asked, "msg_limit")?.filter(|limit| *limit > 0);
    let before = fields::count_in(&asked, "msg_before")?;
    let most = limit.map_or(MOST_MESSAGES, |limit| limit.min(MOST_MESSAGES));
    let messages = match (fields::flag_in(&asked, "messages", true)?, before) {
        (false, _) => Messages::Counted,
        (true, None) => Messages::Last(most),
        (true, Some(before)) => Messages::Before { before, most },
    };
    told(&door, &id, messages).await
}

async fn status(State(door): State<Arc<Door>>, asked: Asked) -> Outcome {
    let id = fields::session_in(&asked)?;
    // The index knows no more than the sum, and clients show what was read and what was written: of the newest.
    let newest = Messages::Last(MOST_MESSAGES);
    let Some(session) = transcript::session(&door.context.handle, &id, newest).await else {
        return Err(Rejection::no_session());
    };
    Ok(reply::ok(&json!({
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
    })))
}

async fn rename(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let (id, title) = (fields::session(&body)?, fields::required(&body, "title")?);
    door.context.chats.rename(&id, title).await?;
    told(&door, &id, Messages::Without).await
}
