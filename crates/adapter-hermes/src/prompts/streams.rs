//! Open streams: the two queues of a session, the session itself, and the list of all of them.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use bytes::Bytes;
use countersign_conversations::sessions::find_session;
use countersign_core::{engine::Engine, id::SessionId};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{HttpCaller, sse},
};
use countersign_runtime::InboxLane;
use futures_util::stream;
use serde_json::json;
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

use super::{
    super::{transcript, turn_stream},
    BroadcastGuard, OwnerClosed, SessionPrompts,
    prompt_broadcast::SessionNotice,
    prompt_card,
    queue::HasPromptKind,
};

/// Comment that keeps an idle stream alive.
const ALIVE: &str = "keepalive";

/// Answers a poll of one queue. An unknown session has an empty queue.
pub(super) async fn poll_queue<Q: HasPromptKind>(
    State(prompts): State<Arc<SessionPrompts>>,
    Extension(caller): Extension<HttpCaller>,
    uri: Uri,
) -> Response {
    let Some(session) = super::session_in(&uri) else {
        return reply::ok(&json!({ "pending": null, "pending_count": 0 }));
    };
    prompts.mark_shown(Q::KIND, &caller, &session);
    match prompts.read_queues(&session).await {
        Ok(queues) => reply::ok(&queues.state_json(Q::KIND)),
        Err(closed) => HttpProblem::from(closed).response_for(uri.path()),
    }
}

/// Streams one queue: its state, then every newer one. A slow reader gets the newest.
pub(super) async fn stream_queue<Q: HasPromptKind>(
    State(prompts): State<Arc<SessionPrompts>>,
    Extension(caller): Extension<HttpCaller>,
    uri: Uri,
) -> Response {
    let Some(session) = super::session_in(&uri) else { return super::without_session(&uri) };
    prompts.mark_shown(Q::KIND, &caller, &session);
    let ((first, states), seat) = match prompts.watch_queue(&session, Q::KIND).await {
        Ok(watched) => watched,
        Err(closed) => return HttpProblem::from(closed).response_for(uri.path()),
    };
    let frames = stream::unfold((Some(initial_frame(&first)), states, seat), async |(first, mut states, seat)| {
        let frame = match first {
            Some(first) => first,
            None => {
                states.changed().await.ok()?;
                states.borrow_and_update().clone()
            }
        };
        Some((frame, (None, states, seat)))
    });
    sse::stream_reply(frames, ALIVE)
}

/// Returns the frame of a state as the first of its stream.
fn initial_frame(state: &Bytes) -> Bytes {
    let data = state.iter().position(|byte| *byte == b'\n').unwrap_or_default();
    [b"event: initial", &state[data..]].concat().into()
}

/// Subscription of a session.
struct SessionSubscription {
    first: Option<Bytes>,
    notices: Receiver<SessionNotice>,
    /// Number of the last notice that was sent, or that existed before the subscription.
    last: u64,
    seat: BroadcastGuard,
}

impl SessionSubscription {
    /// Returns the current state, as far as it was not sent, and follows from here on.
    fn catch_up(&mut self) -> Bytes {
        let boards = self.seat.prompts.broadcasts.lock();
        // There is one for as long as it has readers.
        let Some(board) = boards.by_session.get(&self.seat.session) else { return Bytes::new() };
        let stands = board.missed_frames(self.last);
        (self.notices, self.last) = board.subscribe_notices();
        stands
    }
}

