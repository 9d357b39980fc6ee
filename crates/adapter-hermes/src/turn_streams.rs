//! Streams of all turns: kept while they are read, and rebuilt from the record.
//!
//! One task follows the log and gives each session's frames to a task of its own, so that reading one conversation delays
//! no other. Numbers are never used twice: those of a rebuilt stream follow the ones used before, and
//! each process begins with numbers that no other can have used.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::wire::{self, HermesEvent};
use countersign_conversations::sessions::is_agents;
use countersign_core::{
    engine::{Event as Happened, RecordedFact},
    gate,
    id::{Lsn, RunId, SessionId},
    run, session,
    time::Millis,
};
use countersign_runtime::{
    InboxLane, OwnerHandle, ReleasedItem,
    store::{Log as _, LogReadError, Partition, ReadScope, StoredRecord},
};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    prompts,
    transcript::{self, MessageSelection},
    turn_encoder::{TurnEncoder, TurnEnd},
    turn_stream::TurnStream,
    unread_turns::UnreadTurns,
};

/// Most bytes of ended turns that are kept, for clients that lost their connection shortly before the end. Dropped streams
/// are rebuilt from the record.
const KEPT: usize = 16 << 20;
/// Most records that are read at once.
const PAGE: usize = 1000;
/// Longest wait for frames that the log has already.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Most frames of one session that may wait for its task. Beyond that the log is followed more slowly, and nothing is lost.
const WAITING: usize = 4096;
/// Numbers that each process has for a stream that another one began.
const NUMBERS: u32 = 32;

/// Streams.
pub(super) struct TurnStreams {
    handle: OwnerHandle,
    /// First number, less one, for streams that another process began.
    before: u64,
    held: Mutex<RetainedStreams>,
    /// Position up to which the log was followed.
    seen: watch::Sender<Lsn>,
    /// Time of the last end of a run, of those that were followed.
    finished: Mutex<Option<Millis>>,
    unread: UnreadTurns,
}

#[derive(Default)]
struct RetainedStreams {
    open: BTreeMap<RunId, Arc<TurnStream>>,
    /// Ended streams, the oldest first.
    over: VecDeque<RunId>,
    bytes: usize,
    /// Highest number of dropped streams: a rebuilt one continues after it.
    given: u64,
}

impl RetainedStreams {
    /// Keeps an ended stream, and drops the oldest ones if there are too many.
    fn retain_finished(&mut self, journal: &TurnStream) {
        self.over.push_back(journal.run);
        self.bytes += journal.size_bytes();
        while self.bytes > KEPT
            && let Some(oldest) = self.over.pop_front()
        {
            if let Some(gone) = self.open.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(gone.size_bytes());
                self.given = self.given.max(gone.current_status().last_seq);
            }
        }
    }
}

impl TurnStreams {
    /// Follows the log from now on. `None` if the gateway closes.
    pub(super) async fn open(handle: OwnerHandle) -> Option<Arc<Self>> {
        // Not the facts alone: live frames are events of a turn as well.
        let mut subscriber = handle.subscribe().await?;
        subscriber.wake_for(|released| session_of(released).is_some_and(|session| !is_agents(session)));
        let source = handle.source(InboxLane::Request);
        let read = source.read_state(|engine| {
            let runs = engine.state().runs().map(|run| (run.id(), run.session().clone()));
            let awaited = engine.state().sessions().filter_map(|of| Some((of.awaited_run()?, of.id().clone())));
            let runs = runs.chain(awaited);
            (engine.state().boot_count(), engine.state().head_lsn(), runs.collect::<Vec<_>>())
        });
        let ((boot, head, runs), _) = read.await?;
        let before = u64::from(boot) << NUMBERS;
        let journals = Arc::new(Self {
            handle,
            before,
            held: Mutex::default(),
            seen: watch::Sender::new(head),
            finished: Mutex::default(),
            unread: UnreadTurns::default(),
        });
        let pump = Arc::clone(&journals);
        let mut workers: BTreeMap<SessionId, mpsc::Sender<ReleasedItem>> = BTreeMap::new();
        // Turns that the last process left continue under their old names.
        for (run, session) in runs.into_iter().filter(|(_, session)| !is_agents(session)) {
            let journal = pump.begin_stream(run, &session, before);
            workers.insert(session, pump.spawn_worker(journal, Some(head)));
        }
        tokio::spawn(async move {
            while let Some(released) = subscriber.next().await {
                let at = match &released {
                    ReleasedItem::Fact(recorded) => Some(recorded.meta.lsn),
                    ReleasedItem::Live(_) => None,
                };
                if at.is_none_or(|at| at > head) {
                    pump.hand_on(released, &mut workers).await;
                }
                if let Some(at) = at {
                    pump.seen.send_replace(at);
                }
            }
        });
        Some(journals)
    }

