//! Sessions of rmcp over HTTP, each with the ids of its open requests: a session routes replies by the id alone.
//!
//! It must not know principals or tokens.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use axum::http::request::Parts;
use countersign_foreign_calls::Delivery;
use futures_util::Stream;
use parking_lot::Mutex;
use rmcp::{
    RoleServer,
    model::{
        ClientJsonRpcMessage, ClientNotification, GetExtensions as _, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    },
    transport::{
        Transport, WorkerTransport,
        streamable_http_server::{
            SessionId, SessionManager,
            session::{
                ServerSseMessage,
                local::{LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig},
            },
        },
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{FaultReply, OpenRequests, replied_id},
    reply_stream::{MissingReply, ReplyStream},
};

/// Reason of a session that ended by itself or by its client.
const ENDED: &str = "the session has ended; to get the outcome of the call, repeat it in a new session";

/// Reason why a session does not take a request.
#[derive(Clone, Debug)]
pub(super) enum SessionRefusal {
    /// The reply of the admission.
    Fault(FaultReply),
    /// The session has ended.
    Ended,
}

/// Place in a request over HTTP for the reason why its session did not take it: rmcp would reply with status 500 to each.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusalSlot(Arc<Mutex<Option<SessionRefusal>>>);

impl RefusalSlot {
    /// Takes the reason, if the request was refused.
    pub(super) fn take(&self) -> Option<SessionRefusal> {
        self.0.lock().take()
    }
}

/// Error of a session.
#[derive(Debug)]
pub(super) enum SessionError {
    /// The session did not take the request. The route has the reason.
    Refused,
    /// Error of rmcp.
    Local(LocalSessionManagerError),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("the session did not take the request"),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<LocalSessionManagerError> for SessionError {
    fn from(error: LocalSessionManagerError) -> Self {
        Self::Local(error)
    }
}

/// Request without a reply.
struct TrackedRequest {
    /// Delivery of its outcome.
    delivery: Option<Delivery>,
    /// Its reply is on the way. Cancelled once the session has sent it.
    outgoing: Option<CancellationToken>,
}

/// Requests of one session.
pub(super) struct SessionRequests {
    /// The open ones. `None` once the session is to end.
    open: Mutex<Option<OpenRequests<TrackedRequest>>>,
    /// Reason why the session ended, once it is closed.
    end: OnceLock<&'static str>,
}

impl SessionRequests {
    fn new() -> Self {
        Self { open: Mutex::new(Some(OpenRequests::default())), end: OnceLock::new() }
    }

    /// Removes a request that gets its reply now.
    fn finish(&self, id: &RequestId) {
        if let Some(open) = self.open.lock().as_mut() {
            open.finish(id);
        }
    }

    /// Ends the waits of all requests whose reply is not on its way: what is decided later is for the same calls repeated.
    fn abandon_waits(&self) {
        if let Some(open) = self.open.lock().as_mut() {
            let waiting = open.drain().filter(|request| request.outgoing.is_none());
            waiting.filter_map(|request| request.delivery).for_each(|delivery| delivery.abandon());
        }
    }

    /// Reports whether the client gets no reply to a request: it cancelled it, or the end of the stream has the reason.
    fn is_without_reply(&self, id: &RequestId) -> bool {
        self.end.get().is_some() || self.open.lock().as_ref().is_some_and(|open| open.is_cancelled(id))
    }

    /// Returns the reason why a request gets no reply after the end of its stream. None if the client cancelled it.
    fn missing_reply(&self, id: &RequestId) -> Option<&'static str> {
        let is_cancelled = self.open.lock().as_ref().is_some_and(|open| open.is_cancelled(id));
        (!is_cancelled).then(|| self.end.get().copied().unwrap_or(ENDED))
    }
}

/// Sessions with their open requests.
pub(super) struct HttpSessionManager {
    local: LocalSessionManager,
    requests: Mutex<HashMap<SessionId, Arc<SessionRequests>>>,
}

impl HttpSessionManager {
    pub(super) fn new(config: SessionConfig) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config = config;
        Self { local, requests: Mutex::default() }
    }

    /// Reports whether a session has not ended.
    pub(super) fn is_known(&self, session: &str) -> bool {
        self.requests.lock().contains_key(session)
    }

    /// Lets a session take no more requests, if none is open. The caller closes it then.
    pub(super) fn stop_if_idle(&self, session: &str) -> bool {
        let Some(requests) = self.requests.lock().get(session).cloned() else { return true };
        let mut open = requests.open.lock();
        let is_idle = open.as_ref().is_none_or(OpenRequests::is_empty);
        if is_idle {
            *open = None;
        }
        is_idle
    }

    /// Ends a session. Requests without a reply get the reason as their error.
    pub(super) async fn end_session(&self, session: &SessionId, reason: &'static str) -> Result<(), SessionError> {
        if let Some(requests) = self.requests.lock().get(session) {
            requests.end.get_or_init(|| reason);
        }
        self.close_session(session).await
    }

    /// Adds a request to a session.
    pub(super) async fn admit(
        &self,
        session: &SessionId,
        id: &RequestId,
        delivery: Option<Delivery>,
    ) -> Result<Arc<SessionRequests>, SessionRefusal> {
        let requests = self.requests.lock().get(session).cloned().ok_or(SessionRefusal::Ended)?;
        let outgoing = requests.open.lock().as_mut().and_then(|open| open.value_mut(id)?.outgoing.clone());
        if let Some(replied) = outgoing {
            // The client may have read the reply already, and use its id again.
            replied.cancelled().await;
        }
        let request = TrackedRequest { delivery, outgoing: None };
        requests
            .open
            .lock()
            .as_mut()
            .ok_or(SessionRefusal::Ended)?
            .admit(id, request)
            .map_err(SessionRefusal::Fault)?;
        Ok(requests)
    }
}

