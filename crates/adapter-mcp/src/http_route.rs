//! Route of streamable HTTP: who calls, whose session it is, and whether the reply was taken.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, BodyDataStream},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use countersign_foreign_calls::{CallProblem, Delivery};
use countersign_http::{
    reply,
    web::{AuthMethod, GuardedRoutes, HttpCaller, WebAuth},
};
use futures_util::Stream;
use rmcp::{
    ErrorData,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use crate::{
    adapter::McpAdapter,
    admission::{BUSY, fault_reply},
    http_admission::{admission_response, admit_body, fault_response},
    http_sessions::{HttpSessions, MOST_SESSIONS},
    limits::LARGEST_MESSAGE,
    server::{McpServer, RequestOrigin},
    session_manager::{HttpSessionManager, RefusalSlot, SessionRefusal},
};

/// Path of the route.
pub const PATH: &str = "/mcp";
/// Header with the id of a session.
const SESSION: &str = "mcp-session-id";
/// Header of a client that resumes a stream.
const LAST_EVENT: &str = "last-event-id";

/// State of the route.
struct McpRoute {
    adapter: Arc<McpAdapter>,
    service: StreamableHttpService<McpServer, HttpSessionManager>,
    sessions: Arc<HttpSessions>,
}

impl McpRoute {
    fn new(adapter: &Arc<McpAdapter>, sessions: Arc<HttpSessions>) -> Self {
        // The port and the guard of the route have looked at Host and Origin.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_retry(None)
            .with_max_request_body_bytes(LARGEST_MESSAGE)
            .with_cancellation_token(adapter.http_end.child_token());
        let served = Arc::clone(adapter);
        let new_server = move || Ok(McpServer::new(&served));
        let service = StreamableHttpService::new(new_server, Arc::clone(&sessions.manager), config);
        Self { adapter: Arc::clone(adapter), service, sessions }
    }
}

/// Returns the routes. `auth` knows the tokens.
pub fn routes(adapter: &Arc<McpAdapter>, auth: &Arc<WebAuth>) -> Router {
    let limits = adapter.calls.limits();
    let sessions = HttpSessions::new(limits.approval_timeout.max(limits.question_timeout));
    tokio::spawn(Arc::clone(&sessions).watch_tokens(Arc::clone(auth), adapter.end.clone()));
    let route = Arc::new(McpRoute::new(adapter, sessions));
    GuardedRoutes::new(auth)
        .add_route("POST", PATH, serve_request)
        .add_route("GET", PATH, serve_request)
        .add_route("DELETE", PATH, serve_request)
        .with_state(route)
}

async fn serve_request(State(route): State<Arc<McpRoute>>, mut request: Request) -> Response {
    let caller = request.extensions().get::<HttpCaller>();
    let Some(HttpCaller { principal, via: AuthMethod::Token { .. }, .. }) = caller else {
        return token_required();
    };
    let principal = principal.clone();
    let is_own = |(name, value): &(HeaderName, HeaderValue)| request.headers().get(name) == Some(value);
    if route.adapter.own_header.as_ref().is_some_and(is_own) {
        return problem(
            StatusCode::LOOP_DETECTED,
            "This gateway would call its own tools: it is no MCP server of itself",
        );
    }
    let session = request.headers().get(SESSION).map(|id| id.to_str().unwrap_or_default().to_owned());
    if session.as_deref().is_some_and(|session| !route.sessions.is_of(session, &principal)) {
        return unknown_session();
    }
    let mut id = None;
    if request.method() == Method::POST {
        (request, id) = match admit_body(request).await {
            Ok(admitted) => admitted,
            Err(response) => return *response,
        };
    }
    // Before the look at the close, which waits for this reply.
    let reply = id.is_some().then(|| route.adapter.replies.token());
    if id.is_some() && route.adapter.end.is_cancelled() {
        let fault = ErrorData::internal_error(CallProblem::Closing.to_string(), None);
        return fault_response(StatusCode::SERVICE_UNAVAILABLE, &fault_reply(id, fault));
    }
    // A lost reply is fetched by the same call, repeated: no client reports what of a resumed stream arrived.
    request.headers_mut().remove(LAST_EVENT);
    let shown = credentials(request.headers());
    let delivery = AbandonOnDrop(Delivery::default());
    let origin = RequestOrigin {
        requester: route.adapter.requester(&principal),
        delivery: delivery.0.clone(),
        is_repeated: false,
    };
    let refusal = RefusalSlot::default();
    request.extensions_mut().insert(origin);
    // The stream of its session abandons it if the session ends before the reply.
    request.extensions_mut().insert(delivery.0.clone());
    request.extensions_mut().insert(refusal.clone());
    let response = Box::pin(route.service.handle(request)).await.map(Body::new);
    match refusal.take() {
        Some(SessionRefusal::Fault(fault)) => return admission_response(&fault),
        Some(SessionRefusal::Ended) => return unknown_session(),
        None => {}
    }
    let begun = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
    if let Some(begun) = begun.filter(|begun| session.as_ref() != Some(begun))
        && !route.sessions.add(&begun, principal, shown).await
    {
        let text = format!("Too many sessions (at most {MOST_SESSIONS}), and each has an open request");
        return fault_response(StatusCode::TOO_MANY_REQUESTS, &fault_reply(id, ErrorData::new(BUSY, text, None)));
    }
    // Outcomes are sent as streams. A body of a known length is an error of the protocol.
    if axum::body::HttpBody::size_hint(response.body()).exact().is_some() {
        return response;
    }
    let end = route.adapter.http_end.clone();
    response
        .map(|body| Body::from_stream(DeliveredBody { frames: body.into_data_stream(), delivery, end, _reply: reply }))
}

fn credentials(headers: &HeaderMap) -> HeaderMap {
    let shown = headers.get(header::AUTHORIZATION).map(|value| (header::AUTHORIZATION, value.clone()));
    shown.into_iter().collect()
}

fn token_required() -> Response {
    let mut response = problem(StatusCode::UNAUTHORIZED, "A token with the scope call is needed");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Returns the response for a session that has ended. One of another principal is as unknown as none.
fn unknown_session() -> Response {
    problem(StatusCode::NOT_FOUND, "Session not found")
}

fn problem(status: StatusCode, text: &str) -> Response {
    reply::json(status, &json!({ "jsonrpc": "2.0", "error": { "code": -32000, "message": text } })).into_response()
}

/// Delivery that is abandoned if the client goes before its request is answered, or before it has taken the whole reply.
struct AbandonOnDrop(Delivery);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Body that reports whether the connection took all of it.
struct DeliveredBody {
    frames: BodyDataStream,
    delivery: AbandonOnDrop,
    /// Cancelled when the gateway cuts replies off.
    end: CancellationToken,
    /// Lets the close wait for the reply to a request.
    _reply: Option<TaskTrackerToken>,
}

impl Stream for DeliveredBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frame = std::task::ready!(Pin::new(&mut self.frames).poll_next(context));
        if frame.is_none() {
            // A reply that was cut off is fetched by the same call, repeated.
            if self.end.is_cancelled() { self.delivery.0.abandon() } else { self.delivery.0.confirm() }
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests;
