//! The door's loop: lines in, frames out, and what happens in between in its order.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use bytes::Bytes;
use countersign_core::{
    engine::{self, Command as EngineCommand, Event as Happened},
    id::{CallId, Lsn},
    message::Message,
    policy, session,
};
use countersign_protocol::{
    Wire, encode,
    lines::Line,
    omp::{
        self, Event, Id, Incoming, Response,
        event::{Todo, TodoStatus},
        state::{BashResult, CompactionResult},
    },
};
use countersign_runtime::{Refused, Released, Reply, tools::todo};
use futures_util::{FutureExt, StreamExt, stream::FuturesOrdered};
use tokio::sync::mpsc;
use tracing::warn;

use super::{
    commands, dialogs,
    rules::keep_grant,
    seat::{Seat, Shelf},
    teller::{Ended, Teller},
};

/// Where lines come from.
pub type Input = mpsc::Receiver<Line>;
/// Where frames go to, each whole and with its line end.
pub type Output = mpsc::Sender<Bytes>;

/// How many commands may wait behind one that takes long.
const LANE: usize = 256;
/// How long nothing must happen before it is said that all is quiet.
const QUIET: Duration = Duration::from_millis(120);
/// How long answers that are due are waited for once the host has gone.
const FAREWELL: Duration = Duration::from_millis(1500);

/// What a command came to, and what is done with it.
pub(super) type Then = Box<dyn FnOnce(&mut Door) + Send>;
type Pending = Pin<Box<dyn Future<Output = (u64, Then)> + Send>>;

/// A command that takes long: the ordered lane waits for it.
pub(super) enum Lane {
    Free,
    /// Until the run has ended; then this is done.
    Run(Then),
    /// Until a compaction has ended; its answer is due to this id.
    Compaction(Option<Id>),
    /// Until a person's command has ended; its answer is due to this id.
    Command(CallId, Option<Id>),
    /// Until another session is open.
    Session(Box<commands::Switch>),
    /// Until something short is done.
    Short,
}

/// The session's log could not be written any more.
#[derive(Debug, thiserror::Error)]
#[error("the session's log was lost: another process wrote to it, or it cannot be read")]
pub(super) struct LogEnded;

/// One conversation with a host.
pub(super) struct Door {
    pub(super) shelf: Shelf,
    pub(super) seat: Option<Seat>,
    pub(super) teller: Teller,
    pub(super) lane: Lane,
    waiting: VecDeque<(Option<Id>, omp::Command)>,
    pending: FuturesOrdered<Pending>,
    /// A reply that came before frames that it stands behind.
    early: Option<(u64, Then)>,
    frames: Vec<Bytes>,
    output: Output,
    /// The level that was asked for last, before a model's limits.
    pub(super) wanted_level: Option<String>,
    pub(super) modes: [String; 3],
    pub(super) scoped: Vec<crate::agent_dir::Choice>,
    pub(super) last_command: Option<BashResult>,
}

impl Door {
    pub(super) fn new(shelf: Shelf, seat: Seat, output: Output) -> Self {
        Self {
            shelf,
            seat: Some(seat),
            teller: Teller::default(),
            lane: Lane::Free,
            waiting: VecDeque::new(),
            pending: FuturesOrdered::new(),
            early: None,
            frames: Vec::new(),
            output,
            wanted_level: None,
            modes: ["one-at-a-time".to_owned(), "one-at-a-time".to_owned(), "immediate".to_owned()],
            scoped: Vec::new(),
            last_command: None,
        }
    }

    /// Puts a frame behind the others.
    pub(super) fn write(&mut self, frame: &impl Wire) {
        self.frames.push(encode(frame));
    }

    pub(super) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Asks the engine; `then` is done with the reply once everything released before it was told.
    pub(super) async fn ask(
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
    pub(super) fn later(&mut self, work: impl Future<Output = (u64, Then)> + Send + 'static) {
        self.pending.push_back(Box::pin(work));
    }

    /// Runs until the host has gone or `stop` is ready.
    ///
    /// # Errors
    /// If the session's log ended before that.
    pub(super) async fn run(mut self, mut input: Input, stop: impl Future<Output = ()>) -> Result<(), LogEnded> {
        tokio::pin!(stop);
        let mut outcome = Ok(());
        self.write(&Event::Ready);
        self.take_up().await;
        loop {
            if self.flush().await.is_err() {
                break;
            }
            if matches!(self.lane, Lane::Session(_)) && self.pending.is_empty() {
                commands::switch(&mut self).await;
                continue;
            }
            if matches!(self.lane, Lane::Free)
                && let Some((id, command)) = self.waiting.pop_front()
            {
                commands::handle(&mut self, id, command).await;
                continue;
            }
            if let Some((position, then)) = self.early.take() {
                self.catch_up(position).await;
                then(&mut self);
                continue;
            }
            let Some(seat) = &mut self.seat else { break };
            let number = seat.subscriber.position();
            let is_settling = self.teller.is_settling() && self.pending.is_empty();
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some((position, then)) = self.pending.next(), if !self.pending.is_empty() => {
                    self.catch_up(position).await;
                    then(&mut self);
                }
                released = seat.subscriber.next() => match released {
                    Some(released) => {
                        self.replies_before(number);
                        self.released(released).await;
                    }
                    None => {
                        outcome = Err(LogEnded);
                        break;
                    }
                },
                line = input.recv() => match line {
                    Some(line) => self.line(&line).await,
                    None => break,
                },
                () = tokio::time::sleep(QUIET), if is_settling => {
                    if let Some(settled) = self.teller.settled() {
                        self.write(&settled);
                    }
                }
            }
        }
        self.end().await;
        outcome
    }

