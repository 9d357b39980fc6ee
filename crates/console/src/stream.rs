//! The stream of one window: what happened since what it shows, then whatever happens.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Query, State},
    http::HeaderMap,
    response::Response,
};
use bytes::Bytes;
use countersign_core::{
    engine::Engine,
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
    Console,
    live::{Joined, Told, Topic, reload, stirred},
    page::Trouble,
};

/// How often a list is read again at most.
const GAP: Duration = Duration::from_secs(2);

/// What a window shows.
#[derive(Deserialize)]
pub(super) struct Wanted {
    /// The last record that is part of it.
    after: Option<u64>,
    /// The session, if it shows one.
    session: Option<String>,
    /// There if it shows a list of whatever is recorded.
    all: Option<String>,
}

/// One window.
struct Window {
    then: broadcast::Receiver<Told>,
    session: Option<SessionId>,
    /// There if it shows a list.
    recorded: Option<watch::Receiver<Lsn>>,
    /// When its list may be read again.
    rested: Instant,
}

impl Window {
    /// Ready once something was recorded that a list does not show, but not too soon after the last time. Never without a list.
    async fn stirred(recorded: &mut Option<watch::Receiver<Lsn>>, rested: Instant) {
        let Some(follower) = recorded else { return std::future::pending().await };
        tokio::time::sleep_until(rested).await;
        if follower.changed().await.is_err() {
            std::future::pending().await
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let told = tokio::select! {
                told = self.then.recv() => told,
                () = Self::stirred(&mut self.recorded, self.rested) => {
                    self.rested = Instant::now() + GAP;
                    return Some(stirred());
                }
            };
            match told {
                Ok(told) => {
                    let is_wanted = match &told.topic {
                        Topic::Gates => true,
                        Topic::Session(of) => self.session.as_ref() == Some(of),
                        Topic::End => return None,
                    };
                    if is_wanted {
                        return Some(told.bytes);
                    }
                }
                // What it missed is gone: it looks at everything again.
                Err(RecvError::Lagged(_)) => return Some(reload()),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

pub(super) async fn open(
    State(console): State<Arc<Console>>,
    Extension(_): Extension<HttpCaller>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    // A browser that comes back by itself says what it heard last.
    let heard = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = Lsn(heard.or(wanted.after).unwrap_or(0));
    let session = wanted.session.filter(|session| !session.is_empty()).map(SessionId::new);
    let read = |engine: &Engine| engine.state().head_lsn();
    let (head, _) =
        console.context.handle.source(InboxLane::Request).read_state(read).await.ok_or_else(Trouble::closing)?;
    let Joined { mut first, then, recorded } = console.live.join(after, session.as_ref());
    let is_list = wanted.all.is_some();
    if after > head {
        // It shows another record than this one.
        first = vec![reload()];
    } else if is_list && after < head.max(*recorded.borrow()) {
        first.push(stirred());
    }
    let hello = sse::encode_frame(None, "hello", &serde_json::json!({ "now": console.context.clock.now().0 }));
    let recorded = is_list.then_some(recorded);
    let window = Window { then, session, recorded, rested: Instant::now() };
    let rest = stream::unfold(window, |mut window| async move { window.next().await.map(|bytes| (bytes, window)) });
    Ok(sse::stream_reply(stream::iter(std::iter::once(hello).chain(first)).chain(rest), "keepalive"))
}
