//! One connection: its identity, its requests, and all its replies.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use countersign_core::{
    call,
    engine::{self, Command, CommandError, ResidencyScope},
    id::{CallId, GateId},
    session::counted_number,
};
use countersign_http::listen::{ConnectionPermit, keep_alive::KeepAlive};
use countersign_policy_admin::service_tools::AgentToolRequest;
use countersign_protocol::agent_gate::{self as wire, AgentGateRequest, JsonRpcError, close, code};
use countersign_runtime::{CommandSource, InboxLane, OwnerError, OwnerReply};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    AgentGateAdapter, RegisteredAgent,
    authentication::authenticate_agent,
    connection_end::{ConnectionEnd, end_for_error, wait_for_close},
    outcome::ToolCallOutcome,
    outcome_router::RoutedOutcome,
    pending_results, requests,
    roster::ConnectionSignal,
};

/// Time since its last frame within which a client counts as alive without a ping.
const RECENT: Duration = Duration::from_secs(1);
/// Longest time in which a client may read nothing.
const STUCK: Duration = Duration::from_secs(40);
/// Time in which receipts are gathered, so that they share a commit: one for each would cost a third of every request.
const GATHER: Duration = Duration::from_millis(50);
/// Most open requests of one connection.
const OPEN: usize = 4096;

