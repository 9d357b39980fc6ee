//! Prompts for gates in chats: the first gate of a run that a chat began is shown in that chat, and a decision made
//! elsewhere is reported there, with its approver. Also follows the working sessions, for networks that show typing.
//!
//! Prompts follow from gates as they are recorded, so that a restart comes to the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    channel::{MessageOrigin, OutboundRequest, PendingMessage},
    engine::{Command, Engine, Event, RecordedFact},
    gate::{self, ApprovalScope, Gate, GateResolution, Kind},
    id::{GateId, Lsn, PrincipalId, RunId, SessionId},
    run,
};
use countersign_runtime::{InboxLane, ReleasedItem, Subscriber};
use countersign_view::GateRequest;

use super::{
    super::{
        GsvAdapter,
        chat::{CHAT, in_chat, notify_chats, prompt_text, resolution_text},
        delivery::{self, DeliveryError},
        registry::key_of,
    },
    addresses, pairing, transport,
};

/// Prefix of the key of an outbound message that shows a gate.
const ASK: &str = "ask:";
/// Wait before another attempt to record something.
const AGAIN: Duration = Duration::from_secs(2);

/// Starts to follow gates. `None` if the gateway closes.
pub(super) async fn follow_gates(door: &Arc<GsvAdapter>) -> Option<()> {
    let subscriber = door.context.handle.subscribe().await?;
    subscriber.wake_for(|released| match released {
        ReleasedItem::Fact(recorded) => matches!(recorded.fact.event, Event::Run(_) | Event::Gate(_)),
        ReleasedItem::Live(_) => false,
    });
    let found = |engine: &Engine| {
        let state = engine.state();
        let runs = state.runs().filter_map(|run| {
            let origin = run.run_metadata().origin.as_deref()?;
            Some((run.id(), (run.session().clone(), origin.clone())))
        });
        let runs: BTreeMap<RunId, (SessionId, MessageOrigin)> = runs.collect();
        let gates = state.all_gates().filter(|gate| gate.is_pending() || gate.owes_update());
        let sessions: BTreeSet<SessionId> = gates.filter_map(|gate| gate.session().cloned()).collect();
        let knocked = state.all_gates().filter(|gate| gate.kind() == Kind::Pairing && gate.owes_update());
        (runs, sessions, knocked.map(Gate::id).collect::<BTreeSet<_>>(), prompted_before(engine))
    };
    let ((runs, sessions, knocked, prompted), _) =
        door.context.handle.source(InboxLane::Request).read_state(found).await?;
    let sessions = sessions.into_iter().filter(|session| key_of(session).is_some()).collect();
    for (session, gate) in prompted {
        door.cards.note_shown(&in_chat(&session), gate);
    }
    tokio::spawn(GatePrompter { door: Arc::clone(door), runs, sessions, knocked }.run(subscriber));
    Some(())
}

/// Notes that an outbound message is sent. If it shows a gate, the chat can answer that from now on.
pub(super) fn note_prompted(door: &GsvAdapter, letter: &PendingMessage) {
    let gate = letter.key.as_deref().and_then(|key| GateId::parse(key.strip_prefix(ASK)?));
    if let Some((gate, session)) = gate.zip(letter.session.as_deref()) {
        door.cards.note_shown(&in_chat(&SessionId::new(session)), gate);
    }
}

/// Returns the pending gates that were shown in their chats before this process began.
fn prompted_before(engine: &Engine) -> Vec<(SessionId, GateId)> {
    let state = engine.state();
    let is_on_its_way = |gate: &Gate| {
        let key = format!("{ASK}{}", gate.id());
        state.channels().pending_messages().any(|letter| letter.key.as_deref() == Some(&key))
    };
    let is_shown = |gate: &&Gate| gate.shown_surfaces().iter().any(|showing| showing.surface == CHAT);
    let prompted = state.pending_gates().filter(is_shown).filter(|gate| !is_on_its_way(gate));
    prompted.filter_map(|gate| Some((gate.session()?.clone(), gate.id()))).collect()
}

