//! Work at a peer: calls that a program at the other end of a connection runs.
//!
//! A tool says by [`CallRoute::Peer`](countersign_tools::CallRoute) that a call of it is done at a peer. Policy and gates treat that
//! call as any other. Once it may start, it is started for the line that the peer has then, which is recorded, and never
//! given to another. While the peer has no line the call waits under a deadline.
//!
//! An adapter does this, whether its peer is a host with tools of its own or a node:
//!
//! 1. It has one [`PeerRegistry`], which its [`RunEnvironment`](crate::RunEnvironment) hands out as well.
//! 2. A connection that can be given work [opens](PeerRegistry::open) a [`PeerLink`] under its id. The calls that the peer had on its
//!    line before is gone then.
//! 3. For each [`PeerOrder::Do`] it writes its frame: first [`PeerCall::mark_sent`], then the bytes, a frame that may have left is never
//!    sent again. The [`PeerExchange`] that this gives takes updates and the end. A peer call that is dropped was not sent: its
//!    call waits for the next line. One that this peer cannot do is [refused](PeerCall::refuse).
//! 4. For each [`PeerOrder::Stop`] it cancels the call at the peer. The call has ended already; anything that the peer still
//!    reports about it goes to the same [`PeerExchange`], which records it as too late.
//! 5. When the connection is gone it [closes](PeerLink::close) its link and drops its exchanges: calls that were sent end as
//!    "outcome unknown", with the texts that were given to [`PeerCall::mark_sent`].
//!
//! A peer that durably notes the outcome of each call, and does none twice, may say so when its line is
//! [opened](PeerRegistry::open_to). Then a call whose line broke is in doubt for a while, and the next line is given a
//! [`PeerOrder::Ask`]: the adapter asks for the outcome of the call, and must not have it done. The reply ends the exchange as
//! ever, or says that it [never began](PeerExchange::never_began), or that the outcome is [lost](PeerExchange::mark_lost).
//!
//! It must not know the frames that travel on a line.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use countersign_core::{
    call::{CallDetails, CallProgress, Command as CallCommand},
    engine::Command,
    id::{CallId, PeerId, SessionId},
    peer::{self, PeerLine, PeerMemory},
};
use countersign_tools::CallOutput;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{inbox::CommandSource, message_content::encode_tool_result};

/// The lines of all peers of one adapter. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PeerRegistry(Arc<Mutex<PeerConnections>>);

#[derive(Debug, Default)]
struct PeerConnections {
    opened: u64,
    open: BTreeMap<PeerId, (PeerLine, mpsc::UnboundedSender<PeerOrder>)>,
}

/// Order for a line of a peer.
pub enum PeerOrder {
    /// A call is to be done.
    Do(Box<PeerCall>),
    /// Asks for the outcome of a call that the peer had on an earlier line. It must not be done.
    Ask(Box<PeerCall>),
    /// Stops a call whose result is no longer needed.
    Stop(CallId),
}

/// A call that a peer is to do.
pub struct PeerCall {
    /// Id of the call.
    pub call: CallId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// Tool and arguments of the call.
    pub content: Arc<CallDetails>,
    taken: oneshot::Sender<CallAcceptance>,
    patience: Option<Duration>,
    results: CommandSource,
}

/// Texts for the model about a call that was sent and brought no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTexts {
    /// Text if the call was stopped.
    pub stopped: String,
    /// The connection is gone.
    pub gone: String,
    /// Text if the peer sent nothing for too long.
    pub silent: String,
}

/// Acceptance of a peer call by its line.
pub(crate) enum CallAcceptance {
    Sent {
        words: PeerTexts,
        patience: Option<Duration>,
        updates: watch::Receiver<Option<CallOutput>>,
        end: oneshot::Receiver<PeerOutcome>,
    },
    Refused(String),
}

/// Outcome of a call as its peer reports it.
pub(crate) enum PeerOutcome {
    Done { output: CallOutput, left_behind: Option<Arc<str>> },
    NotBegun(String),
    Lost(String),
}

/// A call that a peer has.
pub struct PeerExchange {
    call: CallId,
    content: Arc<CallDetails>,
    latest: watch::Sender<Option<CallOutput>>,
    end: oneshot::Sender<PeerOutcome>,
    results: CommandSource,
}

/// Handle for a call whose result is no longer needed, and about which its peer may still report.
pub struct LateResult {
    call: CallId,
    tool_call: ToolCallRef,
    results: CommandSource,
}

/// Part of a call that its late result repeats. The rest of the request may be large.
struct ToolCallRef {
    tool: Arc<str>,
    tool_call_id: Arc<str>,
}

/// Timing of a result: in time or too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultTiming {
    /// The call had not ended.
    InTime,
    /// The call had ended before. The result is recorded with it and changes nothing.
    TooLate,
}

/// A connection over which a peer can be given work.
pub struct PeerLink {
    peer: PeerId,
    line: PeerLine,
    // Bounded by the calls in flight: a call has at most two orders.
    orders: mpsc::UnboundedReceiver<PeerOrder>,
    peers: PeerRegistry,
    results: CommandSource,
}

impl PeerRegistry {
    /// Opens a line to a peer, in the place of the one that it has. Work that waits for the peer begins once that is recorded;
    /// `results` is a source of the result lane.
    pub async fn open(&self, peer: PeerId, results: CommandSource) -> PeerLink {
        self.open_to(peer, PeerMemory::Forgets, results).await
    }

    /// Does the same for a peer of which it is known whether it notes the outcome of calls.
    pub async fn open_to(&self, peer: PeerId, memory: PeerMemory, results: CommandSource) -> PeerLink {
        let (sender, orders) = mpsc::unbounded_channel();
        let line = {
            let mut lines = self.0.lock();
            lines.opened += 1;
            let line = PeerLine(lines.opened);
            lines.open.insert(peer.clone(), (line, sender));
            line
        };
        results.post_command(Command::Peer(peer::Command::Came { peer: peer.clone(), line, memory })).await;
        PeerLink { peer, line, orders, peers: self.clone(), results }
    }