    /// Answers what can still be answered, then ends the session.
    async fn end(&mut self) {
        let answers = async {
            if let Some((position, then)) = self.early.take() {
                self.catch_up(position).await;
                then(self);
            }
            while let Some((position, then)) = self.pending.next().await {
                self.catch_up(position).await;
                then(self);
            }
        };
        let _ = tokio::time::timeout(FAREWELL, answers).await;
        let _ = tokio::time::timeout(FAREWELL, self.flush()).await;
        let Some(handle) = self.seat.as_ref().map(|seat| seat.handle.clone()) else { return };
        let closing = tokio::spawn(async move { handle.close().await });
        // What was stopped still says so, for a host that listens to the end.
        let rest = async {
            while let Some(seat) = &mut self.seat
                && let Some(released) = seat.subscriber.next().await
            {
                self.released(released).await;
                if self.flush().await.is_err() {
                    break;
                }
            }
        };
        // A host that does not read any more must not keep the session open.
        let told = tokio::time::timeout(FAREWELL, rest).await;
        if told.is_err() {
            warn!("the host did not read the last frames");
        }
        let _ = closing.await;
        if let Some(seat) = self.seat.take() {
            seat.close().await;
        }
    }

    /// Takes up what another process left: a run that waits, and the gates that it waits for.
    pub(super) async fn take_up(&mut self) {
        let Some(seat) = &self.seat else { return };
        let id = seat.id.clone();
        let read = seat.requests.read(move |engine| {
            let state = engine.state();
            let session = state.session(&id)?;
            let run = state.run(session.run()?)?;
            let calls: Vec<_> = run
                .calls()
                .iter()
                .filter_map(|call| Some((*call, (**engine.admitted().call(*call)?).clone())))
                .collect();
            let gates: Vec<_> = state
                .pending_gates()
                .filter_map(|gate| Some((gate.clone(), (**engine.admitted().gate(gate.id())?).clone())))
                .collect();
            Some((calls, gates, session.cwd().to_owned()))
        });
        if let Some((Some((calls, gates, cwd)), _)) = read.await {
            self.teller.resume(calls);
            let now = self.shelf.common.clock.now();
            for (gate, content) in gates {
                self.write(&dialogs::request(&gate, &content, &cwd, now));
            }
        }
    }

    /// Does what stands before the frame with this number. Its replies came before it did.
    fn replies_before(&mut self, number: u64) {
        while self.early.is_none()
            && let Some(Some((position, then))) = self.pending.next().now_or_never()
        {
            if position <= number {
                then(self);
            } else {
                self.early = Some((position, then));
            }
        }
    }

    /// Tells of everything that was released before `position`.
    async fn catch_up(&mut self, position: u64) {
        loop {
            let Some(seat) = &mut self.seat else { return };
            if seat.subscriber.position() >= position {
                return;
            }
            let Some(released) = seat.subscriber.next().await else { return };
            self.released(released).await;
        }
    }

    async fn flush(&mut self) -> Result<(), mpsc::error::SendError<Bytes>> {
        for frame in self.frames.drain(..) {
            self.output.send(frame).await?;
        }
        Ok(())
    }

    async fn line(&mut self, line: &Line) {
        match omp::receive(line) {
            Ok(Incoming::Command { id, command }) => {
                if commands::is_fast(&command) {
                    commands::handle(self, id, command).await;
                } else if self.waiting.len() >= LANE {
                    let problem = format!("too many commands are waiting (limit {LANE})");
                    self.write(&Response::failure(id, command.name(), problem));
                } else {
                    self.waiting.push_back((id, command));
                }
            }
            Ok(Incoming::UiResponse { id, answer }) => self.answered(&id, &answer).await,
            Ok(Incoming::Unknown { type_name }) => self.write(&Response::unknown(type_name)),
            Err(malformed) => self.write(&malformed.response()),
        }
    }

    /// An answer to a dialog. One that nobody waits for is ignored.
    async fn answered(&mut self, id: &str, answer: &omp::UiAnswer) {
        let Some((gate, seat)) = dialogs::gate_of(id).zip(self.seat.as_ref()) else { return };
        let read = seat.requests.read(move |engine| {
            let found = engine.state().gate(gate)?;
            Some((found.kind(), engine.admitted().gate(gate).map(|content| (**content).clone())))
        });
        let Some((Some((kind, content)), _)) = read.await else { return };
        let answer = countersign_core::gate::Command::Answer {
            gate,
            answer: dialogs::answer(answer, kind, content.as_ref()),
            by: countersign_core::id::PrincipalId::new("host"),
            key: None,
        };
        seat.answers.tell(EngineCommand::Gate(answer)).await;
    }

