//! Pending gates of one session, oldest first, as the engine has them at one position of the log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use countersign_core::{
    engine::Engine,
    gate::Gate,
    id::{GateId, Lsn, SessionId},
};
use countersign_http::web::sse;
use countersign_view::GateRequest;
use serde_json::{Value, json};

use super::prompt_card::{self, PromptCard};

/// The two queues of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PromptKind {
    /// Gates that are allowed or denied.
    Approvals,
    /// Gates that are answered with a text.
    Questions,
}

/// Type that belongs to one of the two queues.
pub(crate) trait HasPromptKind {
    /// Queue.
    const KIND: PromptKind;
}

impl PromptKind {
    /// Returns the name of the event with its state.
    pub(crate) const fn event_name(self) -> &'static str {
        match self {
            Self::Approvals => "approval",
            Self::Questions => "clarify",
        }
    }

    const fn from_is_question(is_question: bool) -> Self {
        if is_question { Self::Questions } else { Self::Approvals }
    }
}

/// How much of the pending gates is read. A card costs much more than a name, and few readers need more than the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueDepth {
    /// The names of all, and the card of the oldest of each queue: enough for polls and the frames of a queue.
    Oldest,
    /// The cards of all approvals too, which the stream of a session shows.
    Approvals,
}

/// Pending gates of one session, taken out of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptQueues {
    /// Position of the log.
    pub at: Lsn,
    approvals: PromptQueue,
    questions: PromptQueue,
    /// Every card of the approvals, if they were wanted.
    approval_cards: Option<Vec<PromptCard>>,
}

/// One queue, oldest first.
#[derive(Clone, Debug, Default)]
struct PromptQueue {
    gates: Vec<GateId>,
    oldest: Option<PromptCard>,
}

impl PromptQueues {
    /// Reads those of one session, for a poll.
    pub(super) fn for_session(engine: &Engine, session: &SessionId) -> Self {
        let only = BTreeMap::from([(session.clone(), QueueDepth::Oldest)]);
        Self::for_sessions(engine, &only).remove(session).unwrap_or_default()
    }

    /// Reads those of several sessions, in one pass.
    pub(crate) fn for_sessions(
        engine: &Engine,
        sessions: &BTreeMap<SessionId, QueueDepth>,
    ) -> BTreeMap<SessionId, Self> {
        let at = engine.state().head_lsn();
        let empty = |(session, depth): (&SessionId, &QueueDepth)| {
            let approval_cards = (*depth == QueueDepth::Approvals).then(Vec::new);
            (session.clone(), Self { at, approval_cards, ..Self::default() })
        };
        let mut all: BTreeMap<SessionId, Self> = sessions.iter().map(empty).collect();
        for gate in engine.state().pending_gates() {
            if let Some(queues) = gate.session().and_then(|session| all.get_mut(session)) {
                queues.add_gate(engine, gate);
            }
        }
        all
    }

    /// Adds a gate that is younger than all before. One whose content is not in memory is not shown.
    fn add_gate(&mut self, engine: &Engine, gate: &Gate) {
        if GateRequest::at_hand(engine, gate.id()).is_none() {
            return;
        }
        let card = || PromptCard::from_gate(engine, gate);
        let kind = PromptKind::from_is_question(prompt_card::is_question(gate));
        if let (PromptKind::Approvals, Some(cards)) = (kind, &mut self.approval_cards) {
            cards.extend(card());
        }
        let queue = match kind {
            PromptKind::Approvals => &mut self.approvals,
            PromptKind::Questions => &mut self.questions,
        };
        if queue.gates.is_empty() {
            queue.oldest = card();
        }
        queue.gates.push(gate.id());
    }

    /// Returns every session with a pending gate.
    pub(super) fn waiting_sessions(engine: &Engine) -> BTreeSet<SessionId> {
        engine.state().pending_gates().filter_map(Gate::session).cloned().collect()
    }

    /// Returns every card of the approvals, oldest first; `None` if they were not read.
    pub(crate) fn approval_cards(&self) -> Option<&[PromptCard]> {
        self.approval_cards.as_deref()
    }

    /// Returns the state of one queue, as polls and frames have it.
    pub(super) fn state_json(&self, kind: PromptKind) -> Value {
        let waiting = match kind {
            PromptKind::Approvals => &self.approvals,
            PromptKind::Questions => &self.questions,
        };
        json!({ "pending": waiting.oldest.as_ref().map(PromptCard::to_json), "pending_count": waiting.gates.len() })
    }

    /// Returns the frame of that state, once for all readers.
    pub(crate) fn state_frame(&self, kind: PromptKind) -> Bytes {
        sse::encode_frame(None, kind.event_name(), &self.state_json(kind))
    }

