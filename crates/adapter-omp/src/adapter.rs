//! One conversation with a host: what it has in hand, and the order of its frames and answers.
//!
//! It must not know commands: what they do is done through it.

mod command_queue;
pub(crate) mod dialect;
mod event_dispatch;
mod gate_dialogs;
mod notices;
mod operation;

use std::{collections::VecDeque, pin::Pin, sync::Arc};

use bytes::Bytes;
use countersign_core::engine::{self, Command as EngineCommand};
use countersign_protocol::omp::state::BashResult;
use countersign_runtime::{OwnerError, OwnerReply};
use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{FuturesOrdered, FuturesUnordered},
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
};

use self::dialect::ActiveDialect;
pub(crate) use self::{
    command_queue::{CommandTurn, QueuedCommand},
    operation::{ActiveOperation, SessionSwitch},
};
pub use self::{event_dispatch::for_each_frame, operation::WaitUntil};
use super::{
    dialogs::OpenDialogs, event_encoder::EventEncoder, frame::OutgoingFrame, host_call_table::HostCallTable,
    open_session::OpenSession, outbox::FrameOutbox, session_store::SessionStore,
};

/// Channel for frames, each whole and with its line end.
pub type FrameSender = mpsc::Sender<Bytes>;

/// Continuation of a command, with its result.
pub(crate) type AdapterCallback = Box<dyn FnOnce(&mut OmpAdapter) + Send>;
type PendingReply = Pin<Box<dyn Future<Output = (u64, AdapterCallback)> + Send>>;

/// One conversation with a host.
pub struct OmpAdapter {
    /// The session that is open, or was last.
    pub current: watch::Sender<String>,
    pub dialect: ActiveDialect,
    /// Calls that the host has in hand.
    pub(crate) host_calls: HostCallTable,
    pub store: SessionStore,
    pub seat: Option<OpenSession>,
    pub encoder: EventEncoder,
    pub(crate) operation: ActiveOperation,
    pub waiting: VecDeque<QueuedCommand>,
    /// Callbacks for ends of operations, first come, first served.
    pub(crate) waiters: Vec<(WaitUntil, AdapterCallback)>,
    pub(crate) pending: FuturesOrdered<PendingReply>,
    /// Answers that wait for more than a reply. None of them holds up another.
    pub(crate) beside: FuturesUnordered<PendingReply>,
    /// Gates that are shown once more if they are still pending. Their replies have no waiter.
    pub(crate) shown_again: FuturesUnordered<PendingReply>,
    /// A reply that came before the frames that precede it.
    pub(crate) early: Option<(u64, AdapterCallback)>,
    pub(super) outbox: FrameOutbox,
    pub dialogs: OpenDialogs,
    /// The grants that are being written to their file.
    pub(crate) grant_writes: JoinSet<()>,
    /// Requests to approve MCP servers in the open session.
    server_requests: JoinSet<()>,
    /// Reasons that an allowed MCP server does not start.
    pub(super) server_notices: mpsc::Receiver<String>,
    pub(crate) is_closing: bool,
    /// Permit to make a page: one holds all of a session's texts.
    pub pages: Arc<Semaphore>,
    /// True if the current command was stopped before its turn came.
    pub(crate) is_given_up: bool,
    /// Number of stops without an answer yet: a later command finds the state after it.
    pub(crate) stops: usize,
    /// True if a run is being stopped for another one, which has not begun: the next that is to take a run's place waits for it.
    pub(crate) is_replacing: bool,
    /// True if the host was informed that the log takes nothing.
    pub(crate) is_log_stuck: bool,
    /// The level that was requested last, before a model's limits.
    pub requested_level: Option<String>,
    pub(crate) modes: [String; 3],
    pub(crate) scoped: Vec<countersign_agent_dir::ModelChoice>,
    pub(crate) last_command: Option<BashResult>,
}

impl OmpAdapter {
    pub fn new(store: SessionStore, seat: OpenSession, dialect: ActiveDialect, output: FrameSender) -> Self {
        let current = watch::Sender::new(seat.id.to_string());
        let server_notices = store.common.servers.take_notices();
        Self {
            current,
            dialect,
            host_calls: HostCallTable::default(),
            store,
            seat: Some(seat),
            encoder: EventEncoder::default(),
            operation: ActiveOperation::Free,
            waiting: VecDeque::new(),
            waiters: Vec::new(),
            pending: FuturesOrdered::new(),
            beside: FuturesUnordered::new(),
            shown_again: FuturesUnordered::new(),
            early: None,
            outbox: FrameOutbox::new(output),
            dialogs: OpenDialogs::default(),
            grant_writes: JoinSet::new(),
            server_requests: JoinSet::new(),
            server_notices,
            is_closing: false,
            pages: Arc::new(Semaphore::new(1)),
            is_given_up: false,
            stops: 0,
            is_replacing: false,
            is_log_stuck: false,
            requested_level: None,
            modes: ["one-at-a-time".to_owned(), "one-at-a-time".to_owned(), "immediate".to_owned()],
            scoped: Vec::new(),
            last_command: None,
        }
    }