struct GatePrompter {
    door: Arc<GsvAdapter>,
    /// Runs that chats began, with their origin.
    runs: BTreeMap<RunId, (SessionId, MessageOrigin)>,
    /// Sessions in which a prompt may be due.
    sessions: BTreeSet<SessionId>,
    /// Pairing gates that were decided.
    knocked: BTreeSet<GateId>,
}

/// Gate to show.
struct GatePrompt {
    gate: GateId,
    content: Lsn,
    scopes: Vec<ApprovalScope>,
    origin: MessageOrigin,
    cwd: String,
    more: usize,
}

/// Gate that was shown and has ended.
struct EndedPrompt {
    gate: GateId,
    resolution: GateResolution,
    by: Option<PrincipalId>,
    reference: String,
}

impl GatePrompter {
    async fn run(mut self, mut subscriber: Subscriber) {
        loop {
            while let Some(released) = subscriber.try_next() {
                self.handle_released(&released);
            }
            let is_done = self.process_owed().await;
            let wait = tokio::time::sleep(AGAIN);
            tokio::select! {
                released = subscriber.next() => match released {
                    Some(released) => self.handle_released(&released),
                    None => return,
                },
                () = wait, if !is_done => {}
            }
        }
    }

    fn handle_released(&mut self, released: &ReleasedItem) {
        let ReleasedItem::Fact(recorded) = released else { return };
        match &recorded.fact.event {
            Event::Run(event) => self.handle_run_event(event, recorded),
            Event::Gate(gate::Event::Opened { .. }) => self.mark_touched(recorded),
            Event::Gate(gate::Event::Resolved { gate, .. }) => {
                match &recorded.meta.session {
                    Some(_) => self.mark_touched(recorded),
                    // The code there looks whether it is a pairing gate.
                    None => drop(self.knocked.insert(*gate)),
                }
            }
            _ => {}
        }
    }

    fn mark_touched(&mut self, recorded: &RecordedFact) {
        let session = recorded.meta.session.as_ref();
        self.sessions.extend(session.filter(|session| key_of(session).is_some()).cloned());
    }

    fn handle_run_event(&mut self, event: &run::Event, recorded: &RecordedFact) {
        let Some(session) = &recorded.meta.session else { return };
        match event {
            run::Event::Marked { run, marks } => {
                if let Some(origin) = &marks.origin {
                    // It begins, or continues under another name after an answer.
                    self.runs.insert(*run, (session.clone(), (**origin).clone()));
                    transport::show_typing(&self.door, &origin.from, session, true);
                }
            }
            run::Event::Ended { run, .. } => {
                if let Some((session, origin)) = self.runs.remove(run) {
                    self.door.cards.clear_card(&in_chat(&session));
                    transport::show_typing(&self.door, &origin.from, &session, false);
                }
            }
            _ => {}
        }
    }

    /// Sends the prompts that are due. Returns false if one has to be tried again.
    async fn process_owed(&mut self) -> bool {
        let mut is_done = true;
        for session in std::mem::take(&mut self.sessions) {
            if !self.process_session(&session).await.unwrap_or(false) {
                self.sessions.insert(session);
                is_done = false;
            }
        }
        for gate in std::mem::take(&mut self.knocked) {
            if let Err(problem) = pairing::finish_pairing(&self.door, gate).await {
                tracing::warn!(%gate, problem = problem.message, "a pairing was approved, but is not complete; retrying");
                self.knocked.insert(gate);
                is_done = false;
            }
        }
        is_done
    }

    async fn process_session(&mut self, session: &SessionId) -> Option<bool> {
        let of = session.clone();
        let source = self.door.context.handle.source(InboxLane::Request);
        let ((prompt, ended), _) = source.read_state(move |engine| session_prompts(engine, &of)).await?;
        let mut is_done = true;
        for ended in ended {
            is_done &= self.send_resolution(ended).await;
        }
        if let Some(prompt) = prompt {
            is_done &= self.send_prompt(session, prompt).await?;
        }
        notify_chats(&self.door, session).await;
        Some(is_done)
    }

