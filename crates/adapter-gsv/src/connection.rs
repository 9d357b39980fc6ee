//! One connection: its identity, its requests, and all its answers and events.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use countersign_http::listen::{self, ConnectionInfo, keep_alive::KeepAlive};
use countersign_protocol::{
    RawJson,
    gsv::{
        self as wire, GsvError, GsvInboundFrame, GsvRequest, GsvRequestId, LARGEST_FRAME, Method, NODE_PAUSE_MS, close,
        code,
        connect::{ConnectingPeer, HelloOk, PeerMode},
        cron::CronRunParams,
        frame, method,
    },
};
use futures_util::FutureExt as _;
use tokio::{
    sync::{broadcast, oneshot, watch},
    time::{Instant, timeout, timeout_at},
};

use super::{
    GsvAdapter, automation,
    broadcast_event::BroadcastEvent,
    channels, dispatch, nodes,
    ordered_requests::{OrderedRequests, RequestFuture, answer_frame},
    outbox::{ConnectionOutbox, OutboxItem, OutboxReceiver, new_outbox},
    peer::ConnectedPeer,
    request_load::{OpenRequests, RequestPermit, RequestSize},
};

/// Time in which a peer must connect.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Largest frame that is read before the peer has connected, in bytes. The tools of a node fit into it.
const LARGEST_FIRST: usize = 2 << 20;
/// Interval of pings.
const ALIVE: Duration = Duration::from_secs(30);
/// Longest time in which a peer may read nothing.
const STUCK: Duration = Duration::from_secs(40);
/// Error for an address that sent too many wrong tokens. The right one is refused then too, because users choose it.
const LIMITED: &str = "Unauthorized: too many wrong tokens from this address, try again in a minute";

/// Reason for the end of a connection.
enum DisconnectReason {
    /// The peer disconnected.
    Gone,
    /// The gateway closes it, with this code and reason.
    Close(u16, String),
}

impl DisconnectReason {
    fn close(code: u16, reason: &str) -> Self {
        Self::Close(code, reason.to_owned())
    }
}

/// Serves a peer. An idle connection costs little: data for a moment only is not part of this future,
/// and the socket is stored once.
pub(super) async fn serve_peer(
    door: Arc<GsvAdapter>,
    mut socket: Box<WebSocket>,
    guest: ConnectionInfo,
    word: Option<String>,
) {
    let shown = {
        let handshake = Box::pin(perform_handshake(&door, &mut socket, (&guest, word)));
        tokio::select! {
            shown = handshake => shown,
            () = guest.place.wait_revoked() => Err(DisconnectReason::close(close::RESTART, "too many connections")),
        }
    };
    let end = match shown {
        Ok(_) if !guest.place.mark_authenticated() => DisconnectReason::close(close::RESTART, "too many connections"),
        Ok((id, connect)) => return Box::new(GsvConnection::new(&door, connect, socket, &guest)).run(id).await,
        Err(end) => end,
    };
    Box::pin(send_close(&mut socket, &end)).await;
}

async fn send_close(socket: &mut WebSocket, end: &DisconnectReason) {
    if let DisconnectReason::Close(code, reason) = end {
        let frame = CloseFrame { code: *code, reason: reason.as_str().into() };
        let closing = async {
            if socket.send(Message::Close(Some(frame))).await.is_ok() {
                // The peer's own close comes back; nothing else matters any more.
                while let Some(Ok(_)) = socket.recv().await {}
                // A socket that is closed over unread bytes is reset, and a peer that still sends would never see the reason.
                if *code == close::TOO_LARGE {
                    std::future::pending::<()>().await;
                }
            }
        };
        // A task of its own waits for a connection that has to make room.
        let patience = if *code == close::RESTART { Duration::from_millis(200) } else { Duration::from_secs(1) };
        let _ = timeout(patience, closing).await;
    }
}

/// Reports whether a peer of this mode may connect. A node or a network is trusted under its name; a client is checked when it acts.
async fn may_come(door: &GsvAdapter, mode: PeerMode, (guest, word): (&ConnectionInfo, Option<&str>)) -> bool {
    match mode {
        PeerMode::Client => true,
        // No other process of its user can inspect it, except root.
        PeerMode::Node if word.is_some_and(|word| door.local_node_auth.redeem_word(word)) => true,
        PeerMode::Node | PeerMode::Channel => guest.peer.may_decide().await,
    }
}

