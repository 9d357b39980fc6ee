//! One connection: who it is, what it asks for, and every reply that it is owed.

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
    Door, Known,
    answers::Told,
    connection_end::{ConnectionEnd, broken, closed},
    greeting::authenticate,
    outcome::Outcome,
    pending, requests,
    roster::Knock,
};

/// How long ago a client spoke that is taken for alive without being asked.
const RECENT: Duration = Duration::from_secs(1);
/// How long a client may take nothing of what is sent to it.
const STUCK: Duration = Duration::from_secs(40);
/// How long receipts are gathered, so that they share a commit: one for each would be a third for every request.
const GATHER: Duration = Duration::from_millis(50);
/// How many requests of one connection may be open.
const OPEN: usize = 4096;

pub(super) async fn serve(door: &Arc<Door>, mut socket: WebSocket, from: IpAddr, place: &ConnectionPermit) {
    let shown = tokio::select! {
        shown = authenticate(door, &mut socket, from) => shown,
        () = place.wait_revoked() => Err(ConnectionEnd::Close(close::RESTART, "too many connections")),
    };
    let end = match shown {
        Ok(_) if !place.mark_authenticated() => ConnectionEnd::Close(close::RESTART, "too many connections"),
        Ok(agent) => {
            let (knock, knocks) = mpsc::unbounded_channel();
            match door.roster.enter(&agent.known.id, knock).await {
                Some(number) => {
                    let hello = wire::encode_result(&agent.id, r#"{"status":"authenticated"}"#);
                    Connection::new(door, &agent.known, socket, knocks).run(hello).await;
                    return door.roster.leave(&agent.known.id, number);
                }
                None => ConnectionEnd::Close(close::CONNECTED, "Another agent is already connected"),
            }
        }
        Err(end) => end,
    };
    say_goodbye(&mut socket, &end).await;
}

async fn say_goodbye(socket: &mut WebSocket, end: &ConnectionEnd) {
    if let ConnectionEnd::Close(code, reason) = end {
        let frame = CloseFrame { code: *code, reason: (*reason).into() };
        let closing = async {
            if socket.send(Message::Close(Some(frame))).await.is_ok() {
                // The client's own close comes back; nothing else matters any more.
                while let Some(Ok(_)) = socket.recv().await {}
                // What is left of a frame that is too large is not read, and a line that is closed over unread bytes is
                // reset: whoever still sends would never see why.
                if *code == close::TOO_LARGE {
                    std::future::pending::<()>().await;
                }
            }
        };
        // Whoever has to make room is waited for by somebody else.
        let patience = if *code == close::RESTART { Duration::from_millis(200) } else { Duration::from_secs(1) };
        let _ = timeout(patience, closing).await;
    }
}

/// A command that was sent, and the client's id of it.
type Sent = BoxFuture<'static, (Arc<str>, Result<OwnerReply, OwnerError>)>;

struct Connection<'a> {
    door: &'a Arc<Door>,
    agent: &'a Known,
    socket: WebSocket,
    source: CommandSource,
    knocks: mpsc::UnboundedReceiver<Knock>,
    told: mpsc::UnboundedSender<Told>,
    ends: mpsc::UnboundedReceiver<Told>,
    sent: FuturesUnordered<Sent>,
    /// Requests that were made and have no reply yet.
    open: usize,
    /// Calls whose replies were sent behind no ping yet, and those behind each ping that has no pong.
    unproven: Vec<CallId>,
    /// Calls whose end this connection was told, or will be: they are not missed.
    mine: BTreeSet<CallId>,
    /// Those of them that were asked for on an earlier connection and will be answered under their ids here, by id.
    taken_up: BTreeMap<Arc<str>, CallId>,
    /// Those of these that will not, whose ends are on their way.
    let_go: BTreeMap<Arc<str>, CallId>,
    /// The lowest number that was used as an id here.
    lowest: Option<u64>,
    pinged: VecDeque<(u64, Vec<CallId>)>,
    /// Counts the pings.
    pings: u64,
    /// Calls whose receipt is shown and not recorded yet, and when it will be.
    received: Vec<CallId>,
    record_at: Option<Instant>,
    /// Connections that wait to hear whether this one lives, each with the ping that is to show it.
    knocking: Vec<(u64, oneshot::Sender<()>)>,
}

