//! Work at a peer: calls that somebody at the other end of a connection does.
//!
//! A tool says by [`Route::Peer`](countersign_tools::Route) that a call of it is done at a peer. Policy and gates treat that
//! call as any other. Once it may start, it is started for the line that the peer has then, which is recorded, and never
//! given to another. While the peer has no line the call waits under a deadline.
//!
//! A door does this, whether its peer is a host with tools of its own or a node:
//!
//! 1. It has one [`Peers`], which its [`Host`](crate::Host) hands out as well.
//! 2. A connection that can be given work [opens](Peers::open) a [`Link`] under the peer's id. What the peer had on its
//!    line before is gone then.
//! 3. For each [`Order::Do`] it writes its frame: first [`Errand::sent`], then the bytes, for what may have left is never
//!    sent again. The [`Exchange`] that this gives takes updates and the end. An errand that is dropped was not sent: its
//!    call waits for the next line. One that this peer cannot do is [refused](Errand::refuse).
//! 4. For each [`Order::Stop`] it tells the peer that nobody waits any more. The call has ended already; what the peer still
//!    says of it goes to the same [`Exchange`], which records it as too late.
//! 5. When the connection is gone it [closes](Link::close) its link and drops its exchanges: calls that were sent end as
//!    "outcome unknown", in the words that were given with [`Errand::sent`].
//!
//! A peer that notes durably what becomes of each call, and does none twice, may say so when its line is
//! [opened](Peers::open_to). Then a call whose line broke is in doubt for a while, and the next line is given an
//! [`Order::Ask`]: the door asks what became of the call, and must not have it done. What comes back ends the exchange as
//! ever, or says that it [never began](Exchange::never_began), or that nobody [knows](Exchange::lost).
//!
//! It must not know what travels on a line.

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

/// The lines of all peers of one door. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PeerRegistry(Arc<Mutex<PeerConnections>>);

#[derive(Debug, Default)]
struct PeerConnections {
    opened: u64,
    open: BTreeMap<PeerId, (PeerLine, mpsc::UnboundedSender<PeerOrder>)>,
}

/// What is to be done on a line.
pub enum PeerOrder {
    /// A call is to be done.
    Do(Box<PeerCall>),
    /// A call that the peer had on an earlier line is asked about. It must not be done.
    Ask(Box<PeerCall>),
    /// Nobody waits for this call any more.
    Stop(CallId),
}

/// A call that a peer is to do.
pub struct PeerCall {
    /// Which.
    pub call: CallId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// What is wanted.
    pub content: Arc<CallDetails>,
    taken: oneshot::Sender<CallAcceptance>,
    patience: Option<Duration>,
    results: CommandSource,
}

/// What a model is told of a call that was sent and brought no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTexts {
    /// It was stopped.
    pub stopped: String,
    /// The connection is gone.
    pub gone: String,
    /// The peer said nothing for too long.
    pub silent: String,
}

/// What became of an errand.
pub(crate) enum CallAcceptance {
    Sent {
        words: PeerTexts,
        patience: Option<Duration>,
        updates: watch::Receiver<Option<CallOutput>>,
        end: oneshot::Receiver<PeerOutcome>,
    },
    Refused(String),
}

/// What a peer says that a call came to.
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

/// A call that nobody waits for any more, of which its peer may yet say something.
pub struct LateResult {
    call: CallId,
    tool_call: ToolCallRef,
    results: CommandSource,
}

/// What of a call its result says. The rest of what was wanted may be large.
struct ToolCallRef {
    tool: Arc<str>,
    tool_call_id: Arc<str>,
}

/// Whether a result counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultTiming {
    /// It did.
    InTime,
    /// The call had ended before. The result is recorded beside it and changes nothing.
    TooLate,
}

/// A connection over which a peer can be given work.
pub struct PeerLink {
    peer: PeerId,
    line: PeerLine,
    // Bounded by what is in flight: a call has at most two orders.
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

    /// The same to a peer of which it is known whether it notes what becomes of calls.
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

    /// The way to a line, if it is still that of its peer.
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

    /// Notes that the connection is gone. What was not sent waits for the next.
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

    /// The same, of which the peer may say nothing for so long, in place of what the session's settings say.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Notes that it leaves now. `None` if nobody waits for it any more: then it must not be sent.
    pub fn mark_sent(self, words: PeerTexts) -> Option<PeerExchange> {
        let (latest, updates) = watch::channel(None);
        let (sender, end) = oneshot::channel();
        self.taken.send(CallAcceptance::Sent { words, patience: self.patience, updates, end }).ok()?;
        Some(PeerExchange { call: self.call, content: self.content, latest, end: sender, results: self.results })
    }

    /// Ends it unsent, for it cannot be done: what the model is told.
    pub fn refuse(self, why: impl Into<String>) {
        // Nobody hears it whose call was stopped.
        let _ = self.taken.send(CallAcceptance::Refused(why.into()));
    }
}

impl PeerExchange {
    /// Which call it is.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// What was wanted.
    pub fn content(&self) -> &CallDetails {
        &self.content
    }

    /// Hands on all output so far. Each one replaces the one before.
    pub fn send_update(&self, output: CallOutput) {
        self.latest.send_replace(Some(output));
    }

    /// Ends the call with what the peer says it came to.
    pub async fn end_with(self, output: CallOutput) -> ResultTiming {
        self.end_leaving(output, None).await
    }

    /// The same of a call of which something goes on at the peer, under the peer's name for it.
    pub async fn end_leaving(self, output: CallOutput, left_behind: Option<Arc<str>>) -> ResultTiming {
        let Err(fate) = self.end.send(PeerOutcome::Done { output, left_behind }) else { return ResultTiming::InTime };
        if let PeerOutcome::Done { output, .. } = fate {
            LateResult { call: self.call, tool_call: ToolCallRef::from_content(&self.content), results: self.results }
                .send_output(output)
                .await;
        }
        ResultTiming::TooLate
    }

    /// Ends a call that was [asked](Order::Ask) about: its peer never began it, and never will.
    pub fn never_began(self, why: impl Into<String>) -> ResultTiming {
        self.send_outcome(PeerOutcome::NotBegun(why.into()))
    }

    /// Ends the call of which its peer says that nobody knows what became of it.
    pub fn mark_lost(self, why: impl Into<String>) -> ResultTiming {
        self.send_outcome(PeerOutcome::Lost(why.into()))
    }

    fn send_outcome(self, fate: PeerOutcome) -> ResultTiming {
        if self.end.send(fate).is_ok() { ResultTiming::InTime } else { ResultTiming::TooLate }
    }

    /// What may still be said of the call once it has ended.
    pub fn late_result(&self) -> LateResult {
        LateResult {
            call: self.call,
            tool_call: ToolCallRef::from_content(&self.content),
            results: self.results.clone(),
        }
    }

    /// Lets go of it, as nobody waits for it or its line is gone. What the peer still says of the call is kept beside it.
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
    /// Whatever a peer says of a call that was given to it before this process began, or so long ago that it was forgotten.
    pub fn for_call(call: CallId, content: &CallDetails, results: CommandSource) -> Self {
        Self { call, tool_call: ToolCallRef::from_content(content), results }
    }

    /// Which call it is.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Records what the peer says of the call.
    pub async fn send_output(self, output: CallOutput) {
        let progress = CallProgress::Returned(Box::new(encode_tool_result(
            &self.tool_call.tool,
            &self.tool_call.tool_call_id,
            output,
        )));
        self.results.post_command(Command::Call(CallCommand::Ended { call: self.call, progress })).await;
    }
}