    /// Gives a frame to the task of its session; the beginning of a turn creates one.
    async fn hand_on(
        self: &Arc<Self>,
        released: ReleasedItem,
        workers: &mut BTreeMap<SessionId, mpsc::Sender<ReleasedItem>>,
    ) {
        let Some(session) = session_of(&released).filter(|session| !is_agents(session)).cloned() else { return };
        if let Some(run) = started_run(&released)
            && self.open_one(run).is_none()
        {
            let journal = self.begin_stream(run, &session, 0);
            workers.insert(session.clone(), self.spawn_worker(journal, None));
        }
        let ended = run_end_time(&released);
        if ended.is_some() {
            *self.finished.lock() = ended;
        }
        if let Some(worker) = workers.get(&session) {
            // A worker ends with its turn.
            let _ = worker.send(released).await;
        }
        // A turn that was withdrawn before it began ends without an end of its run.
        if ended.is_some() || workers.get(&session).is_some_and(mpsc::Sender::is_closed) {
            workers.remove(&session);
        }
    }

    /// Returns the time of the last end of a run, of those that this process followed.
    pub(super) fn last_finished(&self) -> Option<Millis> {
        *self.finished.lock()
    }

    /// Notes that a client began a turn, whose stream it opens next.
    pub(super) fn expect_reader(&self, session: &SessionId, run: RunId) {
        self.unread.begin_turn(session, run, Instant::now(), |run| self.open_one(run));
    }

    /// Returns the turn of a session that a client began and whose end none has read yet.
    pub(super) fn unread_turn(&self, session: &SessionId) -> Option<RunId> {
        self.unread.unread_run(session, Instant::now(), |run| self.open_one(run))
    }

    fn begin_stream(&self, run: RunId, session: &SessionId, before: u64) -> Arc<TurnStream> {
        let journal = Arc::new(TurnStream::new(session.clone(), run, before));
        self.held.lock().open.insert(run, Arc::clone(&journal));
        journal
    }