    /// Returns the names of all pending gates.
    pub(crate) fn waiting_gates(&self) -> BTreeSet<GateId> {
        self.approvals.gates.iter().chain(&self.questions.gates).copied().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use countersign_core::{
        call::{self, AgentRequest, RequestExecutor},
        engine::{ActiveRules, Command, DecisionContext, Engine, Event, FactMeta},
        gate::{self, IdentityMap},
        id::{GateId, IdGenerator, Lsn, PrincipalId, SessionId},
        policy::{CompiledRules, DefaultPolicy, PathContext},
        session,
        time::Millis,
        tool::{RepeatMode, ToolEffect},
    };
    use serde_json::{Map, json};
    use uuid::Uuid;

    use super::{PromptKind, PromptQueues, QueueDepth};

    /// Returns the session of [`waiting_engine`].
    pub(in crate::prompts) fn session() -> SessionId {
        SessionId::new("agent:pi")
    }

    /// Returns the name of a gate of [`waiting_engine`].
    pub(in crate::prompts) fn gate(number: usize) -> GateId {
        GateId::new(Uuid::from_u128(number as u128))
    }

    /// Makes an engine in which `count` approvals wait, named from 1 on: one that a request opened, repeated.
    pub(in crate::prompts) fn waiting_engine(count: usize) -> Engine {
        let rules = || ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        };
        let mut first = Engine::new(rules());
        let mut context = DecisionContext { now: Millis(1_000), fresh: IdGenerator::new([7; 16]) };
        let settings = Box::new(session::Settings { max_pending: 10, ..session::Settings::default() });
        let open = session::Command::Open { cwd: String::new(), name: None, parent: None, door: None, settings };
        let (opened, _) = first.handle_command(Command::Session(session(), open), &mut context).unwrap();
        let request = AgentRequest {
            session: session(),
            principal: PrincipalId::new("agent:pi"),
            door: "agent-gate".into(),
            wire: "1".into(),
            key: None,
            tool: "open_door".into(),
            arguments: Map::new(),
            signatures: vec!["open_door(front)".to_owned()],
            named: Vec::new(),
            undeclared: Vec::new(),
            service: Some("house".into()),
            executor: RequestExecutor::Service,
            paths: Vec::new(),
            cwd: String::new(),
            leads_to: None,
            for_principals: Vec::new(),
            effect: ToolEffect::Changes,
            repeat: RepeatMode::Once,
        };
        let request = Command::Call(call::Command::Request(Box::new(request)));
        let (asked, _) = first.handle_command(request, &mut context).unwrap();
        let is_gate = |event: &Event| matches!(event, Event::Gate(gate::Event::Opened { .. }));
        let asked = asked.into_iter().find(|recorded| is_gate(&recorded.fact.event)).expect("a gate was opened");

        let mut engine = Engine::new(rules());
        for recorded in &opened {
            engine.replay_fact(&recorded.fact.event, &recorded.meta);
        }
        let after = engine.state().head_lsn().0;
        for number in 1..=count {
            let mut event = asked.fact.event.clone();
            if let Event::Gate(gate::Event::Opened { gate: id, call, .. }) = &mut event {
                (*id, *call) = (gate(number), None);
            }
            let meta = FactMeta { lsn: Lsn(after + number as u64), ..asked.meta.clone() };
            engine.replay_fact(&event, &meta);
        }
        let text = asked.fact.content.clone().expect("a gate has content");
        let contents: Vec<_> = engine.wants_admitted().into_iter().map(|lsn| (lsn, text.clone())).collect();
        engine.admit_content(contents).unwrap();
        engine
    }

    #[test]
    fn a_poll_takes_one_card_of_any_number_of_gates() {
        for count in [10, 1_000, 100_000] {
            let engine = waiting_engine(count);
            let polled = PromptQueues::for_session(&engine, &session());
            assert!(polled.approval_cards().is_none(), "{count}");
            assert_eq!(polled.waiting_gates().len(), count);
            let state = polled.state_json(PromptKind::Approvals);
            assert_eq!(state["pending_count"], count);
            assert_eq!(state["pending"]["approval_id"], gate(1).to_string());
            let none = json!({ "pending": null, "pending_count": 0 });
            assert_eq!(polled.state_json(PromptKind::Questions), none);
        }
    }

    #[test]
    fn the_stream_of_a_session_takes_the_cards_of_its_own_approvals() {
        let engine = waiting_engine(10);
        let other = SessionId::new("agent:other");
        let wanted = BTreeMap::from([(session(), QueueDepth::Approvals), (other.clone(), QueueDepth::Approvals)]);
        let all = PromptQueues::for_sessions(&engine, &wanted);
        let ids = |session: &SessionId| -> Vec<GateId> {
            all[session].approval_cards().unwrap().iter().map(super::PromptCard::id).collect()
        };
        assert_eq!(ids(&session()), (1..=10).map(gate).collect::<Vec<_>>());
        assert_eq!(ids(&other), []);
    }
}
