//! Event stream of one window: changes since its page, then live ones.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Query, State},
    http::HeaderMap,
    response::Response,
};
use bytes::Bytes;
use countersign_conversations::sessions::find_session;
use countersign_core::{
    engine::{Engine, ResidencyScope},
    id::{Lsn, SessionId},
};
use countersign_http::web::{HttpCaller, sse};
use countersign_runtime::InboxLane;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        watch,
    },
    time::Instant,
};

use super::{
    ConsoleState,
    live::{ConsoleUpdate, LiveSubscription, UpdateTopic, reload_frame, stirred_frame},
    page::PageError,
};

/// Shortest time between two reads of a list.
const GAP: Duration = Duration::from_secs(2);

/// Contents of a window.
#[derive(Deserialize)]
pub(super) struct StreamQuery {
    /// Last record that is part of it.
    after: Option<u64>,
    /// Session, if it shows one.
    session: Option<String>,
    /// Present if it shows a list of all records.
    all: Option<String>,
}

/// One window.
struct LiveStream {
    then: broadcast::Receiver<ConsoleUpdate>,
    session: Option<SessionId>,
    /// Receiver, if it shows a list.
    recorded: Option<watch::Receiver<Lsn>>,
    /// Time from which its list may be read again.
    rested: Instant,
}

impl LiveStream {
    /// Waits until something was recorded that a list does not show, but not too soon after the last time. It never returns without a list.
    async fn wait_stirred(recorded: &mut Option<watch::Receiver<Lsn>>, rested: Instant) {
        let Some(follower) = recorded else { return std::future::pending().await };
        tokio::time::sleep_until(rested).await;
        if follower.changed().await.is_err() {
            std::future::pending().await
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let received = tokio::select! {
                message = self.then.recv() => message,
                () = Self::wait_stirred(&mut self.recorded, self.rested) => {
                    self.rested = Instant::now() + GAP;
                    return Some(stirred_frame());
                }
            };
            match received {
                Ok(update) => {
                    let is_wanted = match &update.topic {
                        UpdateTopic::Gates => true,
                        UpdateTopic::Session(of) => self.session.as_ref() == Some(of),
                        UpdateTopic::End => return None,
                    };
                    if is_wanted {
                        return Some(update.bytes);
                    }
                }
                // Missed frames are gone: the window reloads.
                Err(RecvError::Lagged(_)) => return Some(reload_frame()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

pub(super) async fn open_stream(
    State(console): State<Arc<ConsoleState>>,
    Extension(_): Extension<HttpCaller>,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    // A browser that reconnects sends its last event id.
    let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = Lsn(last_event_id.or(query.after).unwrap_or(0));
    let session = query.session.filter(|session| !session.is_empty()).map(SessionId::new);
    let source = console.context.handle.source(InboxLane::Request);
    if let Some(id) = session.clone() {
        let of = id.clone();
        let read = move |engine: &Engine| find_session(engine, &of).is_some();
        let (is_there, _) =
            source.read_of(ResidencyScope::Session(id.clone()), read).await.ok_or_else(PageError::gateway_closing)?;
        if !is_there {
            return Err(PageError::not_found(format!("session {id}")));
        }
    }
    let read = |engine: &Engine| engine.state().head_lsn();
    let (head, _) = source.read_state(read).await.ok_or_else(PageError::gateway_closing)?;
    let LiveSubscription { mut first, then, recorded } = console.live.join(after, session.as_ref());
    let is_list = query.all.is_some();
    if after > head {
        // It shows another record than this one.
        first = vec![reload_frame()];
    } else if is_list && after < head.max(*recorded.borrow()) {
        first.push(stirred_frame());
    }
    let hello = sse::encode_frame(None, "hello", &serde_json::json!({ "now": console.context.clock.now().0 }));
    let recorded = is_list.then_some(recorded);
    let window = LiveStream { then, session, recorded, rested: Instant::now() };
    let rest = stream::unfold(window, |mut window| async move { window.next().await.map(|bytes| (bytes, window)) });
    Ok(sse::stream_reply(stream::iter(std::iter::once(hello).chain(first)).chain(rest), "keepalive"))
}
