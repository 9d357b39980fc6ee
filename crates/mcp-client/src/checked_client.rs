//! HTTP client of rmcp that checks messages before they are decoded: the decoder drops an unknown mode of a request for input, and takes
//! the request for a form.
//!
//! It must not ask anyone.

use std::{collections::HashMap, sync::Arc};

use futures_util::StreamExt as _;
use reqwest::{
    Client,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcMessage},
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{
            StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
        },
    },
};

use crate::{
    checked_post::{PostTarget, may_want_input, post_request},
    elicitation::refuse_unknown_mode,
};

/// Headers of a request.
type Headers = HashMap<HeaderName, HeaderValue>;
/// Failure of a request.
type HttpError = StreamableHttpError<reqwest::Error>;

/// The client.
#[derive(Clone, Debug)]
pub(crate) struct CheckedClient(pub(crate) Client);

impl StreamableHttpClient for CheckedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.0.post_message(uri, message, session_id, auth_header, custom_headers).await.and_then(check_response)
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let posted = self.0.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            max_sse_event_size,
        );
        posted.await.and_then(check_response)
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        if may_want_input(&message) {
            let body = serde_json::to_vec(&message).map_err(HttpError::Deserialize)?;
            let target = PostTarget { uri, session: session_id, token: auth_header, headers: custom_headers };
            return post_request(&self.0, target, body, limits).await.and_then(check_response);
        }
        let posted =
            self.0.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits);
        posted.await.and_then(check_response)
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), HttpError> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxedSseResponse, HttpError> {
        let opened = self.0.get_stream(uri, session_id, last_event_id, auth_header, custom_headers);
        opened.await.map(check_stream)
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
        max_sse_event_size: usize,
    ) -> Result<BoxedSseResponse, HttpError> {
        let opened = self.0.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            max_sse_event_size,
        );
        opened.await.map(check_stream)
    }
}

/// Checks the messages of a stream. A body that is a request, of which no mode can be seen any more, is no answer.
fn check_response(response: StreamableHttpPostResponse) -> Result<StreamableHttpPostResponse, HttpError> {
    match response {
        StreamableHttpPostResponse::Sse(events, session) => {
            Ok(StreamableHttpPostResponse::Sse(check_stream(events), session))
        }
        StreamableHttpPostResponse::Json(JsonRpcMessage::Request(_), _) => {
            Err(HttpError::UnexpectedServerResponse("the body is a request, expected an answer".into()))
        }
        response => Ok(response),
    }
}

/// Replaces the messages that ask in an unknown mode.
fn check_stream(events: BoxedSseResponse) -> BoxedSseResponse {
    let checked = events.map(|event| {
        event.map(|mut event| {
            if let Some(refused) = event.data.as_deref().and_then(refuse_unknown_mode) {
                event.data = Some(refused);
            }
            event
        })
    });
    checked.boxed()
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use rmcp::transport::common::client_side_sse::BoxedSseResponse;
    use serde_json::{Value, json};

    use super::check_stream;

    #[test]
    fn a_message_of_a_stream_that_asks_in_an_unknown_mode_is_replaced_and_no_other() {
        let ask = |mode: &str| {
            let params =
                json!({ "mode": mode, "message": "m", "requestedSchema": { "type": "object", "properties": {} } });
            json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params })
        };
        let refused = json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": { "mode": "foo" } });
        let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": { "mode": "foo" } });
        for (sent, want) in [(ask("foo"), refused), (ask("form"), ask("form")), (answer.clone(), answer)] {
            let empty: BoxedSseResponse = stream::iter([Ok(Default::default())]).boxed();
            let events = empty.map(move |event| {
                event.map(|mut event| {
                    event.data = Some(sent.to_string());
                    event.id = Some("7".to_owned());
                    event
                })
            });
            let got = check_stream(events.boxed()).collect::<Vec<_>>().now_or_never().unwrap().remove(0).ok().unwrap();
            assert_eq!(serde_json::from_str::<Value>(&got.data.unwrap()).unwrap(), want);
            assert_eq!(got.id.as_deref(), Some("7"));
        }
    }
}