    /// Appends a frame to the others.
    pub fn write_frame<'a>(&mut self, frame: impl Into<OutgoingFrame<'a>>) {
        if let Some(seat) = self.seat.as_ref().filter(|seat| *self.current.borrow() != seat.id.as_str()) {
            self.current.send_replace(seat.id.to_string());
        }
        if let Some(line) = self.dialect.hooks.encode(self, frame.into()) {
            self.outbox.push(line);
        }
    }

    /// Has the approval of MCP servers requested in the open session, and in no other any more. Nothing waits for that.
    pub(super) fn request_servers(&mut self) {
        self.server_requests.abort_all();
        let servers = Arc::clone(&self.store.common.servers);
        let Some(seat) = self.seat.as_ref().filter(|_| !servers.is_empty()) else { return };
        let (context, session) = (Arc::clone(&self.store.common), seat.id.clone());
        let renew = move || {
            let (context, session) = (Arc::clone(&context), session.clone());
            Box::pin(async move { context.offer_server_tools(&session).await }) as BoxFuture<'static, ()>
        };
        let requests = seat.requests.clone();
        self.server_requests.spawn(servers.request_approvals(requests, seat.id.clone(), Box::new(renew)));
    }

    /// Ends the MCP servers. A session that lives in a gateway keeps them.
    pub(super) async fn close_servers(&mut self) {
        self.server_requests.abort_all();
        self.store.common.servers.close().await;
    }

    pub fn current_session(&self) -> Option<&OpenSession> {
        self.seat.as_ref()
    }

    /// Sends a command to the engine; `then` is called with the reply once everything released before it was sent.
    pub async fn send_command(
        &mut self,
        command: EngineCommand,
        then: impl FnOnce(&mut Self, Result<engine::EngineReply, OwnerError>) + Send + 'static,
    ) {
        let Some(seat) = &self.seat else { return then(self, Err(OwnerError::Closed)) };
        let reply = seat.requests.submit_command(command).await;
        self.pending.push_back(Box::pin(async move {
            let replied: Result<OwnerReply, OwnerError> = reply.await.unwrap_or(Err(OwnerError::Closed));
            let position = replied.as_ref().map_or(0, |reply| reply.position);
            let then: AdapterCallback = Box::new(move |adapter| then(adapter, replied.map(|reply| reply.outcome)));
            (position, then)
        }));
    }

    /// Does something that waits, in the order of the other answers.
    pub fn reply_in_order(&mut self, work: impl Future<Output = (u64, AdapterCallback)> + Send + 'static) {
        self.pending.push_back(Box::pin(work));
    }

    /// Does something that waits for more than a reply, whenever that comes.
    pub fn reply_unordered(&mut self, work: impl Future<Output = (u64, AdapterCallback)> + Send + 'static) {
        self.beside.push(Box::pin(work));
    }

    /// Shows something once more, if the session is still open by then.
    pub(super) fn show_later(&mut self, work: impl Future<Output = (u64, AdapterCallback)> + Send + 'static) {
        if !self.is_closing {
            self.shown_again.push(Box::pin(work));
        }
    }

    /// Returns the next answer that waited for more than a reply.
    pub(super) async fn next_beside(&mut self) -> Option<(u64, AdapterCallback)> {
        self.beside.next().await
    }

    /// Does `then` once what it waits for has ended: at once, if that is so.
    pub fn run_after(&mut self, until: WaitUntil, then: AdapterCallback) {
        self.waiters.push((until, then));
        self.run_waiters();
    }

    /// Does what waited for something that has ended.
    pub fn run_waiters(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let (is_running, is_compacting) = (self.encoder.is_running(), self.encoder.is_compacting());
        let (still, done): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|(until, _)| match until {
                WaitUntil::RunEnded => is_running,
                WaitUntil::CompactionEnded => is_compacting,
            });
        self.waiters = still;
        for (_, then) in done {
            then(self);
        }
    }

    /// Runs the callbacks that wait for an end that does not come any more: the session is over.
    pub fn end_all(&mut self) {
        self.encoder = EventEncoder::default();
        self.run_waiters();
    }

    /// Returns the next reply, in the order of the requests.
    pub(crate) async fn next_reply(&mut self) -> Option<(u64, AdapterCallback)> {
        match self.early.take() {
            Some(early) => Some(early),
            None => self.pending.next().await,
        }
    }

    /// Puts back the reply that was taken last.
    pub(super) fn put_back(&mut self, reply: (u64, AdapterCallback)) {
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
            self.handle_released(released).await;
        }
    }
}
