//! Sends the events of sessions to clients: one follower of the record for all of them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use countersign_core::{
    engine::{Engine, Event, RecordedFact},
    gate::{self, ApprovalScope, Gate},
    id::{GateId, Lsn, RunId, SessionId},
    message::{AssistantReply, MessageBlock, StoredMessage, text_of},
    run::{self, RunOutcome},
    session::{self, AfterCompaction, SessionEntryKind},
    time::Millis,
};
use countersign_protocol::gsv::{
    chat::{CANCELLED, ChatEventState, EMPTY_RESPONSE},
    message::GsvMessage as Shown,
};
use countersign_runtime::{
    InboxLane, LiveKind, LivePartKind, LiveUpdate, OwnerHandle, ReleasedItem, Subscriber, models::EMPTY_ANSWER,
};
use countersign_view::GateRequest;

use super::{
    super::{
        GsvAdapter,
        registry::{key_of, session_of},
    },
    chat_card, messages, queue_notices,
};

/// Wait for another attempt whose end clients get as an event.
const LONG: Duration = Duration::from_secs(60);

/// Most facts in one step.
const TOGETHER: usize = 512;

/// State of a session in which a run works.
struct ActiveRun {
    run: RunId,
    /// Name of the run on the wire.
    called: String,
    /// True if the answer to a gate has given its name to clients.
    is_referred: bool,
    answer: Option<(AssistantReply, Millis)>,
    /// Indexes of the text parts in the message that is being streamed.
    texts: BTreeSet<usize>,
    /// Pending gates, in the order in which they are shown.
    asks: VecDeque<QueuedPrompt>,
    /// Gate that was shown.
    prompted: Option<GateId>,
}

struct QueuedPrompt {
    gate: GateId,
    request: GateRequest,
    scopes: Vec<ApprovalScope>,
}

/// Follows the record for clients. `None` if the gateway closes.
pub(crate) async fn follow_sessions(door: &Arc<GsvAdapter>) -> Option<()> {
    // Not the facts alone: the output of a model is sent as it comes.
    let subscriber = door.context.handle.subscribe().await?;
    subscriber.wake_for(|released| match released {
        ReleasedItem::Fact(recorded) => recorded.meta.session.as_ref().is_some_and(|session| key_of(session).is_some()),
        ReleasedItem::Live(live) => key_of(&live.session).is_some(),
    });
    let talks = load_active_runs(&door.context.handle).await?;
    for (session, talk) in &talks {
        if let Some(gate) = talk.prompted {
            door.cards.note_shown(session, gate);
        }
    }
    let again = load_retrying_runs(&door.context.handle).await?;
    tokio::spawn(ChatBroadcaster { door: Arc::clone(door), talks, again, touched: BTreeMap::new() }.run(subscriber));
    Some(())
}

/// Pending gate, with the position of its content and the scopes that may be chosen.
type PendingGateRef = (GateId, Lsn, Vec<ApprovalScope>);

/// Loads the runs that an earlier process left, and their gates. Clients get only later events; a client that asks gets the
/// pending gate.
async fn load_active_runs(handle: &OwnerHandle) -> Option<BTreeMap<SessionId, ActiveRun>> {
    let look = |engine: &Engine| -> Vec<(SessionId, ActiveRun, Vec<PendingGateRef>)> {
        let state = engine.state();
        let runs = state.runs().filter(|run| key_of(run.session()).is_some());
        let gates = |session: &SessionId| {
            let mut gates: Vec<&Gate> = state.pending_gates().filter(|gate| gate.session() == Some(session)).collect();
            gates.sort_by_key(|gate| gate.ordinal());
            gates.iter().map(|gate| (gate.id(), gate.content_lsn(), gate.scopes().to_vec())).collect()
        };
        runs.map(|run| {
            (
                run.session().clone(),
                ActiveRun::new(run.id(), run.run_metadata().reference.clone()),
                gates(run.session()),
            )
        })
        .collect()
    };
    let (runs, _) = handle.source(InboxLane::Request).read_state(look).await?;
    let mut talks = BTreeMap::new();
    for (session, mut talk, gates) in runs {
        let contents: Vec<Lsn> = gates.iter().map(|(_, content, _)| *content).collect();
        let texts = handle.contents().get(&contents).await.ok()?;
        for ((gate, _, scopes), text) in gates.into_iter().zip(texts) {
            if let Some(request) = text.and_then(|text| GateRequest::from_record(&text)) {
                talk.asks.push_back(QueuedPrompt { gate, request, scopes });
            }
        }
        talk.prompted = talk.asks.front().map(|ask| ask.gate);
        talks.insert(session, talk);
    }
    Some(talks)
}