    async fn released(&mut self, released: Released) {
        let mut events = Vec::new();
        let ended = match &released {
            Released::Live(live) => {
                let now = self.shelf.common.clock.now();
                self.teller.live(live, now, &mut events);
                None
            }
            Released::Fact(recorded) => {
                let content = match &recorded.fact.event {
                    Happened::Session(session::Event::Entry { content_at: Some(at), .. }) => self.content(*at).await,
                    _ => recorded.fact.content.clone(),
                };
                self.beside(&recorded.fact.event, content.as_deref());
                let ended = self.teller.fact(recorded, content.as_deref(), &mut events);
                if let Happened::Gate(countersign_core::gate::Event::Opened { gate, .. }) = &recorded.fact.event {
                    self.show(*gate, content.as_deref()).await;
                }
                ended
            }
        };
        for event in &events {
            self.write(event);
        }
        match ended {
            Some(Ended::Run) => {
                if matches!(self.lane, Lane::Run(_))
                    && let Lane::Run(then) = std::mem::replace(&mut self.lane, Lane::Free)
                {
                    then(self);
                }
            }
            Some(Ended::Compaction(outcome)) => self.compacted(outcome),
            Some(Ended::Command(call, _)) => self.command_ended(call),
            None => {}
        }
    }

    async fn content(&self, at: Lsn) -> Option<std::sync::Arc<str>> {
        let contents = self.seat.as_ref()?.handle.contents();
        contents.get(&[at]).await.ok()?.pop().flatten()
    }

    /// What facts mean beside their frames.
    fn beside(&mut self, event: &Happened, content: Option<&str>) {
        match event {
            Happened::Policy(policy::Event::Granted(grant)) if grant.scope == policy::Scope::Always => {
                if self.shelf.folder.is_some()
                    && let Err(failed) = keep_grant(&self.shelf.common.folder.grants(), grant)
                {
                    warn!(error = %failed, "a grant holds for this session only");
                }
            }
            Happened::Session(session::Event::Reminded { attempt }) => {
                if let Some(seat) = &self.seat {
                    let todos = seat.workshop.todos().open().iter().map(wire_todo).collect();
                    let reminder = Teller::reminder(todos, *attempt, self.shelf.reminders);
                    self.write(&reminder);
                }
            }
            Happened::Session(
                session::Event::Entry { kind: session::Kind::Bash { .. }, .. }
                | session::Event::Queued { kind: session::Kind::Bash { .. }, .. },
            ) => {
                if let Some(Ok(Message::BashExecution(bash))) = content.map(serde_json::from_str) {
                    self.last_command = Some(commands::bash_result(&bash));
                }
            }
            _ => {}
        }
    }

    async fn show(&mut self, id: countersign_core::id::GateId, content: Option<&str>) {
        let Some(seat) = &self.seat else { return };
        let session = seat.id.clone();
        let read = seat.requests.read(move |engine| {
            let gate = engine.state().gate(id).filter(|gate| gate.is_pending())?.clone();
            Some((gate, engine.state().session(&session)?.cwd().to_owned()))
        });
        let content = content.and_then(|content| serde_json::from_str(content).ok());
        if let Some((Some((gate, cwd)), _)) = read.await
            && let Some(content) = content
        {
            let now = self.shelf.common.clock.now();
            self.write(&dialogs::request(&gate, &content, &cwd, now));
        }
    }

    fn compacted(&mut self, outcome: Result<CompactionResult, String>) {
        if !matches!(self.lane, Lane::Compaction(_)) {
            return;
        }
        if let Lane::Compaction(id) = std::mem::replace(&mut self.lane, Lane::Free) {
            match outcome {
                Ok(result) => self.write(&Response::success(id, "compact", &result)),
                Err(problem) => self.write(&Response::failure(id, "compact", problem)),
            }
        }
    }

    fn command_ended(&mut self, call: CallId) {
        if !matches!(self.lane, Lane::Command(running, _) if running == call) {
            return;
        }
        if let Lane::Command(_, id) = std::mem::replace(&mut self.lane, Lane::Free) {
            match self.last_command.take() {
                Some(result) => self.write(&Response::success(id, "bash", &result)),
                None => self.write(&Response::failure(id, "bash", "the command's result cannot be read")),
            }
        }
    }
}

fn wire_todo(task: &todo::Task) -> Todo {
    Todo {
        id: task.id.clone(),
        content: task.content.clone(),
        status: match task.status {
            todo::Status::Pending => TodoStatus::Pending,
            todo::Status::InProgress => TodoStatus::InProgress,
            todo::Status::Completed => TodoStatus::Completed,
            todo::Status::Abandoned => TodoStatus::Abandoned,
        },
    }
}
