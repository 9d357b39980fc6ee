//! One connection to a server: a version agreed on, requests with a limit of time, and nothing granted to the server.
//!
//! It must not know how messages are carried, and does not start a server again.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{
        CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest, NumberOrString,
        ProtocolVersion, RequestId, ServerResult, SubscriptionFilter,
    },
    service::{
        ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, PeerRequestOptions, RunningService,
        ServiceError,
    },
    transport::{DynamicTransportError, Transport},
};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    client_handler::LimitedClient,
    connection_monitor::{ConnectionMonitor, ProgressSink},
    open_call::OpenCall,
    questions::QuestionAsker,
    send_error::SendError,
};

/// The oldest version of the protocol that is spoken.
const OLDEST: ProtocolVersion = ProtocolVersion::V_2025_06_18;
/// Time limit of the notice to a server that a request was given up.
const CANCEL_WAIT: Duration = Duration::from_secs(1);
/// Reason for the server that a request was dropped.
const DROPPED: &str = "the request was stopped";
/// Time limit of the end of a server, more than it is given to end by itself.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Pause before the second subscription to notices of a server.
const SUBSCRIPTION_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two subscriptions.
const LONGEST_SUBSCRIPTION_PAUSE: Duration = Duration::from_secs(300);

/// Generation of the protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolGeneration {
    /// Not known: `server/discover` first, then `initialize`.
    Unknown,
    /// `initialize` only.
    Handshake,
}

/// Reason that no connection came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenFailure {
    /// The connection ended while it was opened.
    Closed(String),
    /// The server refused the handshake without a reason of the protocol, or answered something else.
    Unintelligible(String),
    /// The server did not accept the credentials.
    Unauthorized(String),
    /// Anything else.
    Other(String),
}

impl OpenFailure {
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Closed(reason) | Self::Unintelligible(reason) | Self::Unauthorized(reason) | Self::Other(reason) => {
                reason
            }
        }
    }
}

/// Reason that a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    /// Nothing of it was sent.
    NotSent(String),
    /// It was sent, or may have been, and no answer came that can be read.
    Lost(String),
    /// The server answered with an error.
    Refused(String),
}

/// Bounds of the wait for an answer.
#[derive(Clone)]
pub(crate) struct RequestWait {
    /// Time limit from now, unless it is a request of a call.
    pub(crate) limit: Duration,
    /// The call, which has a time limit of its own and may ask people.
    pub(crate) call: Option<Arc<OpenCall>>,
    /// Ends the wait.
    pub(crate) cancel: CancellationToken,
    /// Sink of its progress.
    pub(crate) progress: ProgressSink,
}

impl RequestWait {
    /// Creates a wait that only its time limit ends.
    pub(crate) fn with_limit(limit: Duration) -> Self {
        Self { limit, call: None, cancel: CancellationToken::new(), progress: ProgressSink::default() }
    }

    /// Waits for the end of the time limit.
    async fn expire(&self) {
        match &self.call {
            Some(call) => call.expire().await,
            None => tokio::time::sleep(self.limit).await,
        }
    }
}

/// A connection to a server.
pub(crate) struct Connection {
    service: RunningService<RoleClient, LimitedClient>,
    monitor: Arc<ConnectionMonitor>,
    opened: Instant,
    /// Moment from which the credentials of the connection do not count any more.
    pub(crate) valid_until: Option<Instant>,
    subscription: Option<JoinHandle<()>>,
}

