//! The life of one connection: what the gateway asks for, and what it is told, each thing until it has taken it.
//!
//! It must not outlive its connection: what the gateway has not taken by then stays in the journal.

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
    calls::Calls,
    journal::Journal,
    line::{Gone, Heard, Line},
    looks::{Answer, Looks},
};

/// How often the gateway is told that we are there, in its own way.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// How long it has to answer that.
const KEPT: Duration = Duration::from_secs(10);
/// How often a sign of life is asked for. One that does not come before the next question is none.
const PING: Duration = Duration::from_secs(40);
/// How long the result of a call of an earlier connection is expected to be asked for, before its events are told.
const ANNOUNCED: Duration = Duration::from_secs(5);
/// How long after the gateway could not take something it is told again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a node that ends waits for the gateway to take what came of its calls.
const FAREWELL: Duration = Duration::from_secs(3);
/// How many of our requests may be without an answer.
const OPEN: usize = 4096;

/// Who answers on a connection.
pub(crate) struct Desk {
    pub(crate) calls: Calls,
    pub(crate) journal: Journal,
    pub(crate) looks: Looks,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By the gateway, or by what is between us.
    Gone(Gone),
    /// The node ends.
    Stopped,
}

/// What a request of ours was.
#[derive(Debug)]
enum Asked {
    Result(String),
    Event(i64),
    KeepAlive,
    Look,
}

/// What is done about events of commands in the background. They are told one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    /// There are none.
    None,
    /// There may be one that can be told from then on.
    Due(Instant),
    /// One is on its way.
    Open,
}

/// A connection and what is open on it.
struct Talk<'a> {
    desk: &'a Desk,
    line: Line,
    began: Instant,
    number: u64,
    open: BTreeMap<String, Asked>,
    /// Calls whose end the gateway wants to be told over this connection.
    wanted: BTreeSet<String>,
    /// Calls whose end the gateway could not take, and when it is told again.
    again: Vec<(Instant, String)>,
    events: Events,
    kept_by: Option<Instant>,
    answers: mpsc::Sender<Answer>,
}

/// Answers on a connection until it ends. `told` hears the end of each call, and `over` that the node ends and its calls have.
pub(crate) async fn serve(
    desk: &Desk,
    line: Line,
    told: &mut mpsc::UnboundedReceiver<ToolResultParams>,
    over: &CancellationToken,
) -> End {
    let (answers, mut answered) = mpsc::channel(16);
    let began = Instant::now();
    let mut talk = Talk {
        desk,
        line,
        began,
        number: 0,
        open: BTreeMap::new(),
        wanted: BTreeSet::new(),
        again: Vec::new(),
        events: Events::Due(began),
        kept_by: None,
        answers,
    };
    match talk.run(told, &mut answered, over).await {
        Ok(()) => {
            talk.line.leave().await;
            End::Stopped
        }
        Err(gone) => End::Gone(gone),
    }
}

