//! Streams end when their reader's authentication ends: a token that was removed, a cookie that was revoked.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream},
    http::HeaderMap,
    response::Response,
};
use bytes::Bytes;
use futures_util::Stream;
use tokio::time::{Instant, Sleep};

use super::auth::WebAuth;

/// Interval of the check.
const LOOK: Duration = Duration::from_secs(5);
/// Greatest age of the check when something is sent.
const FRESH: Duration = Duration::from_secs(1);

/// Returns the response, which ends once `shown` is no longer valid.
pub(super) fn while_known(response: Response, auth: Arc<WebAuth>, shown: HeaderMap) -> Response {
    response.map(|body| {
        let look = Box::pin(tokio::time::sleep(LOOK));
        Body::from_stream(AuthorizedStream {
            frames: body.into_data_stream(),
            auth,
            shown,
            look,
            looked: Instant::now(),
        })
    })
}

struct AuthorizedStream {
    frames: BodyDataStream,
    auth: Arc<WebAuth>,
    shown: HeaderMap,
    look: Pin<Box<Sleep>>,
    looked: Instant,
}

impl AuthorizedStream {
    fn is_known(&mut self) -> bool {
        self.looked = Instant::now();
        self.auth.find_caller(&self.shown).is_some()
    }
}

impl Stream for AuthorizedStream {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.look.as_mut().poll(context).is_ready() {
            if !self.is_known() {
                return Poll::Ready(None);
            }
            self.look.as_mut().reset(Instant::now() + LOOK);
        }
        let frame = std::task::ready!(Pin::new(&mut self.frames).poll_next(context));
        if frame.is_some() && self.looked.elapsed() >= FRESH && !self.is_known() {
            return Poll::Ready(None);
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::HeaderMap, response::Response};
    use bytes::Bytes;
    use countersign_core::time::Millis;
    use countersign_runtime::Clock;
    use futures_util::{StreamExt as _, stream};
    use secrecy::SecretString;
    use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

    use super::{LOOK, while_known};
    use crate::web::auth::{COOKIE, WebAuth};
    use countersign_config::WebConfig;

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_soon_after_its_reader_left() {
        let folder = tempfile::tempdir().unwrap();
        let web = WebConfig { password: Some(SecretString::from("all".to_owned())), users: Vec::new() };
        let clock = Clock::starting_at(Millis(1_000));
        let auth = Arc::new(WebAuth::open(folder.path(), web, clock, Vec::new(), false, None).unwrap());
        let cookie = auth.log_in(Ipv4Addr::LOCALHOST.into(), "all").unwrap();
        let mut shown = HeaderMap::new();
        shown.insert("cookie", format!("{COOKIE}={cookie}").parse().unwrap());
        let frames = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"one"))]).chain(stream::pending());
        let response = while_known(Response::new(Body::from_stream(frames)), Arc::clone(&auth), shown.clone());
        let mut events = response.into_body().into_data_stream();
        assert_eq!(events.next().await.unwrap().unwrap(), "one");
        assert!(tokio::time::timeout(LOOK * 3, events.next()).await.is_err(), "it goes on");
        auth.log_out(&shown).await.unwrap();
        assert!(tokio::time::timeout(LOOK * 2, events.next()).await.unwrap().is_none());
    }
}