/// Loads the names of the runs that repeat their request after a summary, which is being made.
async fn load_retrying_runs(handle: &OwnerHandle) -> Option<BTreeMap<SessionId, String>> {
    let look = |engine: &Engine| -> BTreeMap<SessionId, String> {
        let sessions = engine.state().sessions().filter(|session| key_of(session.id()).is_some());
        let again = sessions.filter_map(|session| {
            let compaction =
                session.active_compaction().filter(|compaction| compaction.then == AfterCompaction::Again)?;
            Some((session.id().clone(), compaction.marks.as_ref()?.reference.clone()?))
        });
        again.collect()
    };
    Some(handle.source(InboxLane::Request).read_state(look).await?.0)
}

impl ActiveRun {
    fn new(run: RunId, reference: Option<String>) -> Self {
        let called = reference.unwrap_or_else(|| run.to_string());
        Self {
            run,
            called,
            is_referred: false,
            answer: None,
            texts: BTreeSet::new(),
            asks: VecDeque::new(),
            prompted: None,
        }
    }
}

struct ChatBroadcaster {
    door: Arc<GsvAdapter>,
    talks: BTreeMap<SessionId, ActiveRun>,
    /// Names of runs whose request was too long, until one repeats it after a summary, or none does.
    again: BTreeMap<SessionId, String>,
    /// Sessions that may have a gate to show, with the record that says so.
    touched: BTreeMap<SessionId, (Lsn, Millis)>,
}

impl ChatBroadcaster {
    async fn run(mut self, mut subscriber: Subscriber) {
        while let Some(first) = subscriber.next().await {
            self.handle_released(&first);
            for _ in 0..TOGETHER {
                let Some(released) = subscriber.try_next() else { break };
                self.handle_released(&released);
            }
            for (session, (lsn, at)) in std::mem::take(&mut self.touched) {
                self.prompt_gate(&session, lsn, at).await;
            }
        }
    }

    fn handle_released(&mut self, released: &ReleasedItem) {
        let recorded = match released {
            ReleasedItem::Fact(recorded) => recorded,
            ReleasedItem::Live(live) => return self.handle_live(live),
        };
        if let Some(session) = recorded.meta.session.as_ref().filter(|session| key_of(session).is_some()) {
            self.handle_fact(session, recorded);
        }
    }

    /// Sends streamed output to the clients that subscribed. It is not in the record yet, so it has no position there.
    fn handle_live(&mut self, live: &LiveUpdate) {
        let Some(key) = key_of(&live.session) else { return };
        let Some(talk) = self.talks.get_mut(&live.session) else { return };
        match &live.kind {
            LiveKind::MessageStarted { .. } => talk.texts.clear(),
            LiveKind::PartStarted { index, part: LivePartKind::Text } => drop(talk.texts.insert(*index)),
            LiveKind::Delta { index, text }
                if talk.texts.contains(index) && self.door.listeners.load(Ordering::Relaxed) > 0 =>
            {
                self.door.broadcast_state(
                    key,
                    Some(&talk.called),
                    ChatEventState::Delta { text: text.to_string() },
                    None,
                );
            }
            _ => {}
        }
    }

