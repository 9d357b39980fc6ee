//! Requests of a connection that take effect in the order in which they came.

use axum::extract::ws::Utf8Bytes;
use countersign_protocol::gsv::{GsvRequestId, frame};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::{method_result::MethodResult, outbox::ConnectionOutbox, request_load::RequestPermit};

/// Request that is being handled. It returns its answer, or `None` if the answer comes later by itself.
pub(super) type RequestFuture = BoxFuture<'static, Option<(Utf8Bytes, RequestPermit)>>;

/// Sender of the requests of a connection to the task that handles them one after the other.
pub(super) struct OrderedRequests(mpsc::UnboundedSender<RequestFuture>);

impl OrderedRequests {
    /// Starts the task. It handles all requests to the last of them, whether or not the peer stays.
    pub(super) fn start(outbox: ConnectionOutbox) -> Self {
        let (requests, mut works) = mpsc::unbounded_channel::<RequestFuture>();
        tokio::spawn(async move {
            while let Some(work) = works.recv().await {
                if let Some((answer, _held)) = work.await {
                    // A peer that is gone needs no answer.
                    let _ = outbox.send_frame(answer);
                }
            }
        });
        Self(requests)
    }

    /// Adds a request. Returns false if the task has ended, which only a bug causes: then no request would ever be answered.
    pub(super) fn push(&self, request: RequestFuture) -> bool {
        self.0.send(request).is_ok()
    }
}

/// Returns the frame that answers a request.
pub(super) fn answer_frame(id: &GsvRequestId, result: MethodResult) -> Utf8Bytes {
    match result {
        Ok(payload) => frame::encode_response(id, &payload).into(),
        Err(fault) => frame::encode_error(id, &fault).into(),
    }
}