    /// Starts the task that fills a stream; it reads the record itself up to `known` first.
    fn spawn_worker(self: &Arc<Self>, journal: Arc<TurnStream>, known: Option<Lsn>) -> mpsc::Sender<ReleasedItem> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let journals = Arc::clone(self);
        tokio::spawn(async move {
            journals.fill_stream(Arc::clone(&journal), known, receiver).await;
            journal.close();
        });
        sender
    }

    async fn fill_stream(
        &self,
        journal: Arc<TurnStream>,
        known: Option<Lsn>,
        mut frames: mpsc::Receiver<ReleasedItem>,
    ) {
        let mut teller = TurnEncoder::default();
        if let Some(head) = known {
            match self.replay_turn(&journal, &mut teller, head).await {
                Ok(true) => return self.finish_stream(&journal),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "failed to read the events of a turn"),
            }
        } else {
            self.push_title(&journal).await;
        }
        while let Some(released) = frames.recv().await {
            let mut events = Vec::new();
            let over = match &released {
                ReleasedItem::Live(live) => {
                    teller.encode_live(&live.kind, &mut events);
                    None
                }
                ReleasedItem::Fact(recorded) => {
                    let content = self.fact_content(recorded).await;
                    if let Happened::Gate(gate::Event::Opened { gate, .. }) = &recorded.fact.event {
                        events.extend(prompts::pending_gate_event(&self.handle, *gate).await);
                    }
                    teller.encode_fact(&recorded.fact.event, recorded.meta.at, content.as_deref(), &mut events)
                }
            };
            events.iter().for_each(|event| journal.push(event, false));
            if let Some(over) = over {
                self.push_end(&journal, over).await;
                return self.finish_stream(&journal);
            }
        }
    }

    /// Reads the content of a fact. An entry made from a queued message has its content in another record.
    async fn fact_content(&self, recorded: &RecordedFact) -> Option<Arc<str>> {
        match &recorded.fact.event {
            Happened::Session(session::Event::Entry { content_at: Some(at), .. }) => {
                self.handle.contents().get(&[*at]).await.ok()?.pop()?
            }
            _ => recorded.fact.content.clone(),
        }
    }

    async fn push_title(&self, journal: &TurnStream) {
        let id = journal.session.clone();
        let source = self.handle.source(InboxLane::Request);
        let read = source.read_state(move |engine| Some(engine.state().session(&id)?.name()?.to_owned()));
        if let Some((Some(name), _)) = read.await {
            journal.push(&HermesEvent::title(journal.session.as_str(), &transcript::shown_title(Some(&name))), false);
        }
    }

    async fn push_end(&self, journal: &TurnStream, over: TurnEnd) {
        let name = journal.session.as_str();
        let unread = || wire::HermesSession { session_id: name.to_owned(), ..wire::HermesSession::default() };
        let session = match &over {
            TurnEnd::Failed { .. } => None,
            TurnEnd::Done | TurnEnd::Cancelled => {
                transcript::load_session(
                    &self.handle,
                    &journal.session,
                    MessageSelection::Last(transcript::MOST_MESSAGES),
                )
                .await
            }
        };
        match (over, session) {
            (TurnEnd::Done, session) => {
                if let Some(session) = session {
                    journal.push(&HermesEvent::done(&at_rest(session)), false);
                }
                journal.push(&HermesEvent::stream_end(name), true);
            }
            (TurnEnd::Cancelled, session) => {
                journal.push(&HermesEvent::cancel(&at_rest(session.unwrap_or_else(unread))), true)
            }
            (TurnEnd::Failed { kind, message }, _) => journal.push(&HermesEvent::apperror(name, kind, &message), true),
        }
    }

    /// Notes that a stream is complete.
    fn finish_stream(&self, journal: &TurnStream) {
        self.held.lock().retain_finished(journal);
    }

    fn open_one(&self, run: RunId) -> Option<Arc<TurnStream>> {
        self.held.lock().open.get(&run).cloned()
    }

    /// Returns the stream of a turn, rebuilt from the record if it is not in memory. `None` if there is no such turn, or its session
    /// was deleted.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) async fn load_stream(&self, run: RunId) -> Result<Option<Arc<TurnStream>>, LogReadError> {
        let Some(journal) = self.find_stream(run).await? else { return Ok(None) };
        let is_there = transcript::has_session(&self.handle, &journal.session).await;
        Ok(Some(journal).filter(|_| is_there))
    }

    async fn find_stream(&self, run: RunId) -> Result<Option<Arc<TurnStream>>, LogReadError> {
        if let Some(journal) = self.open_one(run) {
            return Ok(Some(journal));
        }
        let log = self.handle.log();
        let named = log.read_scope(Partition::ZERO, ReadScope::Key(&run.to_string()), Lsn(0), 1).await?;
        let Some((session, begun)) = named.first().and_then(|stored| Some((stored.session.clone()?, stored.lsn)))
        else {
            return Ok(None);
        };
        // A turn that begins at this moment is recorded before it is followed.
        let mut seen = self.seen.subscribe();
        let following = seen.wait_for(|seen| *seen >= begun);
        // The sender is our own.
        let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, following).await;
        if let Some(journal) = self.open_one(run) {
            return Ok(Some(journal));
        }
        let before = self.held.lock().given.max(self.before);
        let journal = Arc::new(TurnStream::new(session, run, before));
        let head = log.head(Partition::ZERO).await?.lsn;
        self.replay_turn(&journal, &mut TurnEncoder::default(), head).await?;
        if !journal.current_status().is_over {
            return Ok(None);
        }
        // Another request may have been faster, and has used numbers already.
        let mut held = self.held.lock();
        if let Some(quicker) = held.open.get(&run) {
            return Ok(Some(Arc::clone(quicker)));
        }
        held.open.insert(run, Arc::clone(&journal));
        held.retain_finished(&journal);
        Ok(Some(journal))
    }

    /// Encodes the record of a turn up to `head`. Returns true if the turn was over by then.
    async fn replay_turn(
        &self,
        journal: &TurnStream,
        teller: &mut TurnEncoder,
        head: Lsn,
    ) -> Result<bool, LogReadError> {
        let log = self.handle.log();
        let key = journal.run.to_string();
        let named = log.read_scope(Partition::ZERO, ReadScope::Key(&key), Lsn(0), 1).await?;
        let first = named.first().map(|stored| stored.lsn);
        let Some(mut after) = first.map(|first| Lsn(first.0.saturating_sub(1))) else { return Ok(false) };
        let mut waiting = Vec::new();
        loop {
            let page = log.read_scope(Partition::ZERO, ReadScope::Session(&journal.session), after, PAGE).await?;
            // Records after `head` are encoded as they come.
            let is_last = page.len() < PAGE || page.last().is_some_and(|stored| stored.lsn >= head);
            for stored in page.into_iter().take_while(|stored| stored.lsn <= head) {
                after = stored.lsn;
                let Some((event, at, content)) = self.read_event(&stored).await else { continue };
                match &event {
                    Happened::Gate(gate::Event::Opened { gate, .. }) => waiting.push(*gate),
                    Happened::Gate(gate::Event::Resolved { gate, .. }) => waiting.retain(|other| other != gate),
                    Happened::Run(event) if event.run() != journal.run => continue,
                    _ => {}
                }
                let mut events = Vec::new();
                let over = teller.encode_fact(&event, at, content.as_deref(), &mut events);
                events.iter().for_each(|event| journal.push(event, false));
                if let Some(over) = over {
                    self.push_end(journal, over).await;
                    return Ok(true);
                }
            }
            if is_last {
                break;
            }
        }
        for gate in waiting {
            if let Some(event) = prompts::pending_gate_event(&self.handle, gate).await {
                journal.push(&event, false);
            }
        }
        Ok(false)
    }

    async fn read_event(&self, stored: &StoredRecord) -> Option<(Happened, Millis, Option<Arc<str>>)> {
        let event = Happened::decode(&stored.kind, stored.version, &stored.facts).ok()?;
        let at = match &event {
            Happened::Session(session::Event::Entry { content_at: Some(at), .. }) => *at,
            _ => stored.lsn,
        };
        let content = self.handle.contents().get(&[at]).await.ok()?.pop().flatten();
        Some((event, stored.at, content))
    }
}

