//! What waits in one session, oldest first, as the engine has it at one position of the log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use countersign_core::{
    engine::Engine,
    gate::Gate,
    id::{GateId, Lsn, SessionId},
};
use countersign_http::web::sse;
use serde_json::{Value, json};

use super::card::{self, Asked};

/// The two queues of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// What is allowed or denied.
    Approvals,
    /// What is answered with words.
    Questions,
}

/// What is sent about the prompts of one of the two.
pub(crate) trait Queued {
    /// Which of the two.
    const LINE: Line;
}

impl Line {
    /// The name of the event that says how it stands.
    pub(crate) const fn event(self) -> &'static str {
        match self {
            Self::Approvals => "approval",
            Self::Questions => "clarify",
        }
    }

    const fn of(is_question: bool) -> Self {
        if is_question { Self::Questions } else { Self::Approvals }
    }
}

/// What waits in one session, taken out of the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    /// Where the log stood.
    pub at: Lsn,
    approvals: Vec<Asked>,
    questions: Vec<Asked>,
}

impl Queues {
    /// Of one session.
    pub(super) fn of(engine: &Engine, session: &SessionId) -> Self {
        let only = BTreeSet::from([session.clone()]);
        Self::of_all(engine, &only).remove(session).unwrap_or_default()
    }

    /// Of several sessions, in one pass.
    pub(crate) fn of_all(engine: &Engine, sessions: &BTreeSet<SessionId>) -> BTreeMap<SessionId, Self> {
        let at = engine.state().head_lsn();
        let empty = |session: &SessionId| (session.clone(), Self { at, ..Self::default() });
        let mut all: BTreeMap<SessionId, Self> = sessions.iter().map(empty).collect();
        for gate in engine.state().pending_gates() {
            let Some(queues) = gate.session().and_then(|session| all.get_mut(session)) else { continue };
            if let Some(asked) = Asked::of(engine, gate) {
                let is_question = card::is_question(gate);
                if is_question { queues.questions.push(asked) } else { queues.approvals.push(asked) }
            }
        }
        all
    }

    /// Every session in which something waits.
    pub(super) fn sessions(engine: &Engine) -> BTreeSet<SessionId> {
        engine.state().pending_gates().filter_map(Gate::session).cloned().collect()
    }

    /// One of the two, oldest first.
    pub(crate) fn line(&self, line: Line) -> &[Asked] {
        match line {
            Line::Approvals => &self.approvals,
            Line::Questions => &self.questions,
        }
    }

    /// How one of the two stands, as polls and frames have it.
    pub(super) fn state(&self, line: Line) -> Value {
        let waiting = self.line(line);
        json!({ "pending": waiting.first().map(Asked::told), "pending_count": waiting.len() })
    }

    /// The frame that says so, once for everybody.
    pub(crate) fn frame(&self, line: Line) -> Bytes {
        sse::encode_frame(None, line.event(), &self.state(line))
    }

    /// The names of all that waits, with which of the two it waits in.
    pub(crate) fn ids(&self) -> BTreeMap<GateId, Line> {
        let all = self.approvals.iter().chain(&self.questions);
        all.map(|asked| (asked.id(), Line::of(card::is_question(asked.gate())))).collect()
    }
}