/// Streams a session: its pending gates, and its events.
pub(super) async fn stream_session(State(prompts): State<Arc<SessionPrompts>>, uri: Uri) -> Response {
    let Some(session) = super::session_in(&uri) else { return super::without_session(&uri) };
    let known = match super::query_parameter(&uri, "known_count").map(|count| count.parse::<usize>()) {
        None => None,
        Some(Ok(count)) => Some(count),
        Some(Err(_)) => {
            let why = "known_count must be a whole number from 0 on";
            return HttpProblem::new(StatusCode::BAD_REQUEST, why).response_for(uri.path());
        }
    };
    let listening = match subscribe_session(&prompts, &session, known).await {
        Ok(listening) => listening,
        Err(closed) => return HttpProblem::from(closed).response_for(uri.path()),
    };
    let frames = stream::unfold(listening, async |mut listening: SessionSubscription| {
        if let Some(first) = listening.first.take() {
            return Some((first, listening));
        }
        loop {
            match listening.notices.recv().await {
                Ok(notice) => {
                    listening.last = notice.number;
                    return Some((notice.frame, listening));
                }
                Err(RecvError::Closed) => return None,
                // Missed notices are not sent any more; the current state is.
                Err(RecvError::Lagged(_)) => {
                    let now = listening.catch_up();
                    if !now.is_empty() {
                        return Some((now, listening));
                    }
                }
            }
        }
    });
    sse::stream_reply(frames, ALIVE)
}

/// Subscribes to a session: the first frame is its state.
async fn subscribe_session(
    prompts: &Arc<SessionPrompts>,
    session: &SessionId,
    known: Option<usize>,
) -> Result<SessionSubscription, OwnerClosed> {
    // Before it is read, so that no change is missed.
    let ((notices, last), seat) = prompts.join_broadcast(session, super::PromptBroadcast::subscribe_notices)?;
    prompts.refresh_sessions(&BTreeSet::from([session.clone()])).await?;
    let of = session.clone();
    let look = move |engine: &Engine| {
        let session = find_session(engine, &of);
        let run = session.and_then(|session| session.run().or_else(|| session.awaited_run()));
        (transcript::shown_count(engine, &of), run)
    };
    let (here, _) = prompts.handle.source(InboxLane::Request).read_state(look).await.ok_or(OwnerClosed)?;
    let (count, run) = here;
    let mut first = Vec::from(sse::encode_frame(None, "initial", &json!({ "session_id": session })));
    if let Some(run) = run {
        let started = json!({
            "session_id": session,
            "run_id": run.to_string(),
            "stream_id": turn_stream::stream_id(run),
            "input_type": "chat",
            "recovered": true,
            "route": prompt_card::session_route(session.as_str()),
        });
        first.extend(sse::encode_frame(None, "server_turn_started", &started));
    } else if known.is_some_and(|known| known < count) {
        let updated = json!({ "session_id": session, "message_count": count });
        first.extend(sse::encode_frame(None, "session-updated", &updated));
    }
    first.extend(seat.approval_frames());
    Ok(SessionSubscription { first: Some(first.into()), notices, last, seat })
}

impl BroadcastGuard {
    /// Returns every pending approval as the session's stream shows it.
    fn approval_frames(&self) -> Bytes {
        let boards = self.prompts.broadcasts.lock();
        boards.by_session.get(&self.session).map(super::PromptBroadcast::approval_frames).unwrap_or_default()
    }
}

/// Streams changes of the list of sessions, with their reasons.
pub(super) async fn stream_list(State(prompts): State<Arc<SessionPrompts>>, uri: Uri) -> Response {
    let changes = prompts.broadcasts.lock().changes.as_ref().map(Sender::subscribe);
    let Some(changes) = changes else { return HttpProblem::from(OwnerClosed).response_for(uri.path()) };
    let frames = stream::unfold((changes, prompts), async |(mut changes, prompts)| {
        let change = match changes.recv().await {
            Ok(change) => change,
            Err(RecvError::Closed) => return None,
            Err(RecvError::Lagged(_)) => {
                changes = changes.resubscribe();
                super::list_change_frame("resync", prompts.broadcasts.lock().version, None)
            }
        };
        Some((change, (changes, prompts)))
    });
    sse::stream_reply(frames, ALIVE)
}

/// Answers whether sessions of another program are followed here: they are not.
pub(super) async fn gateway_status() -> Response {
    let body = json!({
        "enabled": false,
        "ok": false,
        "watcher_running": false,
        "fallback_poll_ms": 30_000,
        "scope": "gateway_sessions",
        "session_stream_available": true,
        "session_stream_path": "/api/session/stream",
        "error": "No other gateway is followed here",
    });
    reply::json(StatusCode::NOT_FOUND, &body)
}
