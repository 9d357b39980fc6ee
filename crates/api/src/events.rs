//! All events, as one stream that can be resumed at any position. Source: docs/protocol/api.md, Events.

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

pub(super) use feed::EventFeed;
pub(super) use frame::ContentMode;

use super::{
    ApiError, ApiResult, ApiState,
    cursor::RecordCursor,
    params::QueryParams,
    wire::events::{ReadyData, ResetData},
};
use countersign_http::{listen::ConnectionInfo, web::sse};

/// Handles `GET /api/v1/events`.
pub(super) async fn stream_events(
    State(api): State<Arc<ApiState>>,
    connection: Option<Extension<ConnectionInfo>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> ApiResult {
    let params = QueryParams::from_query(query.as_deref(), &["after", "live", "content"])?;
    // A browser that reconnects repeats its request, and adds the last id.
    let last = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let requested = last.filter(|last| !last.is_empty()).or_else(|| params.get("after"));
    let log = api.context.handle.log();
    let (first, after) = match requested {
        None | Some("now") => {
            let head = log.head(Partition::ZERO).await?;
            (ready_frame(&RecordCursor::from_head(head)), head.lsn)
        }
        Some(text) => {
            let cursor = if text == "start" { Some(RecordCursor::START) } else { RecordCursor::parse(text) };
            let no_cursor = || {
                ApiError::bad_request(format!("invalid cursor {text:?}: expected the id of an event, start, or now"))
            };
            let cursor = cursor.ok_or_else(no_cursor)?;
            match cursor.resolve_lsn(log).await? {
                Ok(lsn) => (ready_frame(&RecordCursor::at_lsn(log, lsn).await?), lsn),
                Err(misplaced) => {
                    let reset = ResetData { requested: text, reason: misplaced, after: RecordCursor::START };
                    (sse::encode_frame(Some(&RecordCursor::START.to_string()), "reset", &reset), Lsn(0))
                }
            }
        }
    };
    let feed = if params.get_flag("content")? { &api.whole } else { &api.plain };
    let follower = feed.start_follower(after, params.get_flag("live")?);
    if connection.is_some_and(|Extension(connection)| !connection.place.mark_authenticated()) {
        return Err(ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the gateway has too many connections: try again later",
        ));
    }
    let rest = stream::unfold(follower, |mut follower| async move { Some((follower.next().await?, follower)) });
    let frames: Pin<Box<dyn Stream<Item = Bytes> + Send>> = Box::pin(stream::iter([first]).chain(rest));
    Ok(sse::stream_reply(frames, "keepalive"))
}

/// Returns the frame with the position from which the stream continues.
fn ready_frame(after: &RecordCursor) -> Bytes {
    sse::encode_frame(Some(&after.to_string()), "ready", &ReadyData { after: after.clone() })
}
