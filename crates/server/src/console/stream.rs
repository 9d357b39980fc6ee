//! The stream of one window: what happened since what it shows, then whatever happens.

use std::sync::Arc;

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
use countersign_runtime::Lane;
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;

use super::{
    Console,
    live::{Joined, Topic, reload},
    page::Trouble,
};
use crate::web::{Caller, sse};

/// What a window shows.
#[derive(Deserialize)]
pub(super) struct Wanted {
    /// The last record that is part of it.
    after: Option<u64>,
    /// The session, if it shows one.
    session: Option<String>,
}

pub(super) async fn open(
    State(console): State<Arc<Console>>,
    Extension(_): Extension<Caller>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    // A browser that comes back by itself says what it heard last.
    let heard = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = Lsn(heard.or(wanted.after).unwrap_or(0));
    let session = wanted.session.filter(|session| !session.is_empty()).map(SessionId::new);
    let read = |engine: &Engine| engine.state().head();
    let (head, _) = console.site.handle.source(Lane::Request).read(read).await.ok_or_else(Trouble::closing)?;
    let Joined { mut first, then } = console.live.join(after, session.as_ref());
    if after > head {
        // It shows another record than this one.
        first = vec![reload()];
    }
    let hello = sse::frame(None, "hello", &serde_json::json!({ "now": console.site.clock.now().0 }));
    let rest = stream::unfold((then, session), |(mut then, session)| async move {
        loop {
            match then.recv().await {
                Ok(told) => {
                    let is_wanted = match &told.topic {
                        Topic::Gates => true,
                        Topic::Session(of) => session.as_ref() == Some(of),
                        Topic::End => return None,
                    };
                    if is_wanted {
                        return Some((told.bytes, (then, session)));
                    }
                }
                // What it missed is gone: it looks at everything again.
                Err(RecvError::Lagged(_)) => return Some((reload(), (then, session))),
                Err(RecvError::Closed) => return None::<(Bytes, _)>,
            }
        }
    });
    Ok(sse::reply(stream::iter(std::iter::once(hello).chain(first)).chain(rest), "keepalive"))
}
