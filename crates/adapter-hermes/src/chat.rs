//! Chat: a turn begins, is read as a stream, steered, stopped. Source: docs/protocol/hermes.md, Chat.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use countersign_conversations::chats::{ChatError, check_message};
use countersign_core::{engine::EngineReply, id::SessionId, session::WhenBusy};
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes, sse},
};
use serde_json::json;

use super::{
    HermesAdapter,
    fields::{self, RequestRejection},
    preferences, problem,
    transcript::{self, MessageSelection},
    turn_stream::{StreamCursor, TurnStream, run_of, stream_id},
};

/// Most attachments of a message.
const MOST_ATTACHMENTS: usize = 20;

/// Parameters of a query.
type ChatParams = Query<BTreeMap<String, String>>;
type ChatResult = Result<Response, RequestRejection>;

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("POST", "/api/chat/start", start_chat)
        .add_route("GET", "/api/chat/stream", stream_events)
        .add_route("GET", "/api/chat/stream/status", stream_status)
        .add_route("GET", "/api/chat/cancel", cancel_turn)
        .add_route("POST", "/api/chat/steer", steer_turn)
        .with_state(Arc::clone(door))
}

async fn start_chat(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ChatResult {
    let Some(session) = fields::text_field(&body, "session_id")?.map(SessionId::new) else {
        return Err(RequestRejection::bad("Missing required field(s): session_id"));
    };
    if fields::flag_field(&body, "regenerate", false)? {
        return regenerate_answer(&door, &session, &body).await;
    }
    let text = fields::exact_text(&body, "message")?.unwrap_or_default();
    // A message that is refused changes nothing.
    check_message(text, "message")?;
    let attached = fields::list_field(&body, "attachments")?;
    if attached.len() > MOST_ATTACHMENTS {
        return Err(RequestRejection::bad(format!("at most {MOST_ATTACHMENTS} attachments are taken")));
    }
    if !attached.is_empty() {
        let why = "attachments are not taken by this gateway: name files of the workspace in the message";
        return Err(RequestRejection::bad(why));
    }
    let chats = &door.context.chats;
    let model = fields::model_field(&body, chats.models());
    // No message of another client may be queued between the model of this one and itself.
    let _turn = door.starts.lock_session(&session).await;
    if !matches!(model, Ok(None)) {
        // A message that is refused must not change the model of the current turn.
        match chats.at_rest(&session).await {
            Err(ChatError::Busy) => return Ok(busy_response(&door, &session).await),
            rest => rest?,
        }
    }
    if let Some(model) = model? {
        match chats.use_model(&session, model).await {
            Err(ChatError::Busy) => return Ok(busy_response(&door, &session).await),
            set => set?,
        }
    }
    start_turn(&door, &session, text).await
}

/// Begins a turn, with the reasoning effort that is set.
async fn start_turn(door: &HermesAdapter, session: &SessionId, text: &str) -> ChatResult {
    let chats = &door.context.chats;
    // A message that is refused must not change the reasoning of the current turn.
    if chats.at_rest(session).await.is_ok() {
        preferences::apply_effort(door, session).await?;
    }
    match chats.send_prompt(session, text, WhenBusy::Refuse).await {
        Ok(outcome) => {
            door.preferences.forget_draft(session).await;
            Ok(started_response(door, session, outcome).await)
        }
        Err(ChatError::Busy) => Ok(busy_response(door, session).await),
        Err(error) => Err(error.into()),
    }
}

/// Repeats the last request to the model, in place of its answer. Calls before it are kept with their results.
async fn regenerate_answer(door: &HermesAdapter, session: &SessionId, body: &BodyFields) -> ChatResult {
    let stale = |why: &str| {
        let error_body = json!({ "error": why, "code": "stale_regeneration_revision" });
        Ok(reply::json(StatusCode::CONFLICT, &error_body))
    };
    let revision = fields::required_text(body, "regeneration_revision")?;
    let _turn = door.starts.lock_session(session).await;
    let Some(known) = transcript::load_session(&door.context.handle, session, MessageSelection::Without).await else {
        return Err(RequestRejection::no_session());
    };
    if known.is_streaming {
        return Ok(busy_response(door, session).await);
    }
    if known.regeneration_revision.as_deref() != Some(revision) {
        return stale("The conversation has changed since; load it again");
    }
    let chats = &door.context.chats;
    preferences::apply_effort(door, session).await?;
    match chats.ask_after_calls(session).await {
        Ok(Some(outcome)) => return Ok(started_response(door, session, outcome).await),
        Ok(None) => {}
        Err(ChatError::Busy) => return Ok(busy_response(door, session).await),
        Err(error) => return Err(error.into()),
    }
    match chats.undo_last(session).await {
        Ok(Some(back)) if !back.text.trim().is_empty() => start_turn(door, session, &back.text).await,
        Ok(_) => stale("There is no message that could be asked again"),
        Err(ChatError::Busy) => Ok(busy_response(door, session).await),
        Err(error) => Err(error.into()),
    }
}

async fn started_response(door: &HermesAdapter, session: &SessionId, outcome: EngineReply) -> Response {
    let Some(details) = transcript::load_session(&door.context.handle, session, MessageSelection::Without).await else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "the gateway is closing");
    };
    let stream = match outcome {
        // If the conversation is compacted first, the stream reports that until the turn begins.
        EngineReply::Started(run) | EngineReply::BehindCompaction(run) => {
            door.journals.expect_reader(session, run);
            stream_id(run)
        }
        _ => return problem(StatusCode::CONFLICT, ChatError::Busy.to_string()),
    };
    reply::ok(&json!({
        "stream_id": stream,
        "session_id": details.session_id,
        "pending_started_at": transcript::unix_seconds(door.context.clock.now()),
        "turn_id": stream,
        "title": details.title,
        "effective_model": details.model,
        "effective_model_provider": details.model_provider,
    }))
}

