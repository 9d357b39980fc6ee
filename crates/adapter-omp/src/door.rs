//! The door's loop: lines in, frames out, and what happens in between in its order.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use countersign_core::{
    engine::{self, Command as EngineCommand},
    id::CallId,
};
use countersign_protocol::{
    gjc::{self, Command, Incoming},
    lines::Line,
    omp::{Id, Response, state::BashResult, ui::NotifyType},
};
use countersign_runtime::{Refused, Reply};
use futures_util::{
    FutureExt, StreamExt,
    stream::{FuturesOrdered, FuturesUnordered},
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use super::{
    commands,
    dialect::{Dialect, Frame},
    dialogs::Dialogs,
    feed::{Feed, FromClients},
    host::{self, Desk},
    keeper::{Keeper, Unwritten},
    outbox::Outbox,
    seat::Seat,
    shelf::Shelf,
    teller::Teller,
    waiting::{Turn, Waiting},
};

/// Where frames go to, each whole and with its line end.
pub type Output = mpsc::Sender<Bytes>;

/// How many commands may wait behind one that takes long.
const LANE: usize = 256;
/// How long nothing must happen before it is said that all is quiet.
const QUIET: Duration = Duration::from_millis(120);
/// How often it is looked whether a host that does not read has gone.
const LOOK: Duration = Duration::from_secs(1);

/// What a command came to, and what is done with it.
pub(crate) type Then = Box<dyn FnOnce(&mut Door) + Send>;
type Pending = Pin<Box<dyn Future<Output = (u64, Then)> + Send>>;

/// A command that takes long: the ordered lane waits for it.
pub(crate) enum Lane {
    Free,
    /// Until what works is stopped, so that a compaction can begin: if nobody has said meanwhile that it is not to.
    ToCompact {
        is_given_up: bool,
    },
    /// Until a person's command has begun.
    ToCommand,
    /// Until work is handed over, up to where the session gives way.
    HandOff,
    /// Until a compaction has ended; its answer is due to this id.
    Compaction(Option<Id>),
    /// Until a person's command has ended; its answer is due to this id.
    Command(CallId, Option<Id>),
    /// Until the session has given way to another one, which is open.
    Session(Box<commands::Switch>),
    /// Until something short is done.
    Short,
}

/// What somebody waits for, beside the lane; while somebody does, the lane is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    RunEnded,
    CompactionEnded,
}

/// Why a door did not end well.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The session's log could not be written any more.
    #[error("the session's log was lost: another process wrote to it, or it cannot be read")]
    LogEnded,
    /// The session's file is not whole.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// One conversation with a host.
pub struct Door {
    /// The session that is open, or was last.
    pub current: watch::Sender<String>,
    pub dialect: Dialect,
    /// Calls that the host has in hand.
    pub(crate) desk: Desk,
    pub shelf: Shelf,
    pub seat: Option<Seat>,
    pub teller: Teller,
    pub(crate) lane: Lane,
    pub waiting: VecDeque<Waiting>,
    /// What is done once something has ended, first come, first served.
    waiters: Vec<(Until, Then)>,
    pending: FuturesOrdered<Pending>,
    /// Answers that wait for more than a reply. None of them holds up another.
    beside: FuturesUnordered<Pending>,
    /// What is shown once more, if nobody has ended it by then. Nobody waits for that.
    shown_again: FuturesUnordered<Pending>,
    /// A reply that came before frames that it stands behind.
    early: Option<(u64, Then)>,
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
    pub(crate) scoped: Vec<countersign_agent_dir::Choice>,
    pub(crate) last_command: Option<BashResult>,
}

/// What the one who writes the session's file has to tell next.
async fn notice(keeper: &mut Option<Keeper>) -> String {
    match keeper {
        Some(keeper) => keeper.notice().await,
        None => std::future::pending().await,
    }
}