impl<'a> Connection<'a> {
    fn new(door: &'a Arc<Door>, agent: &'a Known, socket: WebSocket, knocks: mpsc::UnboundedReceiver<Knock>) -> Self {
        let (told, ends) = mpsc::unbounded_channel();
        Self {
            door,
            agent,
            socket,
            source: door.handle.source(InboxLane::Request),
            knocks,
            told,
            ends,
            sent: FuturesUnordered::new(),
            open: 0,
            unproven: Vec::new(),
            mine: BTreeSet::new(),
            taken_up: BTreeMap::new(),
            let_go: BTreeMap::new(),
            lowest: None,
            pinged: VecDeque::new(),
            pings: 0,
            received: Vec::new(),
            record_at: None,
            knocking: Vec::new(),
        }
    }

    async fn run(mut self, hello: String) {
        let end = match self.send(hello).await {
            Err(end) => end,
            Ok(()) => self.work().await,
        };
        self.door.answers.gone(&self.told);
        self.record_received().await;
        say_goodbye(&mut self.socket, &end).await;
    }

    async fn work(&mut self) -> ConnectionEnd {
        let mut closing = self.door.closing.subscribe();
        let mut pulse = KeepAlive::with_period(Duration::from_secs(20));
        let mut last_heard = Instant::now();
        loop {
            let done = tokio::select! {
                () = closed(&mut closing) => return ConnectionEnd::Close(close::RESTART, "restarting"),
                knock = self.knocks.recv() => match knock {
                    // Whoever spoke a moment ago lives, though it may be too busy to answer pings; anybody else is asked.
                    Some(Knock::AreYouThere(answer)) if last_heard.elapsed() < RECENT => {
                        let _ = answer.send(());
                        Ok(())
                    }
                    Some(Knock::AreYouThere(answer)) => {
                        self.knocking.push((self.pings + 1, answer));
                        self.ping().await
                    }
                    Some(Knock::Replaced) | None => return ConnectionEnd::Gone,
                },
                is_alive = pulse.next_probe() => {
                    if !is_alive {
                        return ConnectionEnd::Gone;
                    }
                    self.ping().await
                }
                () = tokio::time::sleep_until(self.record_at.unwrap_or_else(Instant::now)), if self.record_at.is_some() => {
                    self.record_received().await;
                    Ok(())
                }
                Some((id, replied)) = self.sent.next() => self.replied(id, replied).await,
                Some((id, outcome)) = self.ends.recv() => match self.let_go.get(&id) {
                    // Its id meant something else before it was here.
                    Some(call) if *call == outcome.call => {
                        self.let_go.remove(&id);
                        Ok(())
                    }
                    _ => self.ended(&id, outcome).await,
                },
                message = self.socket.recv() => {
                    pulse.note_activity();
                    last_heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => self.frame(&text).await,
                        Some(Ok(Message::Binary(bytes))) => self.frame(&String::from_utf8_lossy(&bytes)).await,
                        Some(Ok(Message::Pong(payload))) => self.pong(&payload).await,
                        Some(Ok(Message::Ping(_))) => Ok(()),
                        Some(Ok(Message::Close(_))) | None => return ConnectionEnd::Gone,
                        Some(Err(error)) => return broken(&error),
                    }
                }
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn send(&mut self, frame: String) -> Result<(), ConnectionEnd> {
        self.write(Message::Text(frame.into())).await
    }

    /// Sends a frame with what is sent next, so that a client reads both at once. It is [flushed](Self::flush) at the latest.
    async fn feed(&mut self, frame: String) -> Result<(), ConnectionEnd> {
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

    async fn write(&mut self, message: Message) -> Result<(), ConnectionEnd> {
        match timeout(STUCK, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            // Nothing else of this connection goes on while it waits, not even the look after whether it lives.
            Ok(Err(_)) | Err(_) => Err(ConnectionEnd::Gone),
        }
    }

    async fn fault(&mut self, id: &str, fault: &JsonRpcError) -> Result<(), ConnectionEnd> {
        self.send(wire::encode_error(id, fault)).await
    }

    async fn frame(&mut self, frame: &str) -> Result<(), ConnectionEnd> {
        let incoming = wire::read_frame(frame);
        self.lowest = self.lowest.into_iter().chain(counted_number(&incoming.id)).min();
        if self.taken_up.contains_key(incoming.id.as_str()) {
            self.let_all_go();
        }
        match incoming.request {
            Err(fault) => self.fault(&incoming.id, &fault).await,
            Ok(AgentGateRequest::Auth { .. }) => {
                self.fault(&incoming.id, &JsonRpcError::new(code::NO_METHOD, "Unknown method: auth")).await
            }
            Ok(AgentGateRequest::ListTools) => {
                let listed = wire::encode_result(&incoming.id, &self.door.listed);
                self.send(listed).await
            }
            Ok(AgentGateRequest::PendingResults) => self.pending(&incoming.id).await,
            Ok(AgentGateRequest::ToolRequest { tool, args, key }) => {
                let id: Arc<str> = incoming.id.into();
                let now = self.door.clock.now();
                if !self.agent.window.lock().try_count(now) {
                    return self.fault(&id, &JsonRpcError::new(code::LIMITED, "Rate limit exceeded")).await;
                }
                if self.open >= OPEN {
                    let fault = JsonRpcError::new(code::LIMITED, format!("Too many open requests (at most {OPEN})"));
                    return self.fault(&id, &fault).await;
                }
                let (session, principal) = (&self.agent.session, &self.agent.principal);
                let asked = requests::request(
                    &self.door.tools,
                    AgentToolRequest { session, principal, id: &id, tool, args, key },
                );
                // Nobody is asked about a call that could not be sent.
                match asked.and_then(|request| requests::check(&self.door.secrets, request)) {
                    Err(fault) => self.fault(&id, &fault).await,
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

    /// A request was recorded, or was not.
    async fn replied(&mut self, id: Arc<str>, replied: Result<OwnerReply, OwnerError>) -> Result<(), ConnectionEnd> {
        match replied.map(|reply| reply.outcome) {
            Ok(engine::EngineReply::Requested { call, over: None }) => {
                self.mine.insert(call);
                self.wait(call, id).await
            }
            Ok(engine::EngineReply::Requested { call, over: Some((end, lsn)) }) => {
                let content = self.door.handle.contents().get(&[lsn]).await.ok().and_then(|mut texts| texts.pop()?);
                let content = content.as_deref().unwrap_or_default().to_owned();
                self.ended(&id, Outcome { call, gate: None, end, content: content.into() }).await
            }
            Ok(_) => {
                self.open -= 1;
                self.fault(&id, &JsonRpcError::new(code::FAILED, "Internal error")).await
            }
            Err(OwnerError::Refusal(refusal @ (CommandError::KeyTaken(_) | CommandError::TooLong { .. }))) => {
                self.open -= 1;
                self.fault(&id, &JsonRpcError::new(code::INVALID, refusal.to_string())).await
            }
            Err(refused) => {
                self.open -= 1;
                self.fault(&id, &JsonRpcError::new(code::FAILED, refused.to_string())).await
            }
        }
    }

    /// Waits for the end of a call, also of one that ended a while ago.
    async fn wait(&mut self, call: CallId, id: Arc<str>) -> Result<(), ConnectionEnd> {
        if self.door.answers.wait(call, Arc::clone(&id), &self.told) {
            return Ok(());
        }
        let session = self.agent.session.clone();
        let read = self.source.read_state(move |engine| {
            let results = engine.state().session(&session)?.agent_requests()?.results();
            results.get(&call).map(|result| (result.end, result.lsn))
        });
        let Some((Some((end, lsn)), _)) = read.await else { return Ok(()) };
        if !self.door.answers.claim(call, &id, &self.told) {
            return Ok(());
        }
        let content = self.door.handle.contents().get(&[lsn]).await.ok().and_then(|mut texts| texts.pop()?);
        let content = content.as_deref().unwrap_or_default().to_owned();
        self.ended(&id, Outcome { call, gate: None, end, content: content.into() }).await
    }

    /// The gate that decided a request, whichever process it was opened in.
    async fn gate_of(&mut self, call: CallId) -> Option<GateId> {
        let session = self.agent.session.clone();
        let read = self.source.read_of(ResidencyScope::Session(session.clone()), move |engine| {
            engine.state().session(&session)?.agent_requests()?.gate_of(call)
        });
        read.await?.0
    }

    /// A request is over.
    async fn ended(&mut self, id: &str, mut outcome: Outcome) -> Result<(), ConnectionEnd> {
        self.open = self.open.saturating_sub(1);
        self.taken_up.remove(id);
        if outcome.end == call::CallEnd::Unknown && outcome.gate.is_none() {
            outcome.gate = self.gate_of(outcome.call).await;
        }
        // Whoever has what it wanted may leave at once, and answers no ping that comes behind that.
        self.feed(outcome.reply(id)).await?;
        self.unproven.push(outcome.call);
        self.prove().await?;
        self.flush().await
    }

    /// Has the client prove that it received what was sent: its pong comes behind that.
    async fn prove(&mut self) -> Result<(), ConnectionEnd> {
        if self.pinged.is_empty() && !self.unproven.is_empty() { self.ping().await } else { Ok(()) }
    }

    async fn ping(&mut self) -> Result<(), ConnectionEnd> {
        self.pings += 1;
        self.pinged.push_back((self.pings, std::mem::take(&mut self.unproven)));
        let number = self.pings.to_be_bytes().to_vec();
        self.write(Message::Ping(number.into())).await
    }

    /// A pong shows that its client lives, and one to a ping of ours that everything before that ping arrived. A client may
    /// leave out all but the last, and may send some that nobody asked for.
    async fn pong(&mut self, payload: &[u8]) -> Result<(), ConnectionEnd> {
        let number = payload.try_into().map_or(0, u64::from_be_bytes);
        for (_, knocking) in self.knocking.extract_if(.., |(ping, _)| *ping <= number) {
            let _ = knocking.send(());
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
        self.prove().await
    }

    /// Has the receipts recorded that were gathered. Until then their results are told again to whoever asks.
    async fn record_received(&mut self) {
        self.record_at = None;
        let calls = std::mem::take(&mut self.received);
        if !calls.is_empty() {
            let received = call::Command::Received { session: self.agent.session.clone(), calls };
            self.source.post_command(Command::Call(received)).await;
        }
    }

    /// An id means something else now: the program is not the one that asked for what was taken up. It is listed to whoever asks.
    fn let_all_go(&mut self) {
        for (id, call) in std::mem::take(&mut self.taken_up) {
            self.open = self.open.saturating_sub(1);
            if !self.door.answers.claim(call, &id, &self.told) {
                self.let_go.insert(id, call);
            }
            // The same may have been asked for again under its key.
            if !self.door.answers.has(call, &self.told) {
                self.mine.remove(&call);
            }
        }
    }

    async fn pending(&mut self, id: &str) -> Result<(), ConnectionEnd> {
        // What was asked for before this is known first, so that nothing is answered twice.
        while let Some((id, replied)) = self.sent.next().await {
            self.replied(id, replied).await?;
        }
        self.record_received().await;
        let missed = pending::missed(self.door, self.agent, &self.source, (id, self.lowest), &self.mine).await;
        let Some(missed) = missed else {
            return self.fault(id, &JsonRpcError::new(code::FAILED, "The gateway is closing")).await;
        };
        self.feed(wire::encode_result(id, &missed.listed)).await?;
        let mut told: BTreeSet<CallId> = missed.calls.into_iter().collect();
        for owed in missed.owed {
            // One by one, as they are listed.
            if let Some(reply) = owed.reply(self.door).await {
                self.feed(reply).await?;
                told.insert(owed.call);
            }
        }
        for (call, id) in missed.open {
            self.open += 1;
            self.mine.insert(call);
            self.taken_up.insert(Arc::clone(&id), call);
            self.wait(call, id).await?;
        }
        self.mine.extend(&told);
        self.unproven.extend(told);
        self.prove().await?;
        self.flush().await
    }
}