/// Checks who may connect, and returns the peer.
async fn check_connect(
    door: &GsvAdapter,
    (guest, word): (&ConnectionInfo, Option<&str>),
    params: Option<&RawJson>,
) -> Result<ConnectingPeer, GsvError> {
    let read = || ConnectingPeer::from_params(params, |token| door.trusts_token(token, guest.from.ip()));
    let connect = read()?;
    if connect.mode() == PeerMode::Client {
        return Ok(connect);
    }
    if !may_come(door, connect.mode(), (guest, word)).await {
        return Err(GsvError::new(code::FORBIDDEN, listen::peer::REFUSED));
    }
    // The token may have changed.
    read()
}

/// Waits until the peer has connected. Earlier requests are answered, and only a wrong token ends the connection.
async fn perform_handshake(
    door: &Arc<GsvAdapter>,
    socket: &mut WebSocket,
    (guest, word): (&ConnectionInfo, Option<String>),
) -> Result<(GsvRequestId, ConnectingPeer), DisconnectReason> {
    let from = guest.from.ip();
    let mut closing = door.closing.subscribe();
    let until = Instant::now() + HANDSHAKE;
    loop {
        let text = tokio::select! {
            text = timeout_at(until, next_text(socket)) => text,
            () = wait_closing(&mut closing) => return Err(DisconnectReason::close(close::RESTART, "restarting")),
        };
        let text = text.unwrap_or_else(|_| Err(DisconnectReason::close(close::LATE, "no connect in time")))?;
        // Parsed, it takes many times the room, and its sender is not known yet.
        if text.len() > LARGEST_FIRST {
            let why = format!("a frame before connect is larger than {} MiB", LARGEST_FIRST >> 20);
            return Err(DisconnectReason::Close(close::TOO_LARGE, why));
        }
        let response = match wire::receive_frame(&text) {
            GsvInboundFrame::Request { id, method, params } => match method::dispatch_method(&method, None) {
                Err(fault) => frame::encode_error(&id, &fault),
                Ok(_) => match check_connect(door, (guest, word.as_deref()), params.as_ref()).await {
                    Ok(connect) => return Ok((id, connect)),
                    Err(fault) => {
                        let is_over = fault.code == code::UNAUTHORIZED;
                        let is_limited = is_over && door.is_limited(from);
                        let fault = if is_limited { GsvError::new(fault.code, LIMITED) } else { fault };
                        let refusal = frame::encode_error(&id, &fault);
                        if is_over {
                            // The peer gets the reason before the close: otherwise its user would only see a broken connection.
                            let _ = timeout(STUCK, socket.send(Message::Text(refusal.into()))).await;
                            return Err(DisconnectReason::close(close::UNAUTHORIZED, close::UNAUTHORIZED_REASON));
                        }
                        refusal
                    }
                },
            },
            GsvInboundFrame::Malformed { id, fault } => frame::encode_error(&id, &fault),
            GsvInboundFrame::Response { .. } | GsvInboundFrame::Event { .. } | GsvInboundFrame::Ignored { .. } => {
                continue;
            }
        };
        match timeout_at(until, socket.send(Message::Text(response.into()))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(DisconnectReason::Gone),
        }
    }
}

/// Waits until the adapter closes.
async fn wait_closing(closing: &mut watch::Receiver<bool>) {
    // An error means that the adapter is gone.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Returns the next text frame. Binary ones are skipped.
async fn next_text(socket: &mut WebSocket) -> Result<Utf8Bytes, DisconnectReason> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return Ok(text),
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(DisconnectReason::Gone),
            Some(Err(error)) => return Err(socket_error(&error)),
        }
    }
}

fn socket_error(error: &axum::Error) -> DisconnectReason {
    // The library has no other way to distinguish a frame that is too large from a broken connection.
    let is_too_large = error.to_string().contains("too long") || error.to_string().contains("too large");
    if is_too_large {
        DisconnectReason::Close(close::TOO_LARGE, format!("a frame is larger than {} MiB", LARGEST_FRAME >> 20))
    } else {
        DisconnectReason::Gone
    }
}

