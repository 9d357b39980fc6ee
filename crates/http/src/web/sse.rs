//! Server-sent events: frames that are made once for everybody who reads them, and streams that show that they live.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::Stream;
use serde::Serialize;
use tokio::time::{Instant, Sleep};

/// Longest silence on a stream. Phones take one for dead after twelve seconds.
const SILENCE: Duration = Duration::from_secs(5);

/// Encodes one event. Line breaks cannot occur in JSON text. It takes no more room than it has bytes: many are kept.
pub fn encode_frame<T: Serialize + ?Sized>(id: Option<&str>, event: &str, data: &T) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
    let named = id.map_or(["", "", ""], |id| ["id: ", id, "\n"]);
    let parts = [named[0], named[1], named[2], "event: ", event, "\ndata: ", data.as_str(), "\n\n"];
    Bytes::from(parts.concat())
}

/// Returns a streamed reply: the frames of `frames`, and `note` as a comment after each silence.
pub fn stream_reply(frames: impl Stream<Item = Bytes> + Send + 'static, note: &'static str) -> Response {
    let frames = KeepAliveStream { frames: Box::pin(frames), note, silence: Box::pin(tokio::time::sleep(SILENCE)) };
    let mut response = Response::new(Body::from_stream(frames));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

struct KeepAliveStream {
    frames: Pin<Box<dyn Stream<Item = Bytes> + Send>>,
    note: &'static str,
    silence: Pin<Box<Sleep>>,
}

impl Stream for KeepAliveStream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let given = match self.frames.as_mut().poll_next(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(frame)) => frame,
            Poll::Pending => {
                std::task::ready!(self.silence.as_mut().poll(context));
                Bytes::from(format!(": {}\n\n", self.note))
            }
        };
        self.silence.as_mut().reset(Instant::now() + SILENCE);
        Poll::Ready(Some(Ok(given)))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use serde_json::json;
    use tokio::time::Instant;

    use super::{SILENCE, encode_frame, stream_reply};

    #[test]
    fn an_event_is_written_in_lines() {
        let encoded = encode_frame(Some("s:1"), "token", &json!({ "text": "a\nb\u{2028}" }));
        assert_eq!(encoded, "id: s:1\nevent: token\ndata: {\"text\":\"a\\nb\u{2028}\"}\n\n");
        assert_eq!(encode_frame(None, "initial", &json!(null)), "event: initial\ndata: null\n\n");
    }

    #[test]
    fn an_event_takes_no_more_room_than_it_has_bytes() {
        for id in [None, Some("s:1")] {
            let encoded = encode_frame(id, "done", &json!({ "text": "x".repeat(10_000) }));
            let length = encoded.len();
            assert_eq!(encoded.try_into_mut().unwrap().capacity(), length);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_on_which_nothing_happens_shows_that_it_lives() {
        let frames = stream::iter([Bytes::from_static(b"one")]).chain(stream::pending());
        let body: Body = stream_reply(frames, "keepalive").into_body();
        let mut events = body.into_data_stream();
        let begun = Instant::now();
        assert_eq!(events.next().await.unwrap().unwrap(), "one");
        assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
        for at in [1, 2] {
            assert_eq!(events.next().await.unwrap().unwrap(), ": keepalive\n\n");
            assert!(begun.elapsed() >= SILENCE * at && begun.elapsed() < SILENCE * at + SILENCE / 2);
        }
    }
}