impl SessionManager for HttpSessionManager {
    type Error = SessionError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), SessionError> {
        let (session, transport) = self.local.create_session().await?;
        let requests = Arc::new(SessionRequests::new());
        self.requests.lock().insert(Arc::clone(&session), Arc::clone(&requests));
        Ok((session, SessionTransport { transport, requests }))
    }

    async fn initialize_session(
        &self,
        session: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.local.initialize_session(session, message).await?)
    }

    async fn has_session(&self, session: &SessionId) -> Result<bool, SessionError> {
        Ok(self.local.has_session(session).await?)
    }

    async fn close_session(&self, session: &SessionId) -> Result<(), SessionError> {
        let ended = self.requests.lock().remove(session);
        if let Some(requests) = ended {
            requests.end.get_or_init(|| ENDED);
            // The streams of lost connections are gone, and others may not be read.
            requests.abandon_waits();
        }
        Ok(self.local.close_session(session).await?)
    }

    async fn create_stream(
        &self,
        session: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        // rmcp makes a stream for requests alone.
        let JsonRpcMessage::Request(request) = &message else { return Err(SessionError::Refused) };
        let id = request.id.clone();
        let parts = request.request.extensions().get::<Parts>();
        let delivery = parts.and_then(|parts| parts.extensions.get::<Delivery>()).cloned();
        let slot = parts.and_then(|parts| parts.extensions.get::<RefusalSlot>()).cloned();
        let requests = match self.admit(session, &id, delivery.clone()).await {
            Ok(requests) => requests,
            Err(refusal) => {
                if let Some(slot) = slot {
                    *slot.0.lock() = Some(refusal);
                }
                return Err(SessionError::Refused);
            }
        };
        let messages = match self.local.create_stream(session, message).await {
            Ok(messages) => messages,
            Err(error) => {
                requests.finish(&id);
                return Err(error.into());
            }
        };
        let meant = id.clone();
        let missing: MissingReply = Box::new(move || requests.missing_reply(&meant));
        Ok(ReplyStream::new(messages, id, missing, delivery))
    }

    async fn accept_message(&self, session: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        if let JsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
            && let Some(requests) = self.requests.lock().get(session).cloned()
            && let Some(open) = requests.open.lock().as_mut()
        {
            open.cancel(id);
        }
        Ok(self.local.accept_message(session, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        session: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.local.create_standalone_stream(session).await?)
    }

    async fn resume(
        &self,
        session: &SessionId,
        last_event: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        Ok(self.local.resume(session, last_event).await?)
    }
}

/// Transport of one session, which frees the id of a request after its reply.
pub(super) struct SessionTransport {
    transport: WorkerTransport<LocalSessionWorker>,
    requests: Arc<SessionRequests>,
}

impl Transport<RoleServer> for SessionTransport {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let id = replied_id(&message).cloned();
        let (requests, replied) = (Arc::clone(&self.requests), CancellationToken::new());
        if let Some(id) = &id
            && let Some(open) = requests.open.lock().as_mut()
            && let Some(request) = open.value_mut(id)
        {
            request.outgoing = Some(replied.clone());
        }
        let has_no_reader = id.as_ref().is_some_and(|id| requests.is_without_reply(id));
        let sent = if has_no_reader { None } else { Some(self.transport.send(message)) };
        async move {
            let _replied = replied.drop_guard();
            // The session has forgotten the id once this is ready.
            let sent = match sent {
                Some(sent) => sent.await,
                None => Ok(()),
            };
            id.iter().for_each(|id| requests.finish(id));
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.transport.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}