impl Talk<'_> {
    async fn run(
        &mut self,
        told: &mut mpsc::UnboundedReceiver<ToolResultParams>,
        answered: &mut mpsc::Receiver<Answer>,
        over: &CancellationToken,
    ) -> Result<(), Gone> {
        let mut changed = self.desk.journal.changed();
        let mut keep_alive = interval_at(self.began + KEEP_ALIVE, KEEP_ALIVE);
        let mut pulse = KeepAlive::with_period(PING);
        let mut leave_by = None;
        loop {
            if over.is_cancelled() {
                leave_by = leave_by.or_else(|| Some(Instant::now() + FAREWELL));
                let is_open = self.open.values().any(|asked| matches!(asked, Asked::Result(_) | Asked::Event(_)));
                let is_changed = changed.has_changed().unwrap_or(false);
                if !is_open && !is_changed && told.is_empty() && self.events == Events::None {
                    return Ok(());
                }
            }
            let (event_at, kept_by) = (self.event_at(), self.kept_by);
            let again_at = self.again.first().map(|(at, _)| *at);
            tokio::select! {
                heard = self.line.next() => {
                    pulse.note_activity();
                    match heard? {
                        Heard::Frame(incoming) => self.incoming(incoming).await?,
                        Heard::Sign => {}
                    }
                }
                Some(outcome) = told.recv() => self.result(outcome).await?,
                Some(answer) = answered.recv() => match answer {
                    Answer::Probed(probed) => self.ask(Method::NodeProbeResult, Some(&probed), Asked::Look).await?,
                    Answer::Logs(logs) => self.ask(Method::LogsResult, Some(&logs), Asked::Look).await?,
                },
                Ok(()) = changed.changed() => {
                    if self.events != Events::Open {
                        self.events = Events::Due(Instant::now());
                    }
                }
                () = at(event_at) => self.event().await?,
                () = at(again_at) => self.ask_again(),
                () = at(kept_by) => {
                    // Who was held up itself has not read the answer yet.
                    if kept_by.is_none_or(|by| by.elapsed() <= keep_alive::LATE) {
                        return Err(Gone::Broke("the gateway does not answer".to_owned()));
                    }
                    self.kept_by = Some(Instant::now() + KEPT);
                }
                _ = keep_alive.tick() => {
                    self.kept_by = Some(Instant::now() + KEPT);
                    self.ask(Method::ToolsList, None::<&()>, Asked::KeepAlive).await?;
                }
                is_alive = pulse.next_probe() => {
                    if !is_alive {
                        return Err(Gone::Broke("nothing is heard of the gateway".to_owned()));
                    }
                    self.line.ping().await?;
                }
                () = over.cancelled(), if leave_by.is_none() => {}
                () = at(leave_by) => return Ok(()),
            }
        }
    }

    /// Asks the gateway for something.
    async fn ask(&mut self, method: Method, params: Option<&impl WireValue>, asked: Asked) -> Result<(), Gone> {
        if self.open.len() >= OPEN {
            return Err(Gone::Broke("the gateway answers nothing".to_owned()));
        }
        self.number += 1;
        let id = self.number.to_string();
        let frame = frame::encode_request(&id, method, params);
        self.open.insert(RawJson::from_wire(id.as_str()).as_text().to_owned(), asked);
        self.line.send(frame).await
    }

    async fn incoming(&mut self, incoming: GsvInboundFrame) -> Result<(), Gone> {
        match incoming {
            GsvInboundFrame::Response { id, outcome } => {
                let asked = self.open.remove(id.as_json());
                let refused = outcome.err();
                match asked {
                    Some(Asked::Result(call)) => self.result_answered(call, refused),
                    Some(Asked::Event(seq)) => self.event_answered(seq, refused).await,
                    Some(Asked::KeepAlive) => self.kept_by = None,
                    Some(Asked::Look) | None => {}
                }
                Ok(())
            }
            GsvInboundFrame::Event { event, payload, .. } => {
                self.told(&event, payload.as_ref());
                Ok(())
            }
            GsvInboundFrame::Request { id, method, .. } => {
                let fault = GsvError::unknown_method(&method);
                self.line.send(frame::encode_error(&id, &fault)).await
            }
            GsvInboundFrame::Malformed { .. } | GsvInboundFrame::Ignored { .. } => Ok(()),
        }
    }

    /// Does what an event asks for.
    fn told(&mut self, event: &str, payload: Option<&RawJson>) {
        let Some(payload) = payload else { return };
        let desk = self.desk;
        let read = match event {
            "tool.invoke" => payload.decode_as().map(|call: ToolInvokeEvent| {
                self.wanted.insert(call.call_id.clone());
                desk.calls.begin(call);
            }),
            RESUME => payload.decode_as().map(|ToolResumeEvent { call_id }| {
                self.wanted.insert(call_id.clone());
                desk.calls.resume(call_id);
            }),
            "node.probe" => payload.decode_as().map(|probe: NodeProbe| desk.looks.probe(probe, self.answers.clone())),
            "logs.get" => payload.decode_as().map(|wanted: LogsGetEvent| desk.looks.log(wanted, self.answers.clone())),
            _ => return,
        };
        if let Err(error) = read {
            warn!(event, %error, "what the gateway asks for cannot be read");
        }
    }

    /// Tells the gateway what came of a call, if it wants to know.
    async fn result(&mut self, outcome: ToolResultParams) -> Result<(), Gone> {
        if !self.wanted.remove(&outcome.call_id) {
            return Ok(());
        }
        let call = outcome.call_id.clone();
        self.ask(Method::ToolResult, Some(&outcome), Asked::Result(call)).await
    }

    fn result_answered(&mut self, call: String, refused: Option<GsvError>) {
        match refused {
            Some(fault) if !is_final(&fault) => {
                debug!(call, fault = fault.message, "a result is told again");
                self.again.push((Instant::now() + AGAIN, call));
            }
            Some(fault) => {
                warn!(call, fault = fault.message, "the gateway does not take a result");
                self.desk.journal.received(call);
            }
            None => self.desk.journal.received(call),
        }
    }

    /// Finds again what the gateway could not take.
    fn ask_again(&mut self) {
        let now = Instant::now();
        for (_, call) in self.again.extract_if(.., |(at, _)| *at <= now) {
            self.wanted.insert(call.clone());
            self.desk.calls.resume(call);
        }
    }

    const fn event_at(&self) -> Option<Instant> {
        match self.events {
            Events::Due(at) => Some(at),
            Events::None | Events::Open => None,
        }
    }

    /// Tells the gateway the oldest event. The result of the call that began its command goes before.
    async fn event(&mut self) -> Result<(), Gone> {
        let waiting = match self.desk.journal.next().await {
            Ok(Some(waiting)) => waiting,
            Ok(None) => {
                self.events = Events::None;
                return Ok(());
            }
            Err(error) => {
                warn!(%error, "events wait");
                self.events = Events::Due(Instant::now() + AGAIN);
                return Ok(());
            }
        };
        let is_on_its_way = |call: &String| {
            self.wanted.contains(call)
                || self.again.iter().any(|(_, again)| again == call)
                || self.open.values().any(|asked| matches!(asked, Asked::Result(open) if open == call))
        };
        let is_awaited = waiting.event.call_id.as_ref().is_some_and(is_on_its_way);
        if !waiting.is_announced && (is_awaited || self.began.elapsed() < ANNOUNCED) {
            // Looked for sooner when the journal changes, as it does with the result.
            self.events = Events::Due(Instant::now() + ANNOUNCED);
            return Ok(());
        }
        self.events = Events::Open;
        self.ask(Method::NodeExecEvent, Some(&waiting.event), Asked::Event(waiting.seq)).await
    }

    async fn event_answered(&mut self, seq: i64, refused: Option<GsvError>) {
        let after = match refused {
            Some(fault) if !is_final(&fault) => AGAIN,
            refused => {
                if let Some(fault) = refused {
                    warn!(fault = fault.message, "the gateway does not take an event");
                }
                match self.desk.journal.taken(seq).await {
                    Ok(()) => Duration::ZERO,
                    // It is told again, which the gateway knows by its id.
                    Err(error) => {
                        warn!(%error, "an event stays");
                        AGAIN
                    }
                }
            }
        };
        self.events = Events::Due(Instant::now() + after);
    }
}

/// Whether a refusal stays so however often it is asked again.
const fn is_final(fault: &GsvError) -> bool {
    matches!(fault.code, code::INVALID | code::FORBIDDEN | code::NOT_FOUND)
}

/// Ready at an instant; never without one.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
