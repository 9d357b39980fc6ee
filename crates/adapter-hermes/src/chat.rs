//! What is said: a turn begins, is read as a stream, steered, stopped. Source: docs/protocol/hermes.md, Chat.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use countersign_conversations::chats::{ChatError, sayable};
use countersign_core::{engine::EngineReply, id::SessionId, session::WhenBusy};
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes, sse},
};
use serde_json::json;

use super::{
    Door,
    fields::{self, Rejection},
    journal::{Cursor, Journal, run_of, stream_id},
    preferences, problem,
    transcript::{self, Messages},
};

/// How many attachments a message may have.
const MOST_ATTACHMENTS: usize = 20;

/// What a query says.
type Asked = Query<BTreeMap<String, String>>;
type Outcome = Result<Response, Rejection>;

pub(super) fn routes(door: &Arc<Door>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("POST", "/api/chat/start", start)
        .add_route("GET", "/api/chat/stream", stream)
        .add_route("GET", "/api/chat/stream/status", status)
        .add_route("GET", "/api/chat/cancel", cancel)
        .add_route("POST", "/api/chat/steer", steer)
        .with_state(Arc::clone(door))
}

async fn start(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let Some(session) = fields::text(&body, "session_id")?.map(SessionId::new) else {
        return Err(Rejection::bad("Missing required field(s): session_id"));
    };
    if fields::flag(&body, "regenerate", false)? {
        return regenerate(&door, &session, &body).await;
    }
    let text = fields::exact(&body, "message")?.unwrap_or_default();
    // A message that is refused changes nothing.
    sayable(text, "message")?;
    let attached = fields::list(&body, "attachments")?;
    if attached.len() > MOST_ATTACHMENTS {
        return Err(Rejection::bad(format!("at most {MOST_ATTACHMENTS} attachments are taken")));
    }
    if !attached.is_empty() {
        let why = "attachments are not taken by this gateway: name files of the workspace in the message";
        return Err(Rejection::bad(why));
    }
    let chats = &door.context.chats;
    let model = fields::model(&body, chats.models());
    // Nobody else's message may be taken on between the model of this one and itself.
    let _turn = door.starts.turn(&session).await;
    if !matches!(model, Ok(None)) {
        // A message that is refused must not change the model of the turn that works.
        match chats.at_rest(&session).await {
            Err(ChatError::Busy) => return Ok(busy(&door, &session).await),
            rest => rest?,
        }
    }
    if let Some(model) = model? {
        match chats.use_model(&session, model).await {
            Err(ChatError::Busy) => return Ok(busy(&door, &session).await),
            set => set?,
        }
    }
    prompt(&door, &session, text).await
}

/// Begins a turn, with the reasoning effort that is set.
async fn prompt(door: &Door, session: &SessionId, text: &str) -> Outcome {
    let chats = &door.context.chats;
    // A message that is refused must not change how the turn that works thinks.
    if chats.at_rest(session).await.is_ok() {
        preferences::apply_effort(door, session).await?;
    }
    match chats.prompt(session, text, WhenBusy::Refuse).await {
        Ok(outcome) => {
            door.preferences.forget_draft(session).await;
            Ok(started(door, session, outcome).await)
        }
        Err(ChatError::Busy) => Ok(busy(door, session).await),
        Err(error) => Err(error.into()),
    }
}

/// Asks the model again what it was asked last, in the place of its answer.
async fn regenerate(door: &Door, session: &SessionId, body: &BodyFields) -> Outcome {
    let stale = |why: &str| {
        let told = json!({ "error": why, "code": "stale_regeneration_revision" });
        Ok(reply::json(StatusCode::CONFLICT, &told))
    };
    let revision = fields::required(body, "regeneration_revision")?;
    let _turn = door.starts.turn(session).await;
    let Some(known) = transcript::session(&door.context.handle, session, Messages::Without).await else {
        return Err(Rejection::no_session());
    };
    if known.is_streaming {
        return Ok(busy(door, session).await);
    }
    if known.regeneration_revision.as_deref() != Some(revision) {
        return stale("The conversation has changed since; load it again");
    }
    match door.context.chats.undo(session).await {
        Ok(Some(back)) if !back.text.trim().is_empty() => prompt(door, session, &back.text).await,
        Ok(_) => stale("There is no message that could be asked again"),
        Err(ChatError::Busy) => Ok(busy(door, session).await),
        Err(error) => Err(error.into()),
    }
}

async fn started(door: &Door, session: &SessionId, outcome: EngineReply) -> Response {
    let Some(told) = transcript::session(&door.context.handle, session, Messages::Without).await else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "the gateway is closing");
    };
    let stream = match outcome {
        // Where the conversation is summed up first, the stream tells of that until the turn begins.
        EngineReply::Started(run) | EngineReply::BehindCompaction(run) => {
            door.journals.expect_reader(session, run);
            stream_id(run)
        }
        _ => return problem(StatusCode::CONFLICT, ChatError::Busy.to_string()),
    };
    reply::ok(&json!({
        "stream_id": stream,
        "session_id": told.session_id,
        "pending_started_at": transcript::seconds(door.context.clock.now()),
        "turn_id": stream,
        "title": told.title,
        "effective_model": told.model,
        "effective_model_provider": told.model_provider,
    }))
}