/// Returns a session as at rest: a turn that ends is over, also if the record has it a moment later.
fn at_rest(mut session: wire::HermesSession) -> wire::HermesSession {
    session.active_stream_id = None;
    session.is_streaming = false;
    session.pending_started_at = None;
    let last = session.messages.as_ref().and_then(|messages| messages.last());
    let answer = last.filter(|message| message.role == "assistant" && !message.error && !session.read_only);
    session.regeneration_revision = answer.map(|message| message.id.clone());
    session
}

/// Returns the session of a frame.
fn session_of(released: &ReleasedItem) -> Option<&SessionId> {
    match released {
        ReleasedItem::Fact(recorded) => recorded.meta.session.as_ref(),
        ReleasedItem::Live(live) => Some(&live.session),
    }
}

/// Returns the turn whose stream begins: with its run, or with the compaction that the run waits for.
fn started_run(released: &ReleasedItem) -> Option<RunId> {
    let ReleasedItem::Fact(recorded) = released else { return None };
    match &recorded.fact.event {
        Happened::Run(run::Event::Started { run, .. })
        | Happened::Session(session::Event::CompactionStarted { run: Some(run), .. }) => Some(*run),
        _ => None,
    }
}

/// Returns the time of the end of a run, if this is one.
fn run_end_time(released: &ReleasedItem) -> Option<Millis> {
    let ReleasedItem::Fact(recorded) = released else { return None };
    matches!(&recorded.fact.event, Happened::Run(run::Event::Ended { .. })).then_some(recorded.meta.at)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::wire::HermesEvent;
    use countersign_core::id::{RunId, SessionId};
    use uuid::Uuid;

    use super::{KEPT, RetainedStreams, TurnStream};

    #[test]
    fn turns_that_are_over_take_a_bounded_room_and_the_oldest_go_first() {
        let mut held = RetainedStreams::default();
        for number in 0..2_000 {
            let run = RunId::new(Uuid::from_u128(number));
            let journal = Arc::new(TurnStream::new(SessionId::new("s"), run, 0));
            (0..100).for_each(|_| journal.push(&HermesEvent::token("so it goes"), false));
            journal.push(&HermesEvent::stream_end("s"), true);
            held.open.insert(run, Arc::clone(&journal));
            held.retain_finished(&journal);
        }
        let sizes: usize = held.open.values().map(|journal| journal.size_bytes()).sum();
        assert!(sizes <= KEPT && sizes > KEPT / 2, "{sizes}");
        assert_eq!((sizes, held.over.len()), (held.bytes, held.open.len()));
        let [oldest, newest] = [0, 1_999].map(|number| held.open.contains_key(&RunId::new(Uuid::from_u128(number))));
        assert!(!oldest && newest);
    }
}
