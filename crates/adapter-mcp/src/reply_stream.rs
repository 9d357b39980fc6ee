//! Stream of one request over HTTP. It ends with the reply, or with the reason why there is none.
//!
//! It must not know why a session ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use countersign_foreign_calls::Delivery;
use futures_util::Stream;
use rmcp::{
    ErrorData,
    model::{JsonRpcMessage, RequestId},
    transport::streamable_http_server::session::ServerSseMessage,
};

use crate::admission::{fault_reply, replied_id};

/// Returns the reason why a request gets no reply. None if the client cancelled it.
pub(super) type MissingReply = Box<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// Messages about one request.
pub(super) struct ReplyStream<S> {
    messages: Pin<Box<S>>,
    id: RequestId,
    missing: MissingReply,
    /// Delivery of the outcome that the reply has.
    delivery: Option<Delivery>,
    has_replied: bool,
    is_over: bool,
}

impl<S> ReplyStream<S> {
    pub(super) fn new(messages: S, id: RequestId, missing: MissingReply, delivery: Option<Delivery>) -> Self {
        Self { messages: Box::pin(messages), id, missing, delivery, has_replied: false, is_over: false }
    }
}

impl<S: Stream<Item = ServerSseMessage>> Stream for ReplyStream<S> {
    type Item = ServerSseMessage;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(message) = ready!(this.messages.as_mut().poll_next(context)) {
            this.has_replied |= message.message.as_deref().and_then(replied_id) == Some(&this.id);
            return Poll::Ready(Some(message));
        }
        this.is_over = true;
        if this.has_replied {
            return Poll::Ready(None);
        }
        // The end of the stream would count as the delivery of an outcome that was not sent.
        this.delivery.iter().for_each(Delivery::abandon);
        let missing = (this.missing)().map(|reason| {
            let fault = fault_reply(Some(this.id.clone()), ErrorData::internal_error(reason, None));
            ServerSseMessage::from_message(JsonRpcMessage::Error(*fault))
        });
        Poll::Ready(missing)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use rmcp::model::{RequestId, ServerJsonRpcMessage};
    use serde_json::{Value, json};

    use super::{ReplyStream, ServerSseMessage};

    fn message(message: Value) -> ServerSseMessage {
        ServerSseMessage::from_message(serde_json::from_value::<ServerJsonRpcMessage>(message).unwrap())
    }

    fn shown(message: ServerSseMessage) -> Value {
        serde_json::to_value(message.message.unwrap().as_ref()).unwrap()
    }

    #[test]
    fn a_stream_ends_with_the_reply_or_with_the_reason_why_there_is_none() {
        let progress = json!({
            "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": 1.0 },
        });
        let reply = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "result": {} });
        let refusal = json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": -32602, "message": "no" } });
        let ended = json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": -32603, "message": "it ended" } });
        for (sent, missing, added) in [
            (vec![progress.clone(), reply(7)], Some("it ended"), None),
            (vec![refusal], Some("it ended"), None),
            (vec![progress.clone()], Some("it ended"), Some(&ended)),
            (vec![reply(8)], Some("it ended"), Some(&ended)),
            (vec![], Some("it ended"), Some(&ended)),
            (vec![progress.clone()], None, None),
        ] {
            let want: Vec<Value> = sent.iter().chain(added).map(|one| shown(message(one.clone()))).collect();
            let messages = stream::iter(sent.into_iter().map(message).collect::<Vec<_>>());
            let stream = ReplyStream::new(messages, RequestId::Number(7), Box::new(move || missing), None);
            let got = stream.map(shown).collect::<Vec<Value>>().now_or_never().unwrap();
            assert_eq!(got, want);
        }
    }
}