async fn busy(door: &Door, session: &SessionId) -> Response {
    let known = transcript::session(&door.context.handle, session, Messages::Without).await;
    let stream = known.and_then(|session| session.active_stream_id);
    let told = json!({ "error": ChatError::Busy.to_string(), "active_stream_id": stream });
    reply::json(StatusCode::CONFLICT, &told)
}

/// The journal that a query names.
async fn journal(door: &Door, asked: &Asked) -> Option<Arc<Journal>> {
    let run = run_of(asked.get("stream_id")?.trim())?;
    match door.journals.of(run).await {
        Ok(journal) => journal,
        Err(error) => {
            tracing::error!(%error, "the stream of a turn cannot be read");
            None
        }
    }
}

/// Where a client was: the query before the header, and nothing that cannot be placed.
fn cursor(stream: &str, asked: &Asked, headers: &HeaderMap) -> Cursor {
    let named = |text: &str| match text.rsplit_once(':') {
        Some((of, number)) if of == stream => number.parse().ok(),
        _ => None,
    };
    let number = if let Some(after) = asked.get("after_seq").filter(|after| !after.is_empty()) {
        after.parse().ok()
    } else if let Some(after) = asked.get("after_event_id").filter(|after| !after.is_empty()) {
        named(after)
    } else if asked.contains_key("after_seq") || asked.contains_key("replay") {
        None
    } else {
        headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(named)
    };
    number.map_or(Cursor::Start, Cursor::Behind)
}

async fn stream(State(door): State<Arc<Door>>, asked: Asked, headers: HeaderMap) -> Response {
    let Some(journal) = journal(&door, &asked).await else {
        return problem(StatusCode::NOT_FOUND, "stream not found");
    };
    let cursor = cursor(&journal.id(), &asked, &headers);
    sse::stream_reply(journal.follow(cursor), "heartbeat")
}

async fn status(State(door): State<Arc<Door>>, asked: Asked) -> Response {
    let stream = asked.get("stream_id").cloned().unwrap_or_default();
    let Some(journal) = journal(&door, &asked).await else {
        return reply::ok(&json!({ "active": false, "stream_id": stream, "replay_available": false }));
    };
    let standing = journal.standing();
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

async fn cancel(State(door): State<Arc<Door>>, asked: Asked) -> Response {
    let Some(stream) = asked.get("stream_id").filter(|stream| !stream.trim().is_empty()) else {
        return problem(StatusCode::BAD_REQUEST, "stream_id is required");
    };
    let told = |cancelled: bool| reply::ok(&json!({ "ok": true, "cancelled": cancelled, "stream_id": stream }));
    let Some(journal) = journal(&door, &asked).await.filter(|journal| !journal.standing().is_over) else {
        return told(false);
    };
    match door.context.chats.stop_run(&journal.session, journal.run).await {
        Ok(cancelled) => told(cancelled),
        Err(error) => Rejection::from(error).into_response(),
    }
}

async fn steer(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let (session, text) = (fields::session(&body)?, fields::required(&body, "text")?);
    Ok(match door.context.chats.steer(&session, text, None).await? {
        Some(run) => reply::ok(&json!({ "accepted": true, "stream_id": stream_id(run) })),
        None => reply::ok(&json!({ "accepted": false, "fallback": "not_running" })),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::{extract::Query, http::HeaderMap};

    use super::{Cursor, cursor};

    #[test]
    fn a_query_goes_before_the_header_and_what_is_not_understood_begins_anew() {
        for (query, header, want) in [
            (&[][..], None, Cursor::Start),
            (&[], Some("s:4"), Cursor::Behind(4)),
            (&[], Some("t:4"), Cursor::Start),
            (&[], Some("::x"), Cursor::Start),
            (&[("after_seq", "3")], Some("s:4"), Cursor::Behind(3)),
            (&[("after_seq", "0"), ("replay", "1"), ("after_event_id", "")], None, Cursor::Behind(0)),
            (&[("after_seq", "-3")], None, Cursor::Start),
            (&[("after_seq", "")], Some("s:4"), Cursor::Start),
            (&[("after_event_id", "s:9")], None, Cursor::Behind(9)),
            (&[("replay", "1")], Some("s:4"), Cursor::Start),
        ] {
            let pairs = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let asked = Query(pairs.collect::<BTreeMap<_, _>>());
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert("last-event-id", header.parse().unwrap());
            }
            assert_eq!(cursor("s", &asked, &headers), want, "{query:?} {header:?}");
        }
    }
}