async fn busy_response(door: &HermesAdapter, session: &SessionId) -> Response {
    let known = transcript::load_session(&door.context.handle, session, MessageSelection::Without).await;
    let stream = known.and_then(|session| session.active_stream_id);
    let error_body = json!({ "error": ChatError::Busy.to_string(), "active_stream_id": stream });
    reply::json(StatusCode::CONFLICT, &error_body)
}

/// Finds the stream that a query names.
async fn find_stream(door: &HermesAdapter, params: &ChatParams) -> Option<Arc<TurnStream>> {
    let run = run_of(params.get("stream_id")?.trim())?;
    match door.journals.load_stream(run).await {
        Ok(journal) => journal,
        Err(error) => {
            tracing::error!(%error, "failed to read the stream of a turn");
            None
        }
    }
}

/// Returns the position of a client: the query takes precedence over the header, and an invalid position counts as none.
fn requested_cursor(stream: &str, params: &ChatParams, headers: &HeaderMap) -> StreamCursor {
    let named = |text: &str| match text.rsplit_once(':') {
        Some((of, number)) if of == stream => number.parse().ok(),
        _ => None,
    };
    let number = if let Some(after) = params.get("after_seq").filter(|after| !after.is_empty()) {
        after.parse().ok()
    } else if let Some(after) = params.get("after_event_id").filter(|after| !after.is_empty()) {
        named(after)
    } else if params.contains_key("after_seq") || params.contains_key("replay") {
        None
    } else {
        headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(named)
    };
    number.map_or(StreamCursor::Start, StreamCursor::Behind)
}

async fn stream_events(State(door): State<Arc<HermesAdapter>>, params: ChatParams, headers: HeaderMap) -> Response {
    let Some(journal) = find_stream(&door, &params).await else {
        return problem(StatusCode::NOT_FOUND, "stream not found");
    };
    let cursor = requested_cursor(&journal.id(), &params, &headers);
    sse::stream_reply(journal.follow_from(cursor), "heartbeat")
}

async fn stream_status(State(door): State<Arc<HermesAdapter>>, params: ChatParams) -> Response {
    let stream = params.get("stream_id").cloned().unwrap_or_default();
    let Some(journal) = find_stream(&door, &params).await else {
        return reply::ok(&json!({ "active": false, "stream_id": stream, "replay_available": false }));
    };
    let standing = journal.current_status();
    let state = match (standing.is_over, standing.last) {
        (false, _) => None,
        (true, "cancel") => Some("interrupted-by-user"),
        (true, "apperror") => Some("failed"),
        (true, _) => Some("completed"),
    };
    reply::ok(&json!({
        "active": !standing.is_over,
        "stream_id": stream,
        "replay_available": true,
        "journal": {
            "session_id": journal.session.as_str(),
            "run_id": stream,
            "last_seq": standing.last_seq,
            "last_event_id": format!("{stream}:{}", standing.last_seq),
            "last_event": standing.last,
            "terminal": standing.is_over,
            "terminal_state": state,
        },
    }))
}

async fn cancel_turn(State(door): State<Arc<HermesAdapter>>, params: ChatParams) -> Response {
    let Some(stream) = params.get("stream_id").filter(|stream| !stream.trim().is_empty()) else {
        return problem(StatusCode::BAD_REQUEST, "stream_id is required");
    };
    let cancel_reply = |cancelled: bool| reply::ok(&json!({ "ok": true, "cancelled": cancelled, "stream_id": stream }));
    let Some(journal) = find_stream(&door, &params).await.filter(|journal| !journal.current_status().is_over) else {
        return cancel_reply(false);
    };
    match door.context.chats.stop_run(&journal.session, journal.run).await {
        Ok(cancelled) => cancel_reply(cancelled),
        Err(error) => RequestRejection::from(error).into_response(),
    }
}

async fn steer_turn(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ChatResult {
    let (session, text) = (fields::session_field(&body)?, fields::required_text(&body, "text")?);
    Ok(match door.context.chats.steer_run(&session, text, None).await? {
        Some(run) => reply::ok(&json!({ "accepted": true, "stream_id": stream_id(run) })),
        None => reply::ok(&json!({ "accepted": false, "fallback": "not_running" })),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::{extract::Query, http::HeaderMap};

    use super::{StreamCursor, requested_cursor};

    #[test]
    fn the_query_precedes_the_header_and_an_invalid_cursor_starts_over() {
        for (query, header, want) in [
            (&[][..], None, StreamCursor::Start),
            (&[], Some("s:4"), StreamCursor::Behind(4)),
            (&[], Some("t:4"), StreamCursor::Start),
            (&[], Some("::x"), StreamCursor::Start),
            (&[("after_seq", "3")], Some("s:4"), StreamCursor::Behind(3)),
            (&[("after_seq", "0"), ("replay", "1"), ("after_event_id", "")], None, StreamCursor::Behind(0)),
            (&[("after_seq", "-3")], None, StreamCursor::Start),
            (&[("after_seq", "")], Some("s:4"), StreamCursor::Start),
            (&[("after_event_id", "s:9")], None, StreamCursor::Behind(9)),
            (&[("replay", "1")], Some("s:4"), StreamCursor::Start),
        ] {
            let pairs = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let params = Query(pairs.collect::<BTreeMap<_, _>>());
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert("last-event-id", header.parse().unwrap());
            }
            assert_eq!(requested_cursor("s", &params, &headers), want, "{query:?} {header:?}");
        }
    }
}