pub(super) async fn serve_connection(
    adapter: &Arc<AgentGateAdapter>,
    mut socket: WebSocket,
    from: IpAddr,
    place: &ConnectionPermit,
) {
    let shown = tokio::select! {
        shown = authenticate_agent(adapter, &mut socket, from) => shown,
        () = place.wait_revoked() => Err(ConnectionEnd::Close(close::RESTART, "too many connections")),
    };
    let end = match shown {
        Ok(_) if !place.mark_authenticated() => ConnectionEnd::Close(close::RESTART, "too many connections"),
        Ok(authenticated) => {
            let (signal_sender, signals) = mpsc::unbounded_channel();
            match adapter.roster.connect_agent(&authenticated.known.id, signal_sender).await {
                Some(number) => {
                    let hello = wire::encode_result(&authenticated.id, r#"{"status":"authenticated"}"#);
                    AgentGateConnection::new(adapter, &authenticated.known, socket, signals).run(hello).await;
                    return adapter.roster.disconnect_agent(&authenticated.known.id, number);
                }
                None => ConnectionEnd::Close(close::CONNECTED, "Another agent is already connected"),
            }
        }
        Err(end) => end,
    };
    close_socket(&mut socket, &end).await;
}

async fn close_socket(socket: &mut WebSocket, end: &ConnectionEnd) {
    if let ConnectionEnd::Close(code, reason) = end {
        let frame = CloseFrame { code: *code, reason: (*reason).into() };
        let closing = async {
            if socket.send(Message::Close(Some(frame))).await.is_ok() {
                // The client's own close comes back; nothing else matters any more.
                while let Some(Ok(_)) = socket.recv().await {}
                // The rest of a frame that is too large is not read, and a socket that is closed over unread bytes is
                // reset: a client that still sends would never see the reason.
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

/// Command that was sent, and the client's id of it.
type SentCommand = BoxFuture<'static, (Arc<str>, Result<OwnerReply, OwnerError>)>;

struct AgentGateConnection<'a> {
    adapter: &'a Arc<AgentGateAdapter>,
    agent: &'a RegisteredAgent,
    socket: WebSocket,
    source: CommandSource,
    signals: mpsc::UnboundedReceiver<ConnectionSignal>,
    outcome_sender: mpsc::UnboundedSender<RoutedOutcome>,
    outcomes: mpsc::UnboundedReceiver<RoutedOutcome>,
    sent: FuturesUnordered<SentCommand>,
    /// Number of requests without a reply.
    open: usize,
    /// Calls whose replies no ping followed yet, and those before each ping that has no pong.
    unproven: Vec<CallId>,
    /// Calls whose end this connection got, or will get: they are not missed.
    mine: BTreeSet<CallId>,
    /// Calls for whose ends this connection waits, and maybe some more.
    waits: BTreeSet<CallId>,
    /// Calls of an earlier connection that will be answered under their ids here, by id.
    taken_up: BTreeMap<Arc<str>, CallId>,
    /// Calls among these that will not, whose ends are on their way.
    let_go: BTreeMap<Arc<str>, CallId>,
    /// Lowest number that was used as an id here.
    lowest: Option<u64>,
    pinged: VecDeque<(u64, Vec<CallId>)>,
    /// Number of pings.
    pings: u64,
    /// Calls whose receipt is confirmed and not recorded yet, and the time at which it will be.
    received: Vec<CallId>,
    record_at: Option<Instant>,
    /// Connections that wait for a sign of life of this one, each with the ping that proves it.
    probes: Vec<(u64, oneshot::Sender<()>)>,
}

impl<'a> AgentGateConnection<'a> {
    fn new(
        adapter: &'a Arc<AgentGateAdapter>,
        agent: &'a RegisteredAgent,
        socket: WebSocket,
        signals: mpsc::UnboundedReceiver<ConnectionSignal>,
    ) -> Self {
        let (outcome_sender, outcomes) = mpsc::unbounded_channel();
        Self {
            adapter,
            agent,
            socket,
            source: adapter.handle.source(InboxLane::Request),
            signals,
            outcome_sender,
            outcomes,
            sent: FuturesUnordered::new(),
            open: 0,
            unproven: Vec::new(),
            mine: BTreeSet::new(),
            waits: BTreeSet::new(),
            taken_up: BTreeMap::new(),
            let_go: BTreeMap::new(),
            lowest: None,
            pinged: VecDeque::new(),
            pings: 0,
            received: Vec::new(),
            record_at: None,
            probes: Vec::new(),
        }
    }

    async fn run(mut self, hello: String) {
        let end = match self.send_frame(hello).await {
            Err(end) => end,
            Ok(()) => self.event_loop().await,
        };
        self.adapter.outcomes.remove_connection(std::mem::take(&mut self.waits), &self.outcome_sender);
        self.record_received().await;
        close_socket(&mut self.socket, &end).await;
    }

    async fn event_loop(&mut self) -> ConnectionEnd {
        let mut closing = self.adapter.closing.subscribe();
        let mut pulse = KeepAlive::with_period(Duration::from_secs(20));
        let mut last_heard = Instant::now();
        loop {
            let done = tokio::select! {
                () = wait_for_close(&mut closing) => return ConnectionEnd::Close(close::RESTART, "restarting"),
                signal = self.signals.recv() => match signal {
                    // A client that sent a frame just now is alive, though it may be too busy to answer pings; any other gets a ping.
                    Some(ConnectionSignal::AreYouThere(answer)) if last_heard.elapsed() < RECENT => {
                        let _ = answer.send(());
                        Ok(())
                    }
                    Some(ConnectionSignal::AreYouThere(answer)) => {
                        self.probes.push((self.pings + 1, answer));
                        self.send_ping().await
                    }
                    Some(ConnectionSignal::Replaced) | None => return ConnectionEnd::Gone,
                },
                is_alive = pulse.next_probe() => {
                    if !is_alive {
                        return ConnectionEnd::Gone;
                    }
                    self.send_ping().await
                }
                () = tokio::time::sleep_until(self.record_at.unwrap_or_else(Instant::now)), if self.record_at.is_some() => {
                    self.record_received().await;
                    Ok(())
                }
                Some((id, replied)) = self.sent.next() => self.handle_reply(id, replied).await,
                Some((id, outcome)) = self.outcomes.recv() => match self.let_go.get(&id) {
                    // Its id had another meaning before the request was taken up.
                    Some(call) if *call == outcome.call => {
                        self.let_go.remove(&id);
                        Ok(())
                    }
                    _ => self.send_outcome(&id, outcome).await,
                },
                message = self.socket.recv() => {
                    pulse.note_activity();
                    last_heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => self.handle_frame(&text).await,
                        Some(Ok(Message::Binary(bytes))) => self.handle_frame(&String::from_utf8_lossy(&bytes)).await,
                        Some(Ok(Message::Pong(payload))) => self.handle_pong(&payload).await,
                        Some(Ok(Message::Ping(_))) => Ok(()),
                        Some(Ok(Message::Close(_))) | None => return ConnectionEnd::Gone,
                        Some(Err(error)) => return end_for_error(&error),
                    }
                }
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn send_frame(&mut self, frame: String) -> Result<(), ConnectionEnd> {
        self.write_message(Message::Text(frame.into())).await
    }

    /// Sends a frame together with the next one, so that a client reads both at once. It is [flushed](Self::flush) at the latest.
    async fn feed_frame(&mut self, frame: String) -> Result<(), ConnectionEnd> {
        match timeout(STUCK, self.socket.feed(Message::Text(frame.into()))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ConnectionEnd::Gone),
        }
    }

    async fn flush(&mut self) -> Result<(), ConnectionEnd> {
        match timeout(STUCK, self.socket.flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ConnectionEnd::Gone),
        }
    }

    async fn write_message(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        match timeout(STUCK, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // The connection does nothing else while it waits, not even pings.
            Ok(Err(_)) | Err(_) => Err(ConnectionEnd::Gone),
        }
    }

    async fn send_fault(&mut self, id: &str, fault: &JsonRpcError) -> Result<(), ConnectionEnd> {
        self.send_frame(wire::encode_error(id, fault)).await
    }

    async fn handle_frame(&mut self, frame: &str) -> Result<(), ConnectionEnd> {
        let incoming = wire::read_frame(frame);
        self.lowest = self.lowest.into_iter().chain(counted_number(&incoming.id)).min();
        if self.taken_up.contains_key(incoming.id.as_str()) {
            self.release_taken_up();
        }
        match incoming.request {
            Err(fault) => self.send_fault(&incoming.id, &fault).await,
            Ok(AgentGateRequest::Auth { .. }) => {
                self.send_fault(&incoming.id, &JsonRpcError::new(code::NO_METHOD, "Unknown method: auth")).await
            }
            Ok(AgentGateRequest::ListTools) => {
                let listed = wire::encode_result(&incoming.id, &requests::tool_list(&self.adapter.tools));
                self.send_frame(listed).await
            }
            Ok(AgentGateRequest::PendingResults) => self.send_pending(&incoming.id).await,
            Ok(AgentGateRequest::ToolRequest { tool, args, key }) => {
                let id: Arc<str> = incoming.id.into();
                let now = self.adapter.clock.now();
                if !self.agent.window.lock().try_count(now) {
                    return self.send_fault(&id, &JsonRpcError::new(code::LIMITED, "Rate limit exceeded")).await;
                }
                if self.open >= OPEN {
                    let fault = JsonRpcError::new(code::LIMITED, format!("Too many open requests (at most {OPEN})"));
                    return self.send_fault(&id, &fault).await;
                }
                let (session, principal) = (&self.agent.session, &self.agent.principal);
                let request = requests::build_request(
                    &self.adapter.tools,
                    AgentToolRequest { session, principal, id: &id, tool, args, key },
                );
                // No gate opens for a call that could not be sent.
                match request.and_then(|request| requests::check_secrets(&self.adapter.secrets, request)) {
                    Err(fault) => self.send_fault(&id, &fault).await,
                    Ok(request) => {
                        self.open += 1;
                        let command = Command::Call(call::Command::Request(Box::new(request)));
                        let reply = self.source.submit_command(command).await;
                        self.sent.push(async move { (id, reply.await.unwrap_or(Err(OwnerError::Closed))) }.boxed());
                        Ok(())
                    }
                }
            }
        }
    }

    /// Handles the record of a request, or its refusal.
    async fn handle_reply(
        &mut self,
        id: Arc<str>,
        replied: Result<OwnerReply, OwnerError>,
    ) -> Result<(), ConnectionEnd> {
        match replied.map(|reply| reply.outcome) {
            Ok(engine::EngineReply::Requested { call, over: None }) => {
                self.mine.insert(call);
                self.wait_for_call(call, id).await
            }
            Ok(engine::EngineReply::Requested { call, over: Some((end, lsn)) }) => {
                let content =
                    self.adapter.handle.contents().get(&[lsn]).await.ok().and_then(|mut texts| texts.pop()?);
                let content = content.as_deref().unwrap_or_default().to_owned();
                self.send_outcome(&id, ToolCallOutcome { call, gate: None, end, content: content.into() }).await
            }
            Ok(_) => {
                self.open -= 1;
                self.send_fault(&id, &JsonRpcError::new(code::FAILED, "Internal error")).await
            }
            Err(OwnerError::Refusal(refusal @ (CommandError::KeyTaken(_) | CommandError::TooLong { .. }))) => {
                self.open -= 1;
                self.send_fault(&id, &JsonRpcError::new(code::INVALID, refusal.to_string())).await
            }
            Err(refused) => {
                self.open -= 1;
                self.send_fault(&id, &JsonRpcError::new(code::FAILED, refused.to_string())).await
            }
        }
    }

    /// Waits for the end of a call, also of one that ended a while ago.
    async fn wait_for_call(&mut self, call: CallId, id: Arc<str>) -> Result<(), ConnectionEnd> {
        self.waits.insert(call);
        if self.adapter.outcomes.wait_for_outcome(call, Arc::clone(&id), &self.outcome_sender) {
            return Ok(());
        }
        let session = self.agent.session.clone();
        let read = self.source.read_state(move |engine| {
            let results = engine.state().session(&session)?.agent_requests()?.results();
            results.get(&call).map(|result| (result.end, result.lsn))
        });
        let Some((Some((end, lsn)), _)) = read.await else { return Ok(()) };
        if !self.adapter.outcomes.claim_wait(call, &id, &self.outcome_sender) {
            return Ok(());
        }
        let content = self.adapter.handle.contents().get(&[lsn]).await.ok().and_then(|mut texts| texts.pop()?);
        let content = content.as_deref().unwrap_or_default().to_owned();
        self.send_outcome(&id, ToolCallOutcome { call, gate: None, end, content: content.into() }).await
    }

    /// Finds the gate that decided a request, also one that an earlier process opened.
    async fn gate_of(&mut self, call: CallId) -> Option<GateId> {
        let session = self.agent.session.clone();
        let read = self.source.read_of(ResidencyScope::Session(session.clone()), move |engine| {
            engine.state().session(&session)?.agent_requests()?.gate_of(call)
        });
        read.await?.0
    }

    /// Sends the outcome of a request.
    async fn send_outcome(&mut self, id: &str, mut outcome: ToolCallOutcome) -> Result<(), ConnectionEnd> {
        self.open = self.open.saturating_sub(1);
        self.taken_up.remove(id);
        self.waits.remove(&outcome.call);
        if outcome.end == call::CallEnd::Unknown && outcome.gate.is_none() {
            outcome.gate = self.gate_of(outcome.call).await;
        }
        // A client that has its answer may leave at once, and answers no later ping.
        self.feed_frame(outcome.to_reply(id)).await?;
        self.unproven.push(outcome.call);
        self.request_receipt().await?;
        self.flush().await
    }

    /// Has the client prove that it received the earlier frames: its pong comes after them.
    async fn request_receipt(&mut self) -> Result<(), ConnectionEnd> {
        if self.pinged.is_empty() && !self.unproven.is_empty() { self.send_ping().await } else { Ok(()) }
    }

    async fn send_ping(&mut self) -> Result<(), ConnectionEnd> {
        self.pings += 1;
        self.pinged.push_back((self.pings, std::mem::take(&mut self.unproven)));
        let number = self.pings.to_be_bytes().to_vec();
        self.write_message(Message::Ping(number.into())).await
    }

    /// Handles a pong, which shows that its client lives, and that everything before our ping arrived. A client may
    /// leave out all but the last, and may send unsolicited ones.
    async fn handle_pong(&mut self, payload: &[u8]) -> Result<(), ConnectionEnd> {
        let number = payload.try_into().map_or(0, u64::from_be_bytes);
        for (_, probe) in self.probes.extract_if(.., |(ping, _)| *ping <= number) {
            let _ = probe.send(());
        }
        let mut calls = Vec::new();
        if self.pinged.iter().any(|(ping, _)| *ping == number) {
            while let Some((_, sent)) = self.pinged.pop_front_if(|(ping, _)| *ping <= number) {
                calls.extend(sent);
            }
        }
        if !calls.is_empty() {
            for call in &calls {
                self.mine.remove(call);
            }
            self.received.append(&mut calls);
            self.record_at.get_or_insert_with(|| Instant::now() + GATHER);
        }
        self.request_receipt().await
    }

    /// Records the gathered receipts. Until then their results are listed again on request.
    async fn record_received(&mut self) {
        self.record_at = None;
        let calls = std::mem::take(&mut self.received);
        if !calls.is_empty() {
            let received = call::Command::Received { session: self.agent.session.clone(), calls };
            self.source.post_command(Command::Call(received)).await;
        }
    }

    /// Releases a request that was taken up, because its id has another meaning now: the program is another one. It is listed on request.
    fn release_taken_up(&mut self) {
        for (id, call) in std::mem::take(&mut self.taken_up) {
            self.open = self.open.saturating_sub(1);
            if !self.adapter.outcomes.claim_wait(call, &id, &self.outcome_sender) {
                self.let_go.insert(id, call);
            }
            // The same may have been requested again under its key.
            if !self.adapter.outcomes.is_waiting(call, &self.outcome_sender) {
                self.mine.remove(&call);
                self.waits.remove(&call);
            }
        }
    }

    async fn send_pending(&mut self, id: &str) -> Result<(), ConnectionEnd> {
        // Earlier requests are handled first, so that nothing is answered twice.
        while let Some((id, replied)) = self.sent.next().await {
            self.handle_reply(id, replied).await?;
        }
        self.record_received().await;
        let missed =
            pending_results::missed_results(self.adapter, self.agent, &self.source, (id, self.lowest), &self.mine)
                .await;
        let Some(missed) = missed else {
            return self.send_fault(id, &JsonRpcError::new(code::FAILED, "The gateway is closing")).await;
        };
        self.feed_frame(wire::encode_result(id, &missed.listed)).await?;
        let mut sent_calls: BTreeSet<CallId> = missed.calls.into_iter().collect();
        for owed in missed.owed {
            // One by one, as they are listed.
            if let Some(reply) = owed.read_reply(self.adapter).await {
                self.feed_frame(reply).await?;
                sent_calls.insert(owed.call);
            }
        }
        for (call, id) in missed.open {
            self.open += 1;
            self.mine.insert(call);
            self.taken_up.insert(Arc::clone(&id), call);
            self.wait_for_call(call, id).await?;
        }
        self.mine.extend(&sent_calls);
        self.unproven.extend(sent_calls);
        self.request_receipt().await?;
        self.flush().await
    }
}
