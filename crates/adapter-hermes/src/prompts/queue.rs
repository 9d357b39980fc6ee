//! Pending gates of one session, oldest first, as the engine has them at one position of the log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use countersign_core::{
    engine::Engine,
    gate::Gate,
    id::{GateId, Lsn, SessionId},
};
use countersign_http::web::sse;
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

/// Pending gates of one session, taken out of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptQueues {
    /// Position of the log.
    pub at: Lsn,
    approvals: Vec<PromptCard>,
    questions: Vec<PromptCard>,
}

impl PromptQueues {
    /// Reads those of one session.
    pub(super) fn for_session(engine: &Engine, session: &SessionId) -> Self {
        let only = BTreeSet::from([session.clone()]);
        Self::for_sessions(engine, &only).remove(session).unwrap_or_default()
    }

    /// Reads those of several sessions, in one pass.
    pub(crate) fn for_sessions(engine: &Engine, sessions: &BTreeSet<SessionId>) -> BTreeMap<SessionId, Self> {
        let at = engine.state().head_lsn();
        let empty = |session: &SessionId| (session.clone(), Self { at, ..Self::default() });
        let mut all: BTreeMap<SessionId, Self> = sessions.iter().map(empty).collect();
        for gate in engine.state().pending_gates() {
            let Some(queues) = gate.session().and_then(|session| all.get_mut(session)) else { continue };
            if let Some(prompt) = PromptCard::from_gate(engine, gate) {
                let is_question = prompt_card::is_question(gate);
                if is_question { queues.questions.push(prompt) } else { queues.approvals.push(prompt) }
            }
        }
        all
    }

    /// Returns every session with a pending gate.
    pub(super) fn waiting_sessions(engine: &Engine) -> BTreeSet<SessionId> {
        engine.state().pending_gates().filter_map(Gate::session).cloned().collect()
    }

    /// Returns one of the two queues, oldest first.
    pub(crate) fn cards_of(&self, line: PromptKind) -> &[PromptCard] {
        match line {
            PromptKind::Approvals => &self.approvals,
            PromptKind::Questions => &self.questions,
        }
    }

    /// Returns the state of one queue, as polls and frames have it.
    pub(super) fn state_json(&self, kind: PromptKind) -> Value {
        let waiting = self.cards_of(kind);
        json!({ "pending": waiting.first().map(PromptCard::to_json), "pending_count": waiting.len() })
    }

    /// Returns the frame of that state, once for all readers.
    pub(crate) fn state_frame(&self, kind: PromptKind) -> Bytes {
        sse::encode_frame(None, kind.event_name(), &self.state_json(kind))
    }

    /// Returns the names of all pending gates, with their queue.
    pub(crate) fn waiting_gates(&self) -> BTreeMap<GateId, PromptKind> {
        let all = self.approvals.iter().chain(&self.questions);
        all.map(|prompt| (prompt.id(), PromptKind::from_is_question(prompt_card::is_question(prompt.gate())))).collect()
    }
}
