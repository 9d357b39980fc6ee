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
//! It must not know what travels on a line.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    call::{Command as CallCommand, Content, Progress},
    engine::Command,
    id::{CallId, PeerId, SessionId},
    peer::{self, Line},
};
use countersign_tools::Output;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{owner::Source, work::returned};

/// The lines of all peers of one door. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Peers(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    opened: u64,
    open: BTreeMap<PeerId, (Line, mpsc::UnboundedSender<Order>)>,
}

/// What is to be done on a line.
pub enum Order {
    /// A call is to be done.
    Do(Box<Errand>),
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
    pub content: Arc<Content>,
    taken: oneshot::Sender<Taken>,
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
    Sent(Words, watch::Receiver<Option<Output>>, oneshot::Receiver<Output>),
    Refused(String),
}

/// A call that a peer has.
pub struct Exchange {
    call: CallId,
    content: Arc<Content>,
    latest: watch::Sender<Option<Output>>,
    end: oneshot::Sender<Output>,
    results: Source,
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
    line: Line,
    // Bounded by what is in flight: a call has at most two orders.
    orders: mpsc::UnboundedReceiver<Order>,
    peers: Peers,
    results: Source,
}

impl Peers {
    /// Opens a line to a peer, in the place of the one that it has. Work that waits for the peer begins once that is recorded;
    /// `results` is a source of the result lane.
    pub async fn open(&self, peer: PeerId, results: Source) -> Link {
        let (sender, orders) = mpsc::unbounded_channel();
        let line = {
            let mut lines = self.0.lock();
            lines.opened += 1;
            let line = Line(lines.opened);
            lines.open.insert(peer.clone(), (line, sender));
            line
        };
        results.tell(Command::Peer(peer::Command::Came { peer: peer.clone(), line })).await;
        Link { peer, line, orders, peers: self.clone(), results }
    }

    /// The way to a line, if it is still that of its peer.
    pub(crate) fn on(&self, peer: &PeerId, line: Line) -> Option<mpsc::UnboundedSender<Order>> {
        let lines = self.0.lock();
        lines.open.get(peer).filter(|(open, _)| *open == line).map(|(_, sender)| sender.clone())
    }

    fn shut(&self, peer: &PeerId, line: Line) {
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
        content: Arc<Content>,
        results: Source,
    ) -> (Self, oneshot::Receiver<Taken>) {
        let (taken, receiver) = oneshot::channel();
        (Self { call, session, content, taken, results }, receiver)
    }

    /// Notes that it leaves now. `None` if nobody waits for it any more: then it must not be sent.
    pub fn sent(self, words: Words) -> Option<Exchange> {
        let (latest, updates) = watch::channel(None);
        let (end, ended) = oneshot::channel();
        self.taken.send(Taken::Sent(words, updates, ended)).ok()?;
        Some(Exchange { call: self.call, content: self.content, latest, end, results: self.results })
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
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Hands on all output so far. Each one replaces the one before.
    pub fn update(&self, output: Output) {
        self.latest.send_replace(Some(output));
    }

    /// Ends the call with what the peer says it came to.
    pub async fn end(self, output: Output) -> Heard {
        let Err(output) = self.end.send(output) else { return Heard::InTime };
        let progress = Progress::Returned(Box::new(returned(&self.content, output)));
        self.results.tell(Command::Call(CallCommand::Ended { call: self.call, progress })).await;
        Heard::TooLate
    }
}