impl Connection {
    /// Agrees with the server on a version. Its questions to people go to `asker`; without one they are cancelled.
    ///
    /// *Cancellation*: dropping the future closes the transport.
    pub(crate) async fn open<T: Transport<RoleClient> + 'static>(
        transport: T,
        monitor: Arc<ConnectionMonitor>,
        generation: ProtocolGeneration,
        asker: Option<Arc<dyn QuestionAsker>>,
    ) -> Result<Self, OpenFailure> {
        let mode = match generation {
            ProtocolGeneration::Unknown => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            ProtocolGeneration::Handshake => ClientLifecycleMode::Initialize,
        };
        let client = LimitedClient::new(Arc::clone(&monitor), asker);
        let service = client.serve_with_lifecycle(transport, mode).await;
        let service = service.map_err(|error| open_failure(&error, &monitor))?;
        let connection = Self { service, monitor, opened: Instant::now(), valid_until: None, subscription: None };
        connection.with_known_version()
    }

    /// Refuses versions that are not spoken, and subscribes to changes where that is necessary.
    fn with_known_version(mut self) -> Result<Self, OpenFailure> {
        let Some(info) = self.service.peer_info() else {
            return Err(OpenFailure::Other("it did not name the version that it speaks".to_owned()));
        };
        let version = &info.protocol_version;
        if !ProtocolVersion::KNOWN_VERSIONS.contains(version) || *version < OLDEST {
            let shown = self.monitor.show_text(version.as_str());
            let latest = ProtocolVersion::LATEST;
            return Err(OpenFailure::Other(format!(
                "it speaks version {shown} of the protocol, but {OLDEST} to {latest} are supported"
            )));
        }
        let announces = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        if !version.has_initialize() && announces {
            let (peer, monitor) = (self.service.peer().clone(), Arc::clone(&self.monitor));
            self.subscription = Some(tokio::spawn(follow_tool_changes(peer, monitor)));
        }
        Ok(self)
    }

    /// Returns the generation that the server speaks, for its next start.
    pub(crate) fn generation(&self) -> ProtocolGeneration {
        match self.service.peer_info() {
            Some(info) if info.protocol_version.has_initialize() => ProtocolGeneration::Handshake,
            Some(_) | None => ProtocolGeneration::Unknown,
        }
    }

    /// Returns the version of the protocol that was agreed on.
    pub(crate) fn protocol_version(&self) -> String {
        self.service.peer_info().map(|info| info.protocol_version.to_string()).unwrap_or_default()
    }

    /// Returns the name and the version that the server gives itself.
    pub(crate) fn program(&self) -> Option<String> {
        let info = self.service.peer_info()?;
        let program = info.server_info.as_ref()?;
        Some(self.monitor.show_text(&format!("{} {}", program.name, program.version)))
    }

    pub(crate) const fn monitor(&self) -> &Arc<ConnectionMonitor> {
        &self.monitor
    }

    pub(crate) const fn opened(&self) -> Instant {
        self.opened
    }

    /// Returns true if requests can be sent over it.
    pub(crate) fn is_open(&self) -> bool {
        !self.monitor.is_closed() && !self.service.is_closed() && !self.service.is_transport_closed()
    }

    /// Returns true if further requests can be sent over it.
    pub(crate) fn takes_requests(&self) -> bool {
        self.is_open() && !self.monitor.is_retired() && self.valid_until.is_none_or(|until| Instant::now() < until)
    }

    /// Returns true if the server declared that it has resources.
    pub(crate) fn has_resources(&self) -> bool {
        self.service.peer_info().is_some_and(|info| info.capabilities.resources.is_some())
    }

    /// Returns true if the server declared that it has prompts.
    pub(crate) fn has_prompts(&self) -> bool {
        self.service.peer_info().is_some_and(|info| info.capabilities.prompts.is_some())
    }

    /// Returns true if the server declared that it has tools.
    pub(crate) fn has_tools(&self) -> bool {
        self.service.peer_info().is_some_and(|info| info.capabilities.tools.is_some())
    }

    /// Sends a request and waits for its answer.
    ///
    /// *Cancellation*: a request that was dropped before it was sent stays here. The server hears of one that was sent and given up,
    /// by the token or because it was dropped.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        wait: RequestWait,
    ) -> Result<ServerResult, RequestFailure> {
        let closed = || self.monitor.close_reason();
        let _open_call = wait.call.as_ref().map(|call| self.monitor.watch_call(call));
        let options = PeerRequestOptions::no_options();
        let handle = self.service.send_cancellable_request(request, options).await;
        let handle = handle.map_err(|_| RequestFailure::NotSent(closed()))?;
        let id = handle.id.clone();
        let mut open = OpenRequest { connection: self, id: Some(&id) };
        let _progress = self.monitor.watch_progress(&handle.progress_token, wait.progress.clone());
        let answer = tokio::select! {
            biased;
            answer = handle.await_response() => answer,
            () = self.monitor.wait_closed() => Err(ServiceError::TransportClosed),
            () = wait.cancel.cancelled() => {
                return Err(self.give_up(open, "the call was cancelled".to_owned()).await);
            }
            () = wait.expire() => {
                let late = format!("no answer within {} s", wait.limit.as_secs());
                return Err(self.give_up(open, self.monitor.explain(late)).await);
            }
        };
        match answer {
            Ok(result) => {
                open.id = None;
                Ok(result)
            }
            Err(ServiceError::McpError(error)) => {
                open.id = None;
                let text = self.monitor.show_text(&error.message);
                if self.monitor.take_unreadable(&id) {
                    return Err(RequestFailure::Lost(text));
                }
                Err(RequestFailure::Refused(format!("{text} (code {})", error.code.0)))
            }
            Err(ServiceError::TransportSend(error)) => {
                let was_begun = open.withdraw();
                Err(match find_send_error(&error) {
                    Some(SendError::NotSent(why)) => RequestFailure::NotSent(why.clone()),
                    Some(SendError::Unauthorized(why) | SendError::Rejected(why)) => {
                        RequestFailure::Refused(why.clone())
                    }
                    Some(SendError::Lost(why) | SendError::Doubtful(why)) => RequestFailure::Lost(why.clone()),
                    None if was_begun => RequestFailure::Lost("it could not be sent whole".to_owned()),
                    None => RequestFailure::NotSent("it could not be sent".to_owned()),
                })
            }
            Err(_) if open.withdraw() => Err(RequestFailure::Lost(closed())),
            Err(_) => Err(RequestFailure::NotSent(closed())),
        }
    }

    /// Ends the wait for an answer. The server hears of it if the request left.
    async fn give_up(&self, mut open: OpenRequest<'_>, why: String) -> RequestFailure {
        let id = open.id.cloned();
        if !open.withdraw() {
            return RequestFailure::NotSent(why);
        }
        send_cancelled(self.service.peer().clone(), id, why.clone()).await;
        RequestFailure::Lost(why)
    }

    /// Closes the connection: every open request ends.
    pub(crate) fn close(&self, reason: &str) {
        self.monitor.close(reason);
        self.service.cancellation_token().cancel();
    }

    /// Closes the connection and waits for the end of the server, which is killed if it takes too long.
    pub(crate) async fn shut_down(self: Arc<Self>) {
        self.close("the gateway closed the connection");
        if let Some(mut only) = Arc::into_inner(self) {
            // Beyond the limit the transport is dropped, which kills the server.
            let _ = only.service.close_with_timeout(CLOSE_WAIT).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.abort();
        }
        self.monitor.close("the gateway closed the connection");
    }
}

