//! One conversation with a host: what it has in hand, and the order of its frames and answers.
//!
//! It must not know commands: what they do is done through it.

pub(crate) mod dialect;
mod lane;
mod notices;
mod showing;
mod telling;
mod waiting;

use std::{collections::VecDeque, pin::Pin, sync::Arc};

use bytes::Bytes;
use countersign_core::engine::{self, Command as EngineCommand};
use countersign_protocol::omp::state::BashResult;
use countersign_runtime::{OwnerError, OwnerReply};
use futures_util::{
    FutureExt, StreamExt,
    stream::{FuturesOrdered, FuturesUnordered},
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};

use self::dialect::Dialect;
pub use self::{lane::Until, telling::frames};
pub(crate) use self::{
    lane::{Lane, Switch},
    waiting::{Turn, Waiting},
};
use super::{
    dialogs::Dialogs, frame::Frame, host_call_table::HostCallTable, outbox::Outbox, seat::Seat, shelf::Shelf,
    teller::Teller,
};

/// Where frames go to, each whole and with its line end.
pub type Output = mpsc::Sender<Bytes>;

/// What a command came to, and what is done with it.
pub(crate) type Then = Box<dyn FnOnce(&mut Door) + Send>;
type Pending = Pin<Box<dyn Future<Output = (u64, Then)> + Send>>;

/// One conversation with a host.
pub struct Door {
    /// The session that is open, or was last.
    pub current: watch::Sender<String>,
    pub dialect: Dialect,
    /// Calls that the host has in hand.
    pub(crate) desk: HostCallTable,
    pub shelf: Shelf,
    pub seat: Option<Seat>,
    pub teller: Teller,
    pub(crate) lane: Lane,
    pub waiting: VecDeque<Waiting>,
    /// What is done once something has ended, first come, first served.
    pub(crate) waiters: Vec<(Until, Then)>,
    pub(crate) pending: FuturesOrdered<Pending>,
    /// Answers that wait for more than a reply. None of them holds up another.
    pub(crate) beside: FuturesUnordered<Pending>,
    /// What is shown once more, if nobody has ended it by then. Nobody waits for that.
    pub(crate) shown_again: FuturesUnordered<Pending>,
    /// A reply that came before frames that it stands behind.
    pub(crate) early: Option<(u64, Then)>,
    pub(super) outbox: Outbox,
    pub dialogs: Dialogs,
    /// The grants that are being written to their file.
    pub(crate) grant_writes: JoinSet<()>,
    pub(crate) is_closing: bool,
    /// Whose turn it is to make a page: one holds all of a session's texts.
    pub pages: Arc<Semaphore>,
    /// Whether the command that is done now was stopped before its turn came.
    pub(crate) is_given_up: bool,
    /// How many stops were asked for that nobody has answered yet: what comes behind one finds what is left.
    pub(crate) stops: usize,
    /// Whether a run is being stopped for another one, which has not begun: the next that is to take a run's place waits for it.
    pub(crate) is_replacing: bool,
    /// Whether the host was told that the log takes nothing.
    pub(crate) is_log_stuck: bool,
    /// The level that was asked for last, before a model's limits.
    pub wanted_level: Option<String>,
    pub(crate) modes: [String; 3],
    pub(crate) scoped: Vec<countersign_agent_dir::ModelChoice>,
    pub(crate) last_command: Option<BashResult>,
}

impl Door {
    pub fn new(shelf: Shelf, seat: Seat, dialect: Dialect, output: Output) -> Self {
        let current = watch::Sender::new(seat.id.to_string());
        Self {
            current,
            dialect,
            desk: HostCallTable::default(),
            shelf,
            seat: Some(seat),
            teller: Teller::default(),
            lane: Lane::Free,
            waiting: VecDeque::new(),
            waiters: Vec::new(),
            pending: FuturesOrdered::new(),
            beside: FuturesUnordered::new(),
            shown_again: FuturesUnordered::new(),
            early: None,
            outbox: Outbox::new(output),
            dialogs: Dialogs::default(),
            grant_writes: JoinSet::new(),
            is_closing: false,
            pages: Arc::new(Semaphore::new(1)),
            is_given_up: false,
            stops: 0,
            is_replacing: false,
            is_log_stuck: false,
            wanted_level: None,
            modes: ["one-at-a-time".to_owned(), "one-at-a-time".to_owned(), "immediate".to_owned()],
            scoped: Vec::new(),
            last_command: None,
        }
    }

