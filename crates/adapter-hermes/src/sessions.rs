//! Sessions: new ones, the list, one with its messages. Source: docs/protocol/hermes.md, Sessions.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_conversations::chats::NewConversation;
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
    HermesAdapter,
    fields::{self, RequestRejection},
    transcript::{self, MOST_MESSAGES, MessageSelection},
    turn_stream::stream_id,
};

/// Name of this adapter in the record.
pub(super) const ADAPTER: &str = Protocol::Hermes.name();

/// Text for the model about a stopped turn, in every session that this adapter makes.
pub(super) const STOPPED: StoppedRun = StoppedRun::IsForgotten;
/// Sessions that a denial binds, in every session that this adapter makes.
pub(super) const DENIALS: DenialReach = DenialReach::Session;

type SessionQueryParams = Query<BTreeMap<String, String>>;
type SessionResult = Result<Response, RequestRejection>;

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("POST", "/api/session/new", open_session)
        .add_route("GET", "/api/sessions", list_sessions)
        .add_route("GET", "/api/session", get_session)
        .add_route("GET", "/api/session/status", session_status)
        .add_route("POST", "/api/session/rename", rename_session)
        .with_state(Arc::clone(door))
}

async fn open_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> SessionResult {
    let chats = &door.context.chats;
    let wish = NewConversation {
        workspace: fields::text_field(&body, "workspace")?.map(str::to_owned),
        model: fields::model_field(&body, chats.models())?.map(|model| (Some(model.provider), model.id)),
        stopped: STOPPED,
        denials: DENIALS,
        ..NewConversation::default()
    };
    let id = chats.open_session(ADAPTER, wish).await?;
    session_response(&door, &id, MessageSelection::Last(MOST_MESSAGES)).await
}

async fn session_response(door: &HermesAdapter, id: &SessionId, messages: MessageSelection) -> SessionResult {
    let Some(session) = transcript::load_session(&door.context.handle, id, messages).await else {
        return Err(RequestRejection::no_session());
    };
    let mut session = json!(session);
    session["composer_draft"] = door.preferences.draft_json(id);
    Ok(reply::ok(&json!({ "session": session })))
}

async fn list_sessions(State(door): State<Arc<HermesAdapter>>) -> SessionResult {
    let Some(mut sessions) = transcript::list_sessions(&door.context.handle).await else {
        return Err(RequestRejection::new(StatusCode::SERVICE_UNAVAILABLE, "the record cannot be read"));
    };
    // The front end gives up the stream of a turn that is not in the list.
    for session in sessions.iter_mut().filter(|session| !session.is_streaming) {
        if let Some(run) = door.journals.unread_turn(&SessionId::new(session.session_id.as_str())) {
            session.active_stream_id = Some(stream_id(run));
            session.is_streaming = true;
        }
    }
    let archived = sessions.iter().filter(|session| session.archived).count();
    Ok(reply::ok(&json!({
        "sessions": sessions,
        "cli_count": 0,
        "archived_count": archived,
        "server_time": transcript::unix_seconds(door.context.clock.now()),
        "server_tz": chrono::Local::now().format("%z").to_string(),
        "active_profile": "default",
    })))
}

async fn get_session(State(door): State<Arc<HermesAdapter>>, params: SessionQueryParams) -> SessionResult {
    let id = fields::session_in(&params)?;
    let limit = fields::count_in(&params, "msg_limit")?.filter(|limit| *limit > 0);
    let before = fields::count_in(&params, "msg_before")?;
    let most = limit.map_or(MOST_MESSAGES, |limit| limit.min(MOST_MESSAGES));
    let messages = match (fields::flag_in(&params, "messages", true)?, before) {
        (false, _) => MessageSelection::Counted,
        (true, None) => MessageSelection::Last(most),
        (true, Some(before)) => MessageSelection::Before { before, most },
    };
    session_response(&door, &id, messages).await
}

async fn session_status(State(door): State<Arc<HermesAdapter>>, params: SessionQueryParams) -> SessionResult {
    let id = fields::session_in(&params)?;
    // The index has only the sum, and clients show input and output tokens separately: those of the newest.
    let newest = MessageSelection::Last(MOST_MESSAGES);
    let Some(session) = transcript::load_session(&door.context.handle, &id, newest).await else {
        return Err(RequestRejection::no_session());
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

async fn rename_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> SessionResult {
    let (id, title) = (fields::session_field(&body)?, fields::required_text(&body, "title")?);
    door.context.chats.rename_session(&id, title).await?;
    session_response(&door, &id, MessageSelection::Without).await
}
