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

use crate::{inbox::Source, message_content::returned};

/// The lines of all peers of one door. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    opened: u64,
    open: BTreeMap<PeerId, (PeerLine, mpsc::UnboundedSender<Order>)>,
}

/// What is to be done on a line.
pub enum Order {
    /// A call is to be done.
    Do(Box<Errand>),
    /// A call that the peer had on an earlier line is asked about. It must not be done.
    Ask(Box<Errand>),
    /// Nobody waits for this call any more.
    Stop(CallId),
}

/// A call that a peer is to do.
pub struct Errand {
    /// Which.
    pub call: CallId,
    /// The session that it belongs to.
    pub session: SessionId,
    /// What is wanted.
    pub content: Arc<CallDetails>,
    taken: oneshot::Sender<Taken>,
    patience: Option<Duration>,
    results: Source,
}

/// What a model is told of a call that was sent and brought no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// It was stopped.
    pub stopped: String,
    /// The connection is gone.
    pub gone: String,
    /// The peer said nothing for too long.
    pub silent: String,
}

/// What became of an errand.
pub(crate) enum Taken {
    Sent {
        words: Words,
        patience: Option<Duration>,
        updates: watch::Receiver<Option<CallOutput>>,
        end: oneshot::Receiver<Fate>,
    },
    Refused(String),
}

/// What a peer says that a call came to.
pub(crate) enum Fate {
    Done { output: CallOutput, left_behind: Option<Arc<str>> },
    NotBegun(String),
    Lost(String),
}

/// A call that a peer has.
pub struct Exchange {
    call: CallId,
    content: Arc<CallDetails>,
    latest: watch::Sender<Option<CallOutput>>,
    end: oneshot::Sender<Fate>,
    results: Source,
}

/// A call that nobody waits for any more, of which its peer may yet say something.
pub struct Late {
    call: CallId,
    of: Of,
    results: Source,
}

/// What of a call its result says. The rest of what was wanted may be large.
struct Of {
    tool: Arc<str>,
    tool_call_id: Arc<str>,
}

/// Whether a result counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It did.
    InTime,
    /// The call had ended before. The result is recorded beside it and changes nothing.
    TooLate,
}

/// A connection over which a peer can be given work.
pub struct Link {
    peer: PeerId,
    line: PeerLine,
    // Bounded by what is in flight: a call has at most two orders.
    orders: mpsc::UnboundedReceiver<Order>,
    peers: Peers,
    results: Source,
}

impl Peers {
    /// Opens a line to a peer, in the place of the one that it has. Work that waits for the peer begins once that is recorded;
    /// `results` is a source of the result lane.
    pub async fn open(&self, peer: PeerId, results: Source) -> Link {
        self.open_to(peer, PeerMemory::Forgets, results).await
    }

    /// The same to a peer of which it is known whether it notes what becomes of calls.
    pub async fn open_to(&self, peer: PeerId, memory: PeerMemory, results: Source) -> Link {
        let (sender, orders) = mpsc::unbounded_channel();
        let line = {
            let mut lines = self.0.lock();
            lines.opened += 1;
            let line = PeerLine(lines.opened);
            lines.open.insert(peer.clone(), (line, sender));
            line
        };
        results.tell(Command::Peer(peer::Command::Came { peer: peer.clone(), line, memory })).await;
        Link { peer, line, orders, peers: self.clone(), results }
    }

    /// The way to a line, if it is still that of its peer.
    pub(crate) fn on(&self, peer: &PeerId, line: PeerLine) -> Option<mpsc::UnboundedSender<Order>> {
        let lines = self.0.lock();
        lines.open.get(peer).filter(|(open, _)| *open == line).map(|(_, sender)| sender.clone())
    }

    fn shut(&self, peer: &PeerId, line: PeerLine) {
        let mut lines = self.0.lock();
        if lines.open.get(peer).is_some_and(|(open, _)| *open == line) {
            lines.open.remove(peer);
        }
    }
}

impl Link {
    /// Waits for the next order. `None` once another line of the same peer took its place.
    ///
    /// *Cancellation*: a future that is dropped loses no order.
    pub async fn next(&mut self) -> Option<Order> {
        self.orders.recv().await
    }