/// Connection of a known peer.
struct GsvConnection<'a> {
    door: &'a Arc<GsvAdapter>,
    peer: Arc<ConnectedPeer>,
    socket: Box<WebSocket>,
    outbox: ConnectionOutbox,
    posts: OutboxReceiver,
    /// Events of chats, for clients.
    chats: Option<broadcast::Receiver<Arc<BroadcastEvent>>>,
    /// Requests that take effect in order, in a task of its own: a request is finished whether or not the peer stays, and a peer that
    /// does not read delays no other.
    ordered_requests: Option<OrderedRequests>,
    /// Requests that are not answered yet.
    load: OpenRequests,
    /// Time from which the peer gets events.
    listens_at: Instant,
    /// Waiters for the answers to pings, in the order in which they were sent.
    proofs: VecDeque<(u64, oneshot::Sender<()>)>,
    pings: u64,
}

impl<'a> GsvConnection<'a> {
    fn new(door: &'a Arc<GsvAdapter>, connect: ConnectingPeer, socket: Box<WebSocket>, guest: &ConnectionInfo) -> Self {
        let (outbox, posts) = new_outbox();
        let connect_mode = connect.mode();
        let peer = Arc::new(ConnectedPeer::new(door.roster.next_number(), connect, guest.peer.clone(), outbox.clone()));
        let chats = (connect_mode == PeerMode::Client).then(|| door.events.subscribe());
        Self {
            door,
            peer,
            socket,
            outbox,
            posts,
            chats,
            ordered_requests: None,
            load: OpenRequests::default(),
            listens_at: Instant::now(),
            proofs: VecDeque::new(),
            pings: 0,
        }
    }

    /// Returns the time in which the peer gets no event.
    fn event_pause(&self) -> Duration {
        Duration::from_millis(if self.peer.mode() == PeerMode::Node { NODE_PAUSE_MS } else { 0 })
    }

    async fn run(mut self: Box<Self>, id: GsvRequestId) {
        let _listener = self.peer.connect.deltas.then(|| DeltaListener::new(self.door));
        let end = match Box::pin(self.register_peer(id)).await {
            Ok(()) => self.run_loop().await,
            Err(end) => end,
        };
        Box::pin(self.unregister_peer(end)).await;
    }

    /// Registers the peer, and confirms it.
    async fn register_peer(&mut self, id: GsvRequestId) -> Result<(), DisconnectReason> {
        let connection = connection_id();
        let hello = HelloOk::new(env!("CARGO_PKG_VERSION"), &connection);
        let keeps_journal = matches!(self.peer.connect.peer, wire::connect::PeerDetails::Node { journal: Some(_), .. });
        let hello = frame::encode_response(&id, &if keeps_journal { hello.with_resume() } else { hello });
        self.door.roster.add_peer(&self.peer);
        automation::on_peer_connected(self.door);
        nodes::connect_node(self.door, &self.peer).await;
        // The wait counts towards the pause, as the peer did not listen.
        self.listens_at = Instant::now() + self.event_pause();
        if let Err(fault) = channels::channel_connected(self.door, &self.peer).await {
            let _ = self.send_refusal(&id, &fault).await;
            return Err(DisconnectReason::close(close::TRY_AGAIN, "the channel cannot be kept"));
        }
        self.send_frame(hello.into()).await
    }

    /// Removes the peer, and logs the reason.
    async fn unregister_peer(&mut self, end: DisconnectReason) {
        self.outbox.shut_down();
        if self.door.roster.remove_peer(&self.peer) {
            channels::channel_disconnected(self.door, &self.peer);
        }
        nodes::disconnect_node(self.door, &self.peer).await;
        send_close(&mut self.socket, &end).await;
    }