    /// Returns the way to a line, if it is still that of its peer.
    pub(crate) fn sender_for(&self, peer: &PeerId, line: PeerLine) -> Option<mpsc::UnboundedSender<PeerOrder>> {
        let lines = self.0.lock();
        lines.open.get(peer).filter(|(open, _)| *open == line).map(|(_, sender)| sender.clone())
    }

    fn remove_line(&self, peer: &PeerId, line: PeerLine) {
        let mut lines = self.0.lock();
        if lines.open.get(peer).is_some_and(|(open, _)| *open == line) {
            lines.open.remove(peer);
        }
    }
}

impl PeerLink {
    /// Waits for the next order. `None` once another line of the same peer took its place.
    ///
    /// *Cancellation*: a future that is dropped loses no order.
    pub async fn next(&mut self) -> Option<PeerOrder> {
        self.orders.recv().await
    }

    /// Notes that the connection is gone. Unsent calls wait for the next.
    pub async fn close(self) {
        let (peer, line) = (self.peer.clone(), self.line);
        let results = self.results.clone();
        drop(self);
        results.post_command(Command::Peer(peer::Command::Gone { peer, line })).await;
    }
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        self.peers.remove_line(&self.peer, self.line);
    }
}

impl PeerCall {
    pub(crate) fn new(
        call: CallId,
        session: SessionId,
        content: Arc<CallDetails>,
        results: CommandSource,
    ) -> (Self, oneshot::Receiver<CallAcceptance>) {
        let (taken, receiver) = oneshot::channel();
        (Self { call, session, content, taken, patience: None, results }, receiver)
    }

    /// Returns the same with this limit of the peer's silence, in place of that of the session's settings.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Notes that it leaves now. `None` if its result is no longer needed: then it must not be sent.
    pub fn mark_sent(self, words: PeerTexts) -> Option<PeerExchange> {
        let (latest, updates) = watch::channel(None);
        let (sender, end) = oneshot::channel();
        self.taken.send(CallAcceptance::Sent { words, patience: self.patience, updates, end }).ok()?;
        Some(PeerExchange { call: self.call, content: self.content, latest, end: sender, results: self.results })
    }

    /// Ends it unsent, because it cannot be done; `why` is the text for the model.
    pub fn refuse(self, why: impl Into<String>) {
        // A stopped call has no receiver.
        let _ = self.taken.send(CallAcceptance::Refused(why.into()));
    }
}

impl PeerExchange {
    /// Returns the id of the call.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Returns the tool and arguments of the call.
    pub fn content(&self) -> &CallDetails {
        &self.content
    }

    /// Hands on all output so far. Each one replaces the one before.
    pub fn send_update(&self, output: CallOutput) {
        self.latest.send_replace(Some(output));
    }

    /// Ends the call with its peer's outcome.
    pub async fn end_with(self, output: CallOutput) -> ResultTiming {
        self.end_leaving(output, None).await
    }

    /// Does the same for a call of which a process continues at the peer, under the peer's name for it.
    pub async fn end_leaving(self, output: CallOutput, left_behind: Option<Arc<str>>) -> ResultTiming {
        let Err(fate) = self.end.send(PeerOutcome::Done { output, left_behind }) else { return ResultTiming::InTime };
        if let PeerOutcome::Done { output, .. } = fate {
            LateResult { call: self.call, tool_call: ToolCallRef::from_content(&self.content), results: self.results }
                .send_output(output)
                .await;
        }
        ResultTiming::TooLate
    }

    /// Ends a call after a [`PeerOrder::Ask`]: its peer never began it, and never will.
    pub fn never_began(self, why: impl Into<String>) -> ResultTiming {
        self.send_outcome(PeerOutcome::NotBegun(why.into()))
    }

    /// Ends the call whose outcome its peer reports as unknown.
    pub fn mark_lost(self, why: impl Into<String>) -> ResultTiming {
        self.send_outcome(PeerOutcome::Lost(why.into()))
    }

    fn send_outcome(self, fate: PeerOutcome) -> ResultTiming {
        if self.end.send(fate).is_ok() { ResultTiming::InTime } else { ResultTiming::TooLate }
    }

    /// Returns the handle for reports about the call after its end.
    pub fn late_result(&self) -> LateResult {
        LateResult {
            call: self.call,
            tool_call: ToolCallRef::from_content(&self.content),
            results: self.results.clone(),
        }
    }

    /// Drops it when its result is no longer needed or its line is gone. Later reports of the peer are recorded with the call.
    pub fn let_go(self) -> LateResult {
        self.late_result()
    }
}

impl ToolCallRef {
    fn from_content(content: &CallDetails) -> Self {
        Self { tool: Arc::clone(&content.tool), tool_call_id: Arc::clone(&content.tool_call_id) }
    }
}

impl LateResult {
    /// Makes the handle for a call that its peer got before this process began, or so long ago that it was forgotten.
    pub fn for_call(call: CallId, content: &CallDetails, results: CommandSource) -> Self {
        Self { call, tool_call: ToolCallRef::from_content(content), results }
    }

    /// Returns the id of the call.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Records a report of the peer about the call.
    pub async fn send_output(self, output: CallOutput) {
        let progress = CallProgress::Returned(Box::new(encode_tool_result(
            &self.tool_call.tool,
            &self.tool_call.tool_call_id,
            output,
        )));
        self.results.post_command(Command::Call(CallCommand::Ended { call: self.call, progress })).await;
    }
}