    fn handle_fact(&mut self, session: &SessionId, recorded: &RecordedFact) {
        match &recorded.fact.event {
            Event::Run(event) => self.handle_run_event(session, event, recorded),
            Event::Gate(event) => self.handle_gate_event(session, event, recorded),
            Event::Session(session::Event::Entry { kind: SessionEntryKind::Assistant { .. }, made_at, .. }) => {
                // The time that later readers see.
                let at = made_at.unwrap_or(recorded.meta.at);
                let content = recorded.fact.content.as_deref();
                let message = content.and_then(|content| serde_json::from_str::<StoredMessage>(content).ok());
                if let (Some(StoredMessage::Assistant(answer)), Some(talk)) = (message, self.talks.get_mut(session)) {
                    let is_on_the_way = answer.content.iter().any(|block| matches!(block, MessageBlock::ToolCall(_)));
                    let has_text = !text_of(&answer.content).trim().is_empty();
                    let partial = (is_on_the_way && has_text)
                        .then(|| ChatEventState::partial_message(&messages::assistant_message(&answer, at)));
                    talk.answer = Some((answer, at));
                    if let Some(partial) = partial {
                        self.broadcast_state(session, partial, recorded.meta.lsn);
                    }
                }
            }
            // An approver or user stopped the run that would repeat its request.
            Event::Session(session::Event::CompactionAborting) => {
                if let (Some(called), Some(key)) = (self.again.remove(session), key_of(session)) {
                    let state = ChatEventState::Error { error: CANCELLED.to_owned() };
                    self.door.broadcast_state(key, Some(&called), state, Some(recorded.meta.lsn));
                }
            }
            Event::Session(session::Event::CompactionEnded { then, .. }) if *then != AfterCompaction::Again => {
                if let (Some(called), Some(key)) = (self.again.remove(session), key_of(session)) {
                    let error = "LLM error: the conversation is too long for the model, and could not be summed up";
                    let state = ChatEventState::Error { error: error.to_owned() };
                    self.door.broadcast_state(key, Some(&called), state, Some(recorded.meta.lsn));
                }
            }
            Event::Session(_)
            | Event::Call(_)
            | Event::Booted
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => {}
        }
    }

    fn broadcast_state(&self, session: &SessionId, state: ChatEventState, lsn: Lsn) {
        if let (Some(talk), Some(key)) = (self.talks.get(session), key_of(session)) {
            self.door.broadcast_state(key, Some(&talk.called), state, Some(lsn));
        }
    }

    fn handle_run_event(&mut self, session: &SessionId, event: &run::Event, recorded: &RecordedFact) {
        match event {
            run::Event::Started { run, .. } => {
                self.again.remove(session);
                self.talks.insert(session.clone(), ActiveRun::new(*run, None));
            }
            run::Event::Marked { run, marks } => {
                if let (Some(reference), Some(key)) = (&marks.reference, key_of(session)) {
                    self.door.notices.forget(key, reference);
                }
                if let Some(talk) = self.talks.get_mut(session).filter(|talk| talk.run == *run)
                    && let Some(reference) = &marks.reference
                {
                    talk.called.clone_from(reference);
                    talk.is_referred = talk.prompted.is_some();
                }
            }
            run::Event::BackedOff { delay, until, gate: None, .. } if *delay >= LONG => {
                let until = self.door.settings.user_zone().date_and_time(*until);
                let text = format!("The model provider asks to wait. The next attempt is at {until}.");
                self.broadcast_state(
                    session,
                    ChatEventState::partial_message(&Shown::gateway_message(&text, recorded.meta.at.0)),
                    recorded.meta.lsn,
                );
            }
            run::Event::Ended { run, end, .. } => {
                self.door.reading.forget_run(*run);
                if let Some(talk) = self.talks.get(session).filter(|talk| talk.run == *run) {
                    let state = end_state(*end, talk);
                    match state {
                        Some(state) => self.broadcast_state(session, state, recorded.meta.lsn),
                        None => drop(self.again.insert(session.clone(), talk.called.clone())),
                    }
                    self.talks.remove(session);
                    self.door.cards.clear_card(session);
                }
            }
            _ => {}
        }
    }