    async fn run_loop(&mut self) -> DisconnectReason {
        let mut closing = self.door.closing.subscribe();
        let mut pulse = KeepAlive::with_period(ALIVE);
        loop {
            let done = tokio::select! {
                () = wait_closing(&mut closing) => return DisconnectReason::close(close::RESTART, "restarting"),
                post = next_post(&mut self.posts, self.listens_at) => match post {
                    OutboxItem::Frame(frame) => self.send_frame(frame).await,
                    OutboxItem::Proof(proof) => {
                        self.pings += 1;
                        self.proofs.push_back((self.pings, proof));
                        let number = self.pings.to_be_bytes();
                        self.write_message(Message::Ping(axum::body::Bytes::copy_from_slice(&number))).await
                    }
                    OutboxItem::Close(code, reason) => return DisconnectReason::Close(code, reason),
                },
                event = next_event(&mut self.chats) => match event {
                    Some(event) if event.is_delta() && !self.peer.connect.deltas => Ok(()),
                    Some(event) => {
                        let spelling = self.peer.key_spelling(event.session_key());
                        self.send_frame(event.frame_for(&spelling)).await
                    }
                    None => return DisconnectReason::close(close::TRY_AGAIN, "too many events wait to be read"),
                },
                is_alive = pulse.next_probe() => {
                    if !is_alive {
                        return DisconnectReason::Gone;
                    }
                    self.write_message(Message::Ping(axum::body::Bytes::new())).await
                }
                message = self.socket.recv() => {
                    pulse.note_activity();
                    match message {
                        Some(Ok(Message::Text(text))) => self.handle_frame(&text).await,
                        Some(Ok(Message::Pong(payload))) => {
                            self.confirm_proofs(&payload);
                            Ok(())
                        }
                        Some(Ok(Message::Binary(_) | Message::Ping(_))) => Ok(()),
                        Some(Ok(Message::Close(_))) | None => return DisconnectReason::Gone,
                        Some(Err(error)) => return socket_error(&error),
                    }
                }
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Handles the answer to a ping, which also answers every earlier one.
    fn confirm_proofs(&mut self, payload: &[u8]) {
        let Ok(number) = payload.try_into().map(u64::from_be_bytes) else { return };
        while self.proofs.front().is_some_and(|(sent, _)| *sent <= number) {
            if let Some((_, proof)) = self.proofs.pop_front() {
                // The waiter may have gone.
                let _ = proof.send(());
            }
        }
    }

    fn send_frame(&mut self, frame: Utf8Bytes) -> impl Future<Output = Result<(), DisconnectReason>> {
        self.write_message(Message::Text(frame))
    }

    /// Writes a message. Most of the time nothing is being sent, so the future is made for each.
    fn write_message(&mut self, message: Message) -> impl Future<Output = Result<(), DisconnectReason>> {
        let sending = Box::pin(timeout(STUCK, self.socket.send(message)));
        async move { if let Ok(Ok(())) = sending.await { Ok(()) } else { Err(DisconnectReason::Gone) } }
    }

    fn send_refusal(
        &mut self,
        id: &GsvRequestId,
        fault: &GsvError,
    ) -> impl Future<Output = Result<(), DisconnectReason>> {
        self.send_frame(frame::encode_error(id, fault).into())
    }

    async fn handle_frame(&mut self, text: &str) -> Result<(), DisconnectReason> {
        match self.start_request(text)? {
            Some((id, fault)) => self.send_refusal(&id, &fault).await,
            None => Ok(()),
        }
    }

    /// Starts the request of a frame. Returns the refusal, with the id of its request, if there is one.
    fn start_request(&mut self, text: &str) -> Result<Option<(GsvRequestId, GsvError)>, DisconnectReason> {
        let (id, method, params) = match wire::receive_frame(text) {
            GsvInboundFrame::Request { id, method, params } => (id, method, params),
            GsvInboundFrame::Malformed { id, fault } => return Ok(Some((id, fault))),
            GsvInboundFrame::Response { .. } | GsvInboundFrame::Event { .. } | GsvInboundFrame::Ignored { .. } => {
                return Ok(None);
            }
        };
        let read = method::dispatch_method(&method, Some(self.peer.mode())).and_then(|method| match method {
            Method::Connect => Err(GsvError::bad_request("Already connected")),
            method => {
                // A result is forwarded as it was written.
                let is_passed_on = method == Method::ToolResult;
                let size = if is_passed_on { RequestSize::for_text(text) } else { RequestSize::for_values(text) };
                let held = self.load.take_permit(size)?;
                Ok((method, GsvRequest::from_params(method, params.as_ref()), held))
            }
        });
        let (method, request, held) = match read {
            // The waiter for the result gets an error.
            Ok((method @ (Method::ToolResult | Method::LogsResult), request, held)) => (method, request, held),
            Ok((method, Ok(request), held)) => (method, Ok(request), held),
            Ok((_, Err(fault), _)) | Err(fault) => return Ok(Some((id, fault))),
        };
        let (door, peer) = (Arc::clone(self.door), Arc::clone(&self.peer));
        let answering = match request {
            Ok(GsvRequest::CronRun(run)) => return self.start_run(id, run, held).map(|()| None),
            Ok(request) => {
                dispatch::dispatch_request(door, peer, method, request, self.door.cards.current_moment()).left_future()
            }
            Err(fault) => nodes::refuse_result(door, peer, method, params, fault).right_future(),
        };
        let work = async move { (answer_frame(&id, answering.await), held) };
        if method.table_row().deadline.is_deferred() {
            // It waits for another party and delays nothing. Its effect does not depend on the peer's stay.
            let outbox = self.outbox.clone();
            let only_tells = matches!(method, Method::LogsGet | Method::SkillsUpdate);
            tokio::spawn(async move {
                let (answer, _held) = tokio::select! {
                    answer = work => answer,
                    () = outbox.wait_closed(), if only_tells => return,
                };
                outbox.send_in_turn(answer).await;
            });
        } else {
            self.push_ordered(work.map(Some).boxed())?;
        }
        Ok(None)
    }

    /// Starts jobs in the order of requests. Their ends are waited for apart, and delay nothing.
    fn start_run(&mut self, id: GsvRequestId, run: CronRunParams, held: RequestPermit) -> Result<(), DisconnectReason> {
        let (door, peer, outbox) = (Arc::clone(self.door), Arc::clone(&self.peer), self.outbox.clone());
        let work = async move {
            let started = match dispatch::start_jobs(&door, &peer, &run).await {
                Ok(started) => started,
                Err(fault) => return Some((answer_frame(&id, Err(fault)), held)),
            };
            tokio::spawn(async move {
                outbox.send_in_turn(answer_frame(&id, started.wait_ends(&door, &peer).await)).await;
                drop(held);
            });
            None
        };
        self.push_ordered(work.boxed())
    }

    fn push_ordered(&mut self, request: RequestFuture) -> Result<(), DisconnectReason> {
        let requests = self.ordered_requests.get_or_insert_with(|| OrderedRequests::start(self.outbox.clone()));
        if requests.push(request) { Ok(()) } else { Err(DisconnectReason::Gone) }
    }
}

/// Client that subscribed to streamed output.
struct DeltaListener(Arc<GsvAdapter>);

impl DeltaListener {
    fn new(door: &Arc<GsvAdapter>) -> Self {
        door.listeners.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(door))
    }
}

impl Drop for DeltaListener {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the next outbound item, and none before the peer listens.
async fn next_post(posts: &mut OutboxReceiver, listens_at: Instant) -> OutboxItem {
    if Instant::now() < listens_at {
        // Most of the time nobody waits for that.
        Box::pin(tokio::time::sleep_until(listens_at)).await;
    }
    posts.next().await
}

/// Returns the next event of a chat. `None` if some were missed. It never returns for peers that get none.
async fn next_event(chats: &mut Option<broadcast::Receiver<Arc<BroadcastEvent>>>) -> Option<Arc<BroadcastEvent>> {
    match chats {
        // The adapter holds the other end for as long as it serves anybody.
        Some(chats) => chats.recv().await.ok(),
        None => std::future::pending().await,
    }
}

/// Returns an id that no connection has had.
fn connection_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::serve_peer;

    fn size_of_future<A, B, C, D, F: Future>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_connection_needs_for_a_moment_only_is_not_kept_for_as_long_as_it_lasts() {
        let size = size_of_future(serve_peer);
        assert!(size <= 2560, "{size} bytes");
    }
}