/// A request without an answer. When dropped, what has not left stays here, and the server hears that what left was given up.
struct OpenRequest<'a> {
    connection: &'a Connection,
    id: Option<&'a RequestId>,
}

impl OpenRequest<'_> {
    /// Gives the request up. True if it may have left.
    fn withdraw(&mut self) -> bool {
        match self.id.take() {
            Some(NumberOrString::Number(id)) => self.connection.monitor.withdraw(*id),
            Some(NumberOrString::String(_)) | None => true,
        }
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.cloned() else { return };
        // Without a runtime the process ends, and the connection with it.
        if self.withdraw()
            && let Ok(runtime) = Handle::try_current()
        {
            let peer = self.connection.service.peer().clone();
            runtime.spawn(send_cancelled(peer, Some(id), DROPPED.to_owned()));
        }
    }
}

/// Notifies a server that a request was given up. One that does not read does not hear of it.
async fn send_cancelled(peer: Peer<RoleClient>, request: Option<RequestId>, why: String) {
    let cancelled = CancelledNotification::new(CancelledNotificationParam::new(request, Some(why)));
    let sending = peer.send_notification(ClientNotification::CancelledNotification(cancelled));
    let _ = tokio::time::timeout(CANCEL_WAIT, sending).await;
}

/// Marks the list of tools as changed for each notice of the server, and when a subscription ends, because notices may be lost then.
/// Subscribes again after a pause that doubles, for as long as the server takes subscriptions.
async fn follow_tool_changes(peer: Peer<RoleClient>, monitor: Arc<ConnectionMonitor>) {
    let mut pause = SUBSCRIPTION_PAUSE;
    loop {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                while let Ok(Some(_)) = subscription.next().await {
                    monitor.mark_tools_changed();
                    pause = SUBSCRIPTION_PAUSE;
                }
            }
            Err(error) => {
                tracing::debug!(error = monitor.show_text(&error.to_string()), "no notices of changed tools");
                monitor.mark_tools_changed();
                return;
            }
        }
        monitor.mark_tools_changed();
        if monitor.is_closed() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_SUBSCRIPTION_PAUSE);
    }
}

fn find_send_error(error: &DynamicTransportError) -> Option<&SendError> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error.error.as_ref());
    while let Some(current) = source {
        if let Some(found) = current.downcast_ref() {
            return Some(found);
        }
        source = current.source();
    }
    None
}

fn open_failure(error: &ClientInitializeError, monitor: &ConnectionMonitor) -> OpenFailure {
    match error {
        ClientInitializeError::TransportError { error, .. } => match find_send_error(error) {
            Some(SendError::Unauthorized(why)) => OpenFailure::Unauthorized(why.clone()),
            Some(SendError::NotSent(why) | SendError::Lost(why)) if monitor.is_closed() => {
                OpenFailure::Closed(format!("{}; {why}", monitor.close_reason()))
            }
            Some(SendError::Rejected(why) | SendError::Doubtful(why)) => OpenFailure::Unintelligible(why.clone()),
            Some(SendError::NotSent(why) | SendError::Lost(why)) => OpenFailure::Other(why.clone()),
            None => OpenFailure::Other("it could not be reached".to_owned()),
        },
        ClientInitializeError::ConnectionClosed(_) => OpenFailure::Closed(monitor.close_reason()),
        ClientInitializeError::JsonRpcError(error) => {
            OpenFailure::Other(format!("it answered: {} (code {})", monitor.show_text(&error.message), error.code.0))
        }
        // The handshake that answers it with something else has been tried.
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => match open_failure(fallback, monitor) {
            OpenFailure::Unintelligible(why) => OpenFailure::Other(why),
            failure => failure,
        },
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<&str> = server_supported.iter().map(ProtocolVersion::as_str).collect();
            let shown = monitor.show_text(&versions.join(", "));
            OpenFailure::Other(format!("it supports no version of the protocol that is spoken here, only {shown}"))
        }
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            OpenFailure::Unintelligible("its answer to the handshake is not one".to_owned())
        }
        other => OpenFailure::Other(monitor.show_text(&other.to_string())),
    }
}
