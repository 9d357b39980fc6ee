//! POST of a request whose answer may want input from a person: a JSON body is checked as text before it is decoded.
//!
//! It must not ask anyone, and sends nothing twice. rmcp's own POST decodes a body where it cannot be seen before.

use std::{borrow::Cow, collections::HashMap, io, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, future};
use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        common::client_side_sse::BoxedSseResponse,
        streamable_http_client::{StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits},
    },
};
use rmcp_sse_stream::SseStream;

use crate::elicitation::refuse_unknown_mode;

/// Header with the session at the server.
const SESSION: &str = "mcp-session-id";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Failure of a request.
type HttpError = StreamableHttpError<reqwest::Error>;

/// Address and headers of a POST.
pub(crate) struct PostTarget {
    pub(crate) uri: Arc<str>,
    /// Session at the server.
    pub(crate) session: Option<Arc<str>>,
    /// Token of the server.
    pub(crate) token: Option<String>,
    pub(crate) headers: HashMap<HeaderName, HeaderValue>,
}

/// Reports whether the answer to a message may want input.
pub(crate) fn may_want_input(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Request(request) = message else { return false };
    matches!(
        &request.request,
        ClientRequest::CallToolRequest(_) | ClientRequest::ReadResourceRequest(_) | ClientRequest::GetPromptRequest(_)
    )
}

/// Sends a request, encoded as `body`, and reads the head of its answer, or all of an answer that is JSON.
///
/// # Errors
/// [`HttpError`], as those of rmcp's client.
pub(crate) async fn post_request(
    client: &Client,
    target: PostTarget,
    body: Vec<u8>,
    limits: StreamableHttpResponseLimits,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let PostTarget { uri, session, token, headers } = target;
    let mut request = client.post(&*uri).header(ACCEPT, format!("{EVENTS}, {JSON}")).header(CONTENT_TYPE, JSON);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let has_session = session.is_some();
    if let Some(session) = session {
        request = request.header(SESSION, &*session);
    }
    let response = request.body(body).send().await.map_err(HttpError::Client)?;
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == StatusCode::NOT_FOUND && has_session {
        return Err(HttpError::SessionExpired);
    }
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    let is_kind = |media: &str| kind.as_deref().is_some_and(|kind| media_type(kind).eq_ignore_ascii_case(media));
    let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
    if !status.is_success() {
        return match read_refusal(response, is_kind(JSON), limits).await {
            Some(refusal) => Ok(StreamableHttpPostResponse::Json(refusal, session)),
            None => Err(HttpError::UnexpectedServerResponse(Cow::Owned(format!("HTTP {status}")))),
        };
    }
    if is_kind(EVENTS) {
        return Ok(StreamableHttpPostResponse::Sse(read_events(response, limits.max_sse_event_size), session));
    }
    if is_kind(JSON) {
        let body = read_body(response, limits.max_json_response_size).await?;
        return Ok(StreamableHttpPostResponse::Json(decode_answer(&body)?, session));
    }
    Err(HttpError::UnexpectedContentType(kind))
}

/// Returns a media type without its parameters.
fn media_type(kind: &str) -> &str {
    kind.split(';').next().unwrap_or_default().trim()
}

/// Returns the error of JSON-RPC in an answer with an error status. One that is about credentials or too many requests keeps its status.
async fn read_refusal(
    response: Response,
    is_json: bool,
    limits: StreamableHttpResponseLimits,
) -> Option<ServerJsonRpcMessage> {
    let of_status =
        matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
    if of_status || !is_json {
        return None;
    }
    let body = read_body(response, limits.max_json_response_size).await.ok()?;
    let message: ServerJsonRpcMessage = serde_json::from_slice(&body).ok()?;
    matches!(message, JsonRpcMessage::Error(_)).then_some(message)
}

