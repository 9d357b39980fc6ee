//! The life of one connection: requests of the gateway, and reports to it, each repeated until the gateway has taken it.
//!
//! It must not outlive its connection: reports that the gateway has not taken by then stay in the journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use countersign_http::listen::keep_alive::{self, KeepAlive};
use countersign_protocol::{
    RawJson, WireValue,
    gsv::{
        GsvError, GsvInboundFrame, Method, code,
        connect::RESUME,
        frame,
        node::{LogsGetEvent, NodeProbe},
        tool::{ToolInvokeEvent, ToolResultParams, ToolResumeEvent},
    },
};
use tokio::{
    sync::mpsc,
    time::{Instant, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    calls::CallRunner,
    journal::JournalHandle,
    probes::{ProbeAnswer, ProbeRunner},
    socket::{ConnectionLost, NodeSocket, SocketMessage},
};

/// Time between two keep-alive requests to the gateway.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Time for the answer to it.
const KEPT: Duration = Duration::from_secs(10);
/// Time between two pings. A pong that does not come before the next ping counts as missing.
const PING: Duration = Duration::from_secs(40);
/// Time for the gateway to ask for the result of a call of an earlier connection, before its events are sent.
const ANNOUNCED: Duration = Duration::from_secs(5);
/// Time before a report is repeated that the gateway could not take.
const AGAIN: Duration = Duration::from_secs(2);
/// Time for the gateway to take the outcomes of calls when a node ends.
const FAREWELL: Duration = Duration::from_secs(3);
/// Maximum number of our requests without an answer.
const OPEN: usize = 4096;

/// Parts of the node that answer on a connection.
pub(crate) struct NodeServices {
    pub(crate) calls: CallRunner,
    pub(crate) journal: JournalHandle,
    pub(crate) probes: ProbeRunner,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionOutcome {
    /// By the gateway, or by what is between us.
    Gone(ConnectionLost),
    /// The node ends.
    Stopped,
}

/// Kind of a request of ours.
#[derive(Debug)]
enum SentRequest {
    Result(String),
    Event(i64),
    KeepAlive,
    Look,
}

/// State of the delivery of events of commands in the background. They are sent one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventDelivery {
    /// There are none.
    None,
    /// There may be one that can be sent from then on.
    Due(Instant),
    /// One is on its way.
    Open,
}

/// A connection and what is open on it.
struct GatewayConnection<'a> {
    services: &'a NodeServices,
    socket: NodeSocket,
    began: Instant,
    number: u64,
    open: BTreeMap<String, SentRequest>,
    /// Calls whose end the gateway wants to get over this connection.
    requested: BTreeSet<String>,
    /// Calls whose end the gateway could not take, and the time of the next report.
    again: Vec<(Instant, String)>,
    events: EventDelivery,
    kept_by: Option<Instant>,
    answers: mpsc::Sender<ProbeAnswer>,
}

/// Answers on a connection until it ends. `outcomes` receives the end of each call, and `over` that the node ends and its calls have.
pub(crate) async fn serve_connection(
    services: &NodeServices,
    socket: NodeSocket,
    outcomes: &mut mpsc::UnboundedReceiver<ToolResultParams>,
    over: &CancellationToken,
) -> ConnectionOutcome {
    let (answers, mut answered) = mpsc::channel(16);
    let began = Instant::now();
    let mut connection = GatewayConnection {
        services,
        socket,
        began,
        number: 0,
        open: BTreeMap::new(),
        requested: BTreeSet::new(),
        again: Vec::new(),
        events: EventDelivery::Due(began),
        kept_by: None,
        answers,
    };
    match connection.run(outcomes, &mut answered, over).await {
        Ok(()) => {
            connection.socket.close_gracefully().await;
            ConnectionOutcome::Stopped
        }
        Err(gone) => ConnectionOutcome::Gone(gone),
    }
}