    async fn send_prompt(&mut self, session: &SessionId, prompt: GatePrompt) -> Option<bool> {
        let texts = self.door.context.handle.contents().get(&[prompt.content]).await.ok()?;
        let text = texts.into_iter().next().flatten();
        let Some(request) = text.and_then(|text| GateRequest::from_record(&text)) else { return Some(true) };
        let mut text = prompt_text(prompt.gate, &request, &prompt.scopes, &prompt.cwd, prompt.more);
        text.push_str(addresses::reply_hint(&prompt.origin.from));
        let message = OutboundRequest {
            to: prompt.origin.from.clone(),
            text: text.into(),
            session: Some(session.as_str().to_owned()),
            reply_to: prompt.origin.message.clone(),
            key: Some(format!("{ASK}{}", prompt.gate)),
            media: None,
        };
        match delivery::enqueue_message(&self.door, message).await {
            Ok(_) => {}
            // Its account was logged out: nobody is there to answer.
            Err(DeliveryError::Unknown(_)) => return Some(true),
            Err(_) => return Some(false),
        }
        transport::show_typing(&self.door, &prompt.origin.from, session, false);
        let reference = origin_reference(&prompt.origin);
        let shown = gate::Command::Shown { gate: prompt.gate, surface: CHAT.to_owned(), reference };
        Some(self.door.context.handle.source(InboxLane::Result).send_command(Command::Gate(shown)).await.is_ok())
    }

    async fn send_resolution(&mut self, ended: EndedPrompt) -> bool {
        let origin: Option<MessageOrigin> = serde_json::from_str(&ended.reference).ok();
        if let Some(origin) = origin.filter(|origin| {
            // The chat that answered knows, and a withdrawn gate was withdrawn by the one who stopped its run.
            ended.by.as_ref() != Some(&origin.by) && ended.resolution != GateResolution::Withdrawn
        }) {
            let message = OutboundRequest {
                to: origin.from,
                text: resolution_text(ended.gate, &ended.resolution, ended.by.as_ref()).into(),
                session: None,
                reply_to: None,
                key: Some(format!("end:{}", ended.gate)),
                media: None,
            };
            if matches!(delivery::enqueue_message(&self.door, message).await, Err(DeliveryError::Failed(_))) {
                return false;
            }
        }
        let updated = gate::Command::Updated { gate: ended.gate, surface: CHAT.to_owned(), reference: ended.reference };
        self.door.context.handle.source(InboxLane::Result).send_command(Command::Gate(updated)).await.is_ok()
    }
}

/// Returns the origin as it is stored with the gate.
fn origin_reference(origin: &MessageOrigin) -> String {
    let origin = MessageOrigin { message: None, ..origin.clone() };
    serde_json::to_string(&origin).unwrap_or_default()
}

fn session_prompts(engine: &Engine, session: &SessionId) -> (Option<GatePrompt>, Vec<EndedPrompt>) {
    let state = engine.state();
    let mut waiting: Vec<&Gate> = state.gates_of(session).filter(|gate| gate.is_pending()).collect();
    waiting.sort_by_key(|gate| (gate.ordinal(), gate.content_lsn()));
    let is_shown = |gate: &Gate| gate.shown_surfaces().iter().any(|showing| showing.surface == CHAT);
    let prompt = waiting.first().filter(|gate| !is_shown(gate)).and_then(|gate| {
        let origin = state.run(gate.run()?)?.run_metadata().origin.as_deref()?.clone();
        Some(GatePrompt {
            gate: gate.id(),
            content: gate.content_lsn(),
            scopes: gate.scopes().to_vec(),
            origin,
            cwd: state.session(session).map(|session| session.cwd().to_owned()).unwrap_or_default(),
            more: waiting.len() - 1,
        })
    });
    let over = state.gates_of(session).filter(|gate| gate.owes_update());
    let ended = over.flat_map(|gate| {
        let open = gate.shown_surfaces().iter().filter(|showing| showing.surface == CHAT && !showing.is_final);
        open.filter_map(|showing| {
            Some(EndedPrompt {
                gate: gate.id(),
                resolution: gate.resolution()?.clone(),
                by: gate.resolved_by().cloned(),
                reference: showing.reference.clone(),
            })
        })
    });
    (prompt, ended.collect())
}