    /// Notes that the connection is gone. What was not sent waits for the next.
    pub async fn close(self) {
        let (peer, line) = (self.peer.clone(), self.line);
        let results = self.results.clone();
        drop(self);
        results.tell(Command::Peer(peer::Command::Gone { peer, line })).await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.peers.shut(&self.peer, self.line);
    }
}

impl Errand {
    pub(crate) fn new(
        call: CallId,
        session: SessionId,
        content: Arc<CallDetails>,
        results: Source,
    ) -> (Self, oneshot::Receiver<Taken>) {
        let (taken, receiver) = oneshot::channel();
        (Self { call, session, content, taken, patience: None, results }, receiver)
    }

    /// The same, of which the peer may say nothing for so long, in place of what the session's settings say.
    #[must_use]
    pub fn within(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Notes that it leaves now. `None` if nobody waits for it any more: then it must not be sent.
    pub fn sent(self, words: Words) -> Option<Exchange> {
        let (latest, updates) = watch::channel(None);
        let (sender, end) = oneshot::channel();
        self.taken.send(Taken::Sent { words, patience: self.patience, updates, end }).ok()?;
        Some(Exchange { call: self.call, content: self.content, latest, end: sender, results: self.results })
    }

    /// Ends it unsent, for it cannot be done: what the model is told.
    pub fn refuse(self, why: impl Into<String>) {
        // Nobody hears it whose call was stopped.
        let _ = self.taken.send(Taken::Refused(why.into()));
    }
}

impl Exchange {
    /// Which call it is.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// What was wanted.
    pub fn content(&self) -> &CallDetails {
        &self.content
    }

    /// Hands on all output so far. Each one replaces the one before.
    pub fn update(&self, output: CallOutput) {
        self.latest.send_replace(Some(output));
    }

    /// Ends the call with what the peer says it came to.
    pub async fn end(self, output: CallOutput) -> Heard {
        self.end_leaving(output, None).await
    }

    /// The same of a call of which something goes on at the peer, under the peer's name for it.
    pub async fn end_leaving(self, output: CallOutput, left_behind: Option<Arc<str>>) -> Heard {
        let Err(fate) = self.end.send(Fate::Done { output, left_behind }) else { return Heard::InTime };
        if let Fate::Done { output, .. } = fate {
            Late { call: self.call, of: Of::content(&self.content), results: self.results }.tell(output).await;
        }
        Heard::TooLate
    }

    /// Ends a call that was [asked](Order::Ask) about: its peer never began it, and never will.
    pub fn never_began(self, why: impl Into<String>) -> Heard {
        self.ends(Fate::NotBegun(why.into()))
    }

    /// Ends the call of which its peer says that nobody knows what became of it.
    pub fn lost(self, why: impl Into<String>) -> Heard {
        self.ends(Fate::Lost(why.into()))
    }

    fn ends(self, fate: Fate) -> Heard {
        if self.end.send(fate).is_ok() { Heard::InTime } else { Heard::TooLate }
    }

    /// What may still be said of the call once it has ended.
    pub fn late(&self) -> Late {
        Late { call: self.call, of: Of::content(&self.content), results: self.results.clone() }
    }

    /// Lets go of it, as nobody waits for it or its line is gone. What the peer still says of the call is kept beside it.
    pub fn let_go(self) -> Late {
        self.late()
    }
}

impl Of {
    fn content(content: &CallDetails) -> Self {
        Self { tool: Arc::clone(&content.tool), tool_call_id: Arc::clone(&content.tool_call_id) }
    }
}

impl Late {
    /// Whatever a peer says of a call that was given to it before this process began, or so long ago that it was forgotten.
    pub fn of(call: CallId, content: &CallDetails, results: Source) -> Self {
        Self { call, of: Of::content(content), results }
    }

    /// Which call it is.
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Records what the peer says of the call.
    pub async fn tell(self, output: CallOutput) {
        let progress = CallProgress::Returned(Box::new(returned(&self.of.tool, &self.of.tool_call_id, output)));
        self.results.tell(Command::Call(CallCommand::Ended { call: self.call, progress })).await;
    }
}