    fn handle_gate_event(&mut self, session: &SessionId, event: &gate::Event, recorded: &RecordedFact) {
        let Some(talk) = self.talks.get_mut(session) else { return };
        match event {
            gate::Event::Opened { gate, scopes, .. } => {
                let content = recorded.fact.content.as_deref();
                let Some(request) = content.and_then(GateRequest::from_record) else { return };
                talk.asks.push_back(QueuedPrompt { gate: *gate, request, scopes: scopes.clone() });
            }
            gate::Event::Resolved { gate, resolution, by, .. } => {
                talk.asks.retain(|ask| ask.gate != *gate);
                if talk.prompted != Some(*gate) {
                    return;
                }
                talk.prompted = None;
                self.door.cards.clear_card(session);
                if !std::mem::take(&mut talk.is_referred) && *resolution != gate::GateResolution::Withdrawn {
                    // It was decided elsewhere: the following events have a name of their own, which is announced first.
                    talk.called = gate.to_string();
                    let text = chat_card::resolution_text(*gate, resolution, by.as_ref());
                    let notice = ChatEventState::partial_message(&Shown::gateway_message(&text, recorded.meta.at.0));
                    self.broadcast_state(session, notice, recorded.meta.lsn);
                }
            }
            _ => return,
        }
        self.touched.insert(session.clone(), (recorded.meta.lsn, recorded.meta.at));
    }

    /// Shows the first pending gate, if no other is shown.
    async fn prompt_gate(&mut self, session: &SessionId, lsn: Lsn, at: Millis) {
        let cwd = self.session_cwd(session).await.unwrap_or_default();
        let Some(talk) = self.talks.get_mut(session).filter(|talk| talk.prompted.is_none()) else { return };
        let Some(ask) = talk.asks.front() else { return };
        talk.prompted = Some(ask.gate);
        self.door.cards.note_shown(session, ask.gate);
        let text = chat_card::prompt_text(ask.gate, &ask.request, &ask.scopes, &cwd, talk.asks.len() - 1);
        self.broadcast_state(session, ChatEventState::final_message(&Shown::gateway_message(&text, at.0)), lsn);
        if let Some(key) = key_of(session) {
            queue_notices::notify_clients(&self.door, key).await;
        }
    }

    async fn session_cwd(&self, session: &SessionId) -> Option<String> {
        let id = key_of(session).map(session_of)?;
        let source = self.door.context.handle.source(InboxLane::Request);
        source.read_state(move |engine| engine.state().session(&id).map(|session| session.cwd().to_owned())).await?.0
    }
}

/// Returns the event for the end of a run. `None` if a later event has it.
fn end_state(end: RunOutcome, talk: &ActiveRun) -> Option<ChatEventState> {
    let error = |error: String| Some(ChatEventState::Error { error });
    let problem = || {
        let message = talk.answer.as_ref().and_then(|(answer, _)| answer.error_message.clone());
        message.unwrap_or_else(|| "the provider did not answer".to_owned())
    };
    match end {
        RunOutcome::Completed => match &talk.answer {
            Some((answer, at)) if !text_of(&answer.content).trim().is_empty() => {
                Some(ChatEventState::final_message(&messages::assistant_message(answer, *at)))
            }
            Some(_) | None => error(EMPTY_RESPONSE.to_owned()),
        },
        RunOutcome::Aborted | RunOutcome::RetryCancelled => error(CANCELLED.to_owned()),
        RunOutcome::Failed => {
            let problem = problem();
            if problem.starts_with(EMPTY_ANSWER) {
                return error(EMPTY_RESPONSE.to_owned());
            }
            // These errors need no prefix.
            let is_plain = ["Model not found: ", "API key not configured for provider: "];
            if is_plain.iter().any(|word| problem.starts_with(word)) {
                return error(problem);
            }
            error(format!("LLM error: {problem}"))
        }
        // A summary is made, and the request is repeated.
        RunOutcome::Overflowed => None,
        RunOutcome::Interrupted => error("LLM error: the gateway was restarted".to_owned()),
    }
}