impl GatewayConnection<'_> {
    async fn run(
        &mut self,
        outcomes: &mut mpsc::UnboundedReceiver<ToolResultParams>,
        answered: &mut mpsc::Receiver<ProbeAnswer>,
        over: &CancellationToken,
    ) -> Result<(), ConnectionLost> {
        let mut changed = self.services.journal.watch_changes();
        let mut keep_alive = interval_at(self.began + KEEP_ALIVE, KEEP_ALIVE);
        let mut pulse = KeepAlive::with_period(PING);
        let mut leave_by = None;
        loop {
            if over.is_cancelled() {
                leave_by = leave_by.or_else(|| Some(Instant::now() + FAREWELL));
                let is_open =
                    self.open.values().any(|sent| matches!(sent, SentRequest::Result(_) | SentRequest::Event(_)));
                let is_changed = changed.has_changed().unwrap_or(false);
                if !is_open && !is_changed && outcomes.is_empty() && self.events == EventDelivery::None {
                    return Ok(());
                }
            }
            let (event_at, kept_by) = (self.event_at(), self.kept_by);
            let again_at = self.again.first().map(|(at, _)| *at);
            tokio::select! {
                message = self.socket.next_message() => {
                    pulse.note_activity();
                    match message? {
                        SocketMessage::Frame(incoming) => self.handle_incoming(incoming).await?,
                        SocketMessage::Sign => {}
                    }
                }
                Some(outcome) = outcomes.recv() => self.send_result(outcome).await?,
                Some(answer) = answered.recv() => match answer {
                    ProbeAnswer::Probed(probed) => self.send_request(Method::NodeProbeResult, Some(&probed), SentRequest::Look).await?,
                    ProbeAnswer::Logs(logs) => self.send_request(Method::LogsResult, Some(&logs), SentRequest::Look).await?,
                },
                Ok(()) = changed.changed() => {
                    if self.events != EventDelivery::Open {
                        self.events = EventDelivery::Due(Instant::now());
                    }
                }
                () = wait_until(event_at) => self.send_event().await?,
                () = wait_until(again_at) => self.retry_results(),
                () = wait_until(kept_by) => {
                    // A node that was held up itself has not read the answer yet.
                    if kept_by.is_none_or(|by| by.elapsed() <= keep_alive::LATE) {
                        return Err(ConnectionLost::Broke("the gateway does not answer".to_owned()));
                    }
                    self.kept_by = Some(Instant::now() + KEPT);
                }
                _ = keep_alive.tick() => {
                    self.kept_by = Some(Instant::now() + KEPT);
                    self.send_request(Method::ToolsList, None::<&()>, SentRequest::KeepAlive).await?;
                }
                is_alive = pulse.next_probe() => {
                    if !is_alive {
                        return Err(ConnectionLost::Broke("no traffic from the gateway".to_owned()));
                    }
                    self.socket.ping().await?;
                }
                () = over.cancelled(), if leave_by.is_none() => {}
                () = wait_until(leave_by) => return Ok(()),
            }
        }
    }

    /// Asks the gateway for something.
    async fn send_request(
        &mut self,
        method: Method,
        params: Option<&impl WireValue>,
        sent: SentRequest,
    ) -> Result<(), ConnectionLost> {
        if self.open.len() >= OPEN {
            return Err(ConnectionLost::Broke("the gateway does not answer requests".to_owned()));
        }
        self.number += 1;
        let id = self.number.to_string();
        let frame = frame::encode_request(&id, method, params);
        self.open.insert(RawJson::from_wire(id.as_str()).as_text().to_owned(), sent);
        self.socket.send(frame).await
    }

    async fn handle_incoming(&mut self, incoming: GsvInboundFrame) -> Result<(), ConnectionLost> {
        match incoming {
            GsvInboundFrame::Response { id, outcome } => {
                let sent = self.open.remove(id.as_json());
                let refused = outcome.err();
                match sent {
                    Some(SentRequest::Result(call)) => self.result_answered(call, refused),
                    Some(SentRequest::Event(seq)) => self.event_answered(seq, refused).await,
                    Some(SentRequest::KeepAlive) => self.kept_by = None,
                    Some(SentRequest::Look) | None => {}
                }
                Ok(())
            }
            GsvInboundFrame::Event { event, payload, .. } => {
                self.handle_event(&event, payload.as_ref());
                Ok(())
            }
            GsvInboundFrame::Request { id, method, .. } => {
                let fault = GsvError::unknown_method(&method);
                self.socket.send(frame::encode_error(&id, &fault)).await
            }
            GsvInboundFrame::Malformed { .. } | GsvInboundFrame::Ignored { .. } => Ok(()),
        }
    }

    /// Does what an event asks for.
    fn handle_event(&mut self, event: &str, payload: Option<&RawJson>) {
        let Some(payload) = payload else { return };
        let services = self.services;
        let read = match event {
            "tool.invoke" => payload.decode_as().map(|call: ToolInvokeEvent| {
                self.requested.insert(call.call_id.clone());
                services.calls.begin_call(call);
            }),
            RESUME => payload.decode_as().map(|ToolResumeEvent { call_id }| {
                self.requested.insert(call_id.clone());
                services.calls.resume_call(call_id);
            }),
            "node.probe" => {
                payload.decode_as().map(|probe: NodeProbe| services.probes.probe_programs(probe, self.answers.clone()))
            }
            "logs.get" => {
                payload.decode_as().map(|request: LogsGetEvent| services.probes.read_log(request, self.answers.clone()))
            }
            _ => return,
        };
        if let Err(error) = read {
            warn!(event, %error, "cannot parse an event of the gateway");
        }
    }

    /// Tells the gateway what came of a call, if it wants to know.
    async fn send_result(&mut self, outcome: ToolResultParams) -> Result<(), ConnectionLost> {
        if !self.requested.remove(&outcome.call_id) {
            return Ok(());
        }
        let call = outcome.call_id.clone();
        self.send_request(Method::ToolResult, Some(&outcome), SentRequest::Result(call)).await
    }

    fn result_answered(&mut self, call: String, refused: Option<GsvError>) {
        match refused {
            Some(fault) if !is_final(&fault) => {
                debug!(call, fault = fault.message, "the gateway could not take a result; sending it again");
                self.again.push((Instant::now() + AGAIN, call));
            }
            Some(fault) => {
                warn!(call, fault = fault.message, "the gateway rejected a result");
                self.services.journal.mark_received(call);
            }
            None => self.services.journal.mark_received(call),
        }
    }

    /// Finds again what the gateway could not take.
    fn retry_results(&mut self) {
        let now = Instant::now();
        for (_, call) in self.again.extract_if(.., |(at, _)| *at <= now) {
            self.requested.insert(call.clone());
            self.services.calls.resume_call(call);
        }
    }

    const fn event_at(&self) -> Option<Instant> {
        match self.events {
            EventDelivery::Due(at) => Some(at),
            EventDelivery::None | EventDelivery::Open => None,
        }
    }

    /// Tells the gateway the oldest event. The result of the call that began its command goes before.
    async fn send_event(&mut self) -> Result<(), ConnectionLost> {
        let waiting = match self.services.journal.next_event().await {
            Ok(Some(waiting)) => waiting,
            Ok(None) => {
                self.events = EventDelivery::None;
                return Ok(());
            }
            Err(error) => {
                warn!(%error, "cannot read events from the journal; retrying");
                self.events = EventDelivery::Due(Instant::now() + AGAIN);
                return Ok(());
            }
        };
        let is_on_its_way = |call: &String| {
            self.requested.contains(call)
                || self.again.iter().any(|(_, again)| again == call)
                || self.open.values().any(|sent| matches!(sent, SentRequest::Result(open) if open == call))
        };
        let is_awaited = waiting.event.call_id.as_ref().is_some_and(is_on_its_way);
        if !waiting.is_announced && (is_awaited || self.began.elapsed() < ANNOUNCED) {
            // Looked for sooner when the journal changes, as it does with the result.
            self.events = EventDelivery::Due(Instant::now() + ANNOUNCED);
            return Ok(());
        }
        self.events = EventDelivery::Open;
        self.send_request(Method::NodeExecEvent, Some(&waiting.event), SentRequest::Event(waiting.seq)).await
    }

    async fn event_answered(&mut self, seq: i64, refused: Option<GsvError>) {
        let after = match refused {
            Some(fault) if !is_final(&fault) => AGAIN,
            refused => {
                if let Some(fault) = refused {
                    warn!(fault = fault.message, "the gateway rejected an event");
                }
                match self.services.journal.mark_taken(seq).await {
                    Ok(()) => Duration::ZERO,
                    // It is sent again, which the gateway knows by its id.
                    Err(error) => {
                        warn!(%error, "cannot remove a delivered event from the journal; sending it again");
                        AGAIN
                    }
                }
            }
        };
        self.events = EventDelivery::Due(Instant::now() + after);
    }
}

/// Reports whether a refusal is permanent.
const fn is_final(fault: &GsvError) -> bool {
    matches!(fault.code, code::INVALID | code::FORBIDDEN | code::NOT_FOUND)
}

/// Waits until an instant; forever without one.
async fn wait_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