    /// Puts a frame behind the others.
    pub fn write<'a>(&mut self, frame: impl Into<Frame<'a>>) {
        if let Some(seat) = self.seat.as_ref().filter(|seat| *self.current.borrow() != seat.id.as_str()) {
            self.current.send_replace(seat.id.to_string());
        }
        if let Some(line) = self.dialect.hooks.encode(self, frame.into()) {
            self.outbox.push(line);
        }
    }

    pub fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Asks the engine; `then` is done with the reply once everything released before it was told.
    pub async fn ask(
        &mut self,
        command: EngineCommand,
        then: impl FnOnce(&mut Self, Result<engine::EngineReply, OwnerError>) + Send + 'static,
    ) {
        let Some(seat) = &self.seat else { return then(self, Err(OwnerError::Closed)) };
        let reply = seat.requests.submit_command(command).await;
        self.pending.push_back(Box::pin(async move {
            let replied: Result<OwnerReply, OwnerError> = reply.await.unwrap_or(Err(OwnerError::Closed));
            let position = replied.as_ref().map_or(0, |reply| reply.position);
            let then: Then = Box::new(move |door| then(door, replied.map(|reply| reply.outcome)));
            (position, then)
        }));
    }

    /// Does something that waits, in the order of the other answers.
    pub fn later(&mut self, work: impl Future<Output = (u64, Then)> + Send + 'static) {
        self.pending.push_back(Box::pin(work));
    }

    /// Does something that waits for more than a reply, whenever that comes.
    pub fn aside(&mut self, work: impl Future<Output = (u64, Then)> + Send + 'static) {
        self.beside.push(Box::pin(work));
    }

    /// Shows something once more, if the session is still open by then.
    pub(super) fn show_later(&mut self, work: impl Future<Output = (u64, Then)> + Send + 'static) {
        if !self.is_closing {
            self.shown_again.push(Box::pin(work));
        }
    }

    /// The next answer that waited for more than a reply.
    pub(super) async fn next_beside(&mut self) -> Option<(u64, Then)> {
        self.beside.next().await
    }

    /// Does `then` once what it waits for has ended: at once, if that is so.
    pub fn after(&mut self, until: Until, then: Then) {
        self.waiters.push((until, then));
        self.ended();
    }

    /// Does what waited for something that has ended.
    pub fn ended(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let (is_running, is_compacting) = (self.teller.is_running(), self.teller.is_compacting());
        let (still, done): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|(until, _)| match until {
                Until::RunEnded => is_running,
                Until::CompactionEnded => is_compacting,
            });
        self.waiters = still;
        for (_, then) in done {
            then(self);
        }
    }

    /// Does what waits for an end that is not told any more: the session is over.
    pub fn all_ended(&mut self) {
        self.teller = Teller::default();
        self.ended();
    }

    /// The next reply, in the order in which they were asked for.
    pub(crate) async fn next_reply(&mut self) -> Option<(u64, Then)> {
        match self.early.take() {
            Some(early) => Some(early),
            None => self.pending.next().await,
        }
    }

    /// Puts back the reply that was taken last.
    pub(super) fn put_back(&mut self, reply: (u64, Then)) {
        self.early = Some(reply);
    }

    /// Does what stands before the frame with this number. Its replies came before it did.
    pub(super) fn replies_before(&mut self, number: u64) {
        loop {
            let next = self.early.take().or_else(|| self.pending.next().now_or_never().flatten());
            match next {
                Some((position, then)) if position <= number => then(self),
                later => {
                    self.early = later;
                    return;
                }
            }
        }
    }

    /// Tells of everything that was released before `position`, and of the answers that stand before it.
    pub async fn catch_up(&mut self, position: u64) {
        loop {
            let Some(seat) = &mut self.seat else { return };
            let number = seat.subscriber.position();
            if number >= position {
                return;
            }
            let Some(released) = seat.subscriber.next().await else { return };
            self.replies_before(number);
            self.released(released).await;
        }
    }
}