impl Door {
    pub fn new(shelf: Shelf, seat: Seat, dialect: Dialect, output: Output) -> Self {
        let current = watch::Sender::new(seat.id.to_string());
        Self {
            current,
            dialect,
            desk: Desk::default(),
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
        then: impl FnOnce(&mut Self, Result<engine::Reply, Refused>) + Send + 'static,
    ) {
        let Some(seat) = &self.seat else { return then(self, Err(Refused::Closed)) };
        let reply = seat.requests.send(command).await;
        self.pending.push_back(Box::pin(async move {
            let replied: Result<Reply, Refused> = reply.await.unwrap_or(Err(Refused::Closed));
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

    /// Runs until what it hears has ended or `stop` is ready.
    ///
    /// # Errors
    /// If the session's log ended before that.
    pub async fn run(mut self, mut input: Feed, stop: impl Future<Output = ()>) -> Result<(), EndError> {
        tokio::pin!(stop);
        let mut outcome = Ok(());
        self.write(Frame::Ready);
        self.take_up().await;
        // Until when commands that have come are done, once there is no more input.
        let mut drains = None;
        loop {
            if drains.is_some_and(|until| self.is_idle() || Instant::now() >= until) {
                break;
            }
            if self.outbox.push_out().is_err() {
                break;
            }
            if matches!(self.lane, Lane::Session(_)) && self.is_answered() {
                commands::switch(&mut self).await;
                continue;
            }
            if let Some(waiting) = self.next_command() {
                self.take_its_turn(waiting).await;
                continue;
            }
            let Some(seat) = &mut self.seat else { break };
            let number = seat.subscriber.position();
            if self.early.as_ref().is_some_and(|(position, _)| *position <= number)
                && let Some((_, then)) = self.early.take()
            {
                then(&mut self);
                continue;
            }
            let is_silent = (self.teller.is_running() || self.teller.is_compacting() || self.is_log_stuck)
                && self.pending.is_empty()
                && self.early.is_none();
            let is_settling = self.teller.is_settling() && self.pending.is_empty() && self.early.is_none();
            // A host that does not read stops what can wait, never the end.
            tokio::select! {
                biased;
                () = &mut stop => break,
                step = self.outbox.step(), if !self.outbox.is_empty() => {
                    if step.is_err() {
                        break;
                    }
                }
                // That a call is to stop is told before its end is.
                order = self.desk.next(), if !self.outbox.is_full() => host::tell(&mut self, order),
                Some(reply) = self.pending.next(), if self.early.is_none() && !self.pending.is_empty() => {
                    self.early = Some(reply);
                }
                Some((position, then)) = self.beside.next(), if !self.beside.is_empty() => {
                    self.catch_up(position).await;
                    then(&mut self);
                }
                Some((position, then)) = self.shown_again.next(), if !self.shown_again.is_empty() => {
                    self.catch_up(position).await;
                    then(&mut self);
                }
                released = seat.subscriber.next(), if !self.outbox.is_full() => match released {
                    Some(released) => {
                        self.replies_before(number);
                        self.released(released).await;
                    }
                    None => {
                        outcome = Err(EndError::LogEnded);
                        break;
                    }
                },
                notice = notice(&mut seat.keeper) => self.notify(notice, NotifyType::Warning),
                heard = input.next(), if drains.is_none() && !self.outbox.is_overfull() => match heard {
                    Some(FromClients::Line(line)) => self.line(&line).await,
                    Some(FromClients::Arrived(client)) => host::arrived(&mut self, client).await,
                    Some(FromClients::Resumed) => host::resumed(&mut self).await,
                    Some(FromClients::Left) => host::left(&mut self).await,
                    None => drains = Some(Instant::now() + self.shelf.common.dialect.drain),
                },
                () = tokio::time::sleep_until(drains.unwrap_or_else(Instant::now)), if drains.is_some() => {}
                () = tokio::time::sleep(LOOK), if self.outbox.is_overfull() => {
                    if input.is_closed() {
                        break;
                    }
                }
                () = tokio::time::sleep(LOOK), if is_silent => self.look_at_log().await,
                () = tokio::time::sleep(QUIET), if is_settling => {
                    if let Some(settled) = self.teller.settled() {
                        self.write(&settled);
                    }
                }
            }
        }
        let written = self.end().await;
        outcome?;
        Ok(written?)
    }

    /// Whether nothing that was asked is still to be answered.
    fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.early.is_none() && self.beside.is_empty()
    }

    /// Whether everything that was asked is done.
    fn is_idle(&self) -> bool {
        self.is_answered() && self.waiting.is_empty() && self.waiters.is_empty() && matches!(self.lane, Lane::Free)
    }

    /// Does a command whose turn has come.
    async fn take_its_turn(&mut self, waiting: Waiting) {
        let Waiting { id, command, turn } = waiting;
        if turn == Turn::Again {
            return commands::abort_again(self, id).await;
        }
        // Whether it may be asked for is looked at all the same.
        self.is_given_up = turn == Turn::GivenUp;
        self.handle(id, command).await;
        self.is_given_up = false;
    }

    /// Does a command of either dialect.
    async fn handle(&mut self, id: Option<Id>, command: Command) {
        self.dialect.hooks.on_command(self, id, command).await;
    }

    /// Whether a host that reads means another session: it has asked for one, and commands are done one by one.
    fn is_about_to_leave(&self, command: &Command) -> bool {
        let leaves = || self.waiting.iter().any(|waiting| commands::leaves(&waiting.command));
        let is_leaving = || !matches!(self.lane, Lane::Free | Lane::Compaction(_) | Lane::Command(..));
        !self.shelf.common.dialect.reads_at_once && commands::reads_session(command) && (is_leaving() || leaves())
    }

    /// Takes the next command out of the line that may be done now. Behind a command that takes long go those that do not need
    /// the lane, and they pass nothing but commands of the person that wait for it.
    fn next_command(&mut self) -> Option<Waiting> {
        if !self.waiters.is_empty() || self.stops > 0 || self.outbox.is_overfull() {
            return None;
        }
        let at = match self.lane {
            Lane::Free => 0,
            Lane::Compaction(_) | Lane::Command(..) => {
                let is_compacting = matches!(self.lane, Lane::Compaction(_));
                let mut all = self.waiting.iter().enumerate();
                let (at, next) = all.find(|(_, waiting)| !commands::is_bash(&waiting.command))?;
                let is_given_up = next.turn == Turn::GivenUp;
                (is_given_up || commands::goes_beside(&next.command, is_compacting)).then_some(at)?
            }
            Lane::Session(_) | Lane::ToCompact { .. } | Lane::ToCommand | Lane::HandOff | Lane::Short => return None,
        };
        // What takes a run's place waits until the one before has begun, and so does what stops it.
        let waits =
            |next: &Waiting| self.is_replacing && (next.turn == Turn::Again || commands::replaces(&next.command));
        if self.waiting.get(at).is_some_and(waits) {
            return None;
        }
        self.waiting.remove(at)
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

    async fn line(&mut self, line: &Line) {
        match self.dialect.hooks.decode(line) {
            Ok(Incoming::Command { id, command }) => {
                if command.lane() == gjc::Lane::Fast && !self.is_about_to_leave(&command) {
                    self.handle(id, command).await;
                } else if self.waiting.len() >= LANE {
                    let problem = format!("too many commands are waiting (limit {LANE})");
                    self.write(&Response::failure(id, command.name(), problem));
                } else {
                    self.waiting.push_back(Waiting::new(id, command));
                }
            }
            Ok(Incoming::UiResponse { id, answer }) => self.answered(&id, &answer).await,
            // What was not asked of the host is passed over.
            Ok(Incoming::HostTool { id, answer }) => {
                host::tool_answered(self, &id, answer).await;
            }
            Ok(Incoming::HostUri { id, result }) => {
                host::uri_answered(self, &id, result).await;
            }
            Ok(Incoming::Unknown { id, type_name }) => self.dialect.hooks.on_unknown(self, id, type_name).await,
            Ok(Incoming::Resume { .. }) => {}
            Err(response) => self.write(&response),
        }
    }
}
