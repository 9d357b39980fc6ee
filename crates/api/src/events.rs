//! Everything that happens, as one stream that can be taken up wherever it was left. Source: docs/protocol/api.md, Events.

mod feed;
mod frame;

use std::{pin::Pin, sync::Arc};

use axum::{
    Extension,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
};
use bytes::Bytes;
use countersign_core::id::Lsn;
use countersign_runtime::store::{Log as _, Partition};
use futures_util::{Stream, StreamExt as _, stream};

pub(super) use feed::Feed;
pub(super) use frame::View;

use super::{
    Answered, Api, Failure,
    cursor::Cursor,
    params::Params,
    wire::events::{ReadyData, ResetData},
};
use countersign_http::{listen::ConnectionInfo, web::sse};

/// `GET /api/v1/events`.
pub(super) async fn stream(
    State(api): State<Arc<Api>>,
    guest: Option<Extension<ConnectionInfo>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answered {
    let params = Params::of(query.as_deref(), &["after", "live", "content"])?;
    // A browser that connects again asks as it did at first, and says beside it how far it came.
    let last = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let asked = last.filter(|last| !last.is_empty()).or_else(|| params.get("after"));
    let log = api.context.handle.log();
    let (first, after) = match asked {
        None | Some("now") => {
            let head = log.head(Partition::ZERO).await?;
            (ready(&Cursor::of(head)), head.lsn)
        }
        Some(text) => {
            let cursor = if text == "start" { Some(Cursor::START) } else { Cursor::parse(text) };
            let no_cursor = || Failure::bad(format!("{text:?} is no cursor: give the id of an event, start, or now"));
            let cursor = cursor.ok_or_else(no_cursor)?;
            match cursor.place(log).await? {
                Ok(lsn) => (ready(&Cursor::at(log, lsn).await?), lsn),
                Err(misplaced) => {
                    let told = ResetData { asked: text, reason: misplaced, after: Cursor::START };
                    (sse::encode_frame(Some(&Cursor::START.to_string()), "reset", &told), Lsn(0))
                }
            }
        }
    };
    let feed = if params.flag("content")? { &api.whole } else { &api.plain };
    let follower = feed.follow(after, params.flag("live")?);
    if guest.is_some_and(|Extension(guest)| !guest.place.mark_authenticated()) {
        return Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the gateway needs this connection for somebody else",
        ));
    }
    let rest = stream::unfold(follower, |mut follower| async move { Some((follower.next().await?, follower)) });
    let frames: Pin<Box<dyn Stream<Item = Bytes> + Send>> = Box::pin(stream::iter([first]).chain(rest));
    Ok(sse::stream_reply(frames, "keepalive"))
}

/// Says from where it goes on.
fn ready(after: &Cursor) -> Bytes {
    sse::encode_frame(Some(&after.to_string()), "ready", &ReadyData { after: after.clone() })
}