/// Reads a body of at most `most` bytes.
async fn read_body(mut response: Response, most: usize) -> Result<Vec<u8>, HttpError> {
    let too_large = || HttpError::ResponseBodyTooLarge { max_size: most };
    if response.content_length().is_some_and(|length| length > most as u64) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(HttpError::Client)? {
        if chunk.len() > most - body.len() {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Decodes an answer. One that wants input in an unknown mode becomes an error.
fn decode_answer(body: &[u8]) -> Result<ServerJsonRpcMessage, HttpError> {
    let refused = std::str::from_utf8(body).ok().and_then(refuse_unknown_mode);
    let text = refused.as_deref().map_or(body, str::as_bytes);
    serde_json::from_slice(text).map_err(|error| {
        let why = format!("the body is no message of JSON-RPC: {error}");
        HttpError::UnexpectedServerResponse(Cow::Owned(why))
    })
}

/// Reads the events of a stream, which ends with an event of more than `most` bytes.
fn read_events(response: Response, most: usize) -> BoxedSseResponse {
    SseStream::from_bytes_stream(bounded_events(response.bytes_stream(), most)).boxed()
}

fn bounded_events<E: std::error::Error + Send + Sync + 'static>(
    chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    most: usize,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static {
    chunks.scan(Some(EventSize::default()), move |counted, chunk| {
        let checked = counted.as_mut().map(|size| -> Result<Bytes, io::Error> {
            let chunk = chunk.map_err(io::Error::other)?;
            if size.is_exceeded(&chunk, most) {
                return Err(io::Error::other(format!("an event is larger than {most} bytes")));
            }
            Ok(chunk)
        });
        if matches!(checked, Some(Err(_))) {
            *counted = None;
        }
        future::ready(checked)
    })
}

/// Size of the event that is being read, without comments.
#[derive(Default)]
struct EventSize {
    lines: usize,
    line: usize,
    is_comment: bool,
    is_after_return: bool,
}

impl EventSize {
    /// Counts a chunk. True if its events, or the one that it continues, are larger than `most` bytes.
    fn is_exceeded(&mut self, chunk: &[u8], most: usize) -> bool {
        for &byte in chunk {
            let is_line_feed_of_return = byte == b'\n' && self.is_after_return;
            self.is_after_return = byte == b'\r';
            if is_line_feed_of_return {
                continue;
            }
            if matches!(byte, b'\r' | b'\n') {
                self.end_line();
                continue;
            }
            if self.line == 0 {
                self.is_comment = byte == b':';
            }
            self.line += 1;
            if self.lines + self.line > most {
                return true;
            }
        }
        false
    }

    const fn end_line(&mut self) {
        if self.line == 0 {
            self.lines = 0;
        } else if !self.is_comment {
            self.lines += self.line;
        }
        self.line = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use bytes::Bytes;
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use rmcp::model::{JsonRpcMessage, ServerResult};
    use serde_json::json;

    use super::{bounded_events, decode_answer};

    #[test]
    fn a_body_that_wants_input_in_an_unknown_mode_is_an_error_and_in_a_known_mode_is_not() {
        let body = |mode: &str| {
            let schema = json!({"type": "object", "properties": {}});
            let params = json!({"mode": mode, "message": "m", "requestedSchema": schema});
            let input = json!({"a": {"method": "elicitation/create", "params": params}});
            let result = json!({"resultType": "input_required", "inputRequests": input, "requestState": "s"});
            json!({"jsonrpc": "2.0", "id": 4, "result": result}).to_string()
        };
        let JsonRpcMessage::Error(refused) = decode_answer(body("foo").as_bytes()).unwrap() else { panic!("no error") };
        let want = "the server asks in a form that is not accepted: mode is \"foo\", expected \"form\" or \"url\"";
        assert_eq!(refused.error.message, want);
        let JsonRpcMessage::Response(answer) = decode_answer(body("form").as_bytes()).unwrap() else { panic!("error") };
        assert!(matches!(answer.result, ServerResult::InputRequiredResult(_)));
        assert!(decode_answer(b"[]").is_err());
    }

    #[test]
    fn a_stream_ends_with_an_event_that_is_too_large() {
        for (chunks, want) in [
            (vec!["data: ab\n\n", "data: cd\n\n"], vec![true, true]),
            (vec!["data: ab\r\n\r\ndata: cd\r\n\r\n"], vec![true]),
            (vec![": a long comment\n"], vec![false]),
            (vec![": ping\n", ": ping\n", ": ping\n", "data: ab\n\n"], vec![true; 4]),
            (vec!["data: a", "bc\n\n", "data: d\n\n"], vec![true, false]),
            (vec!["data:\r\n", "data:\r\n", "\r\n"], vec![true, false]),
        ] {
            let sent = chunks.iter().map(|chunk| Ok::<_, io::Error>(Bytes::from((*chunk).to_owned())));
            let got = bounded_events(stream::iter(sent.collect::<Vec<_>>()), 8);
            let got: Vec<bool> = got.map(|chunk| chunk.is_ok()).collect::<Vec<_>>().now_or_never().unwrap();
            assert_eq!(got, want, "{chunks:?}");
        }
    }
}
