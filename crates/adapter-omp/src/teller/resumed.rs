//! A run that another process began, as a host hears of it that was not there: it begins, and ends with all that it added.

use countersign_core::{
    call,
    engine::Engine,
    id::{CallId, Lsn, SessionId},
    message::Message,
    run::Phase,
    session::{Entry, Kind},
};

use super::{Event, Teller, Turn, identity, shown};
use crate::entries;

/// What the log has of a run that works.
pub struct Left {
    phase: Phase,
    /// What it added so far, oldest first.
    added: Vec<Entry>,
    /// The failure that it waits behind.
    failed: Option<Lsn>,
    /// Its calls that have not ended, and where they stand.
    calls: Vec<(CallId, call::Content, call::Phase)>,
}

impl Left {
    /// The run that works in a session.
    pub fn of(engine: &Engine, id: &SessionId) -> Option<Self> {
        let session = engine.state().session(id)?;
        let run = engine.state().run(session.run()?)?;
        let mut added: Vec<Entry> = session.path().into_iter().cloned().collect();
        let began = session.run_began().and_then(|began| added.iter().position(|entry| entry.id == *began));
        // Where its first message is not there any more, its last one still is.
        let from = began.or_else(|| added.iter().rposition(is_answer)).unwrap_or(added.len());
        added.drain(..from);
        let failed = run.answered().filter(|_| matches!(run.phase(), Phase::Backoff { .. }));
        let failed = failed.and_then(|failed| session.entry(failed)).map(|entry| entry.content);
        let calls = run.calls().iter().filter_map(|call| engine.state().call(*call)).filter(|call| !call.is_over());
        let calls = calls.filter_map(|call| {
            let content = engine.admitted().call(call.id())?;
            Some((call.id(), (**content).clone(), call.phase().clone()))
        });
        let calls = calls.collect();
        Some(Self { phase: run.phase().clone(), added, failed, calls })
    }

    /// Where the contents of what it added lie, and that of the failure that it waits behind.
    pub fn contents(&self) -> Vec<Lsn> {
        self.added.iter().map(|entry| entry.content).chain(self.failed).collect()
    }
}

/// Whether the last run of a session ended between the result of a call and what the model would have said to it.
pub(crate) fn stands(engine: &Engine, id: &SessionId) -> bool {
    let session = engine.state().session(id).filter(|session| session.run().is_none());
    let last = session.and_then(|session| session.path().last().map(|entry| entry.kind.clone()));
    matches!(last, Some(Kind::ToolResult { .. }))
}

fn is_answer(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Assistant { .. })
}

impl Teller {
    /// Takes up a run that another process began. `contents` are those of `Left::contents`, as far as they can be had.
    pub fn resume(
        &mut self,
        left: Left,
        contents: impl IntoIterator<Item = Option<std::sync::Arc<str>>>,
        frames: &mut Vec<Event>,
    ) {
        self.is_running = true;
        let answer = left.added.iter().rposition(is_answer);
        let mut contents = contents.into_iter();
        for (at, (entry, content)) in left.added.iter().zip(contents.by_ref()).enumerate() {
            let is_told = matches!(
                entry.kind,
                Kind::User | Kind::Developer | Kind::Custom | Kind::Assistant { .. } | Kind::ToolResult { .. }
            );
            if let Some(Ok(Message::Assistant(said))) = content.as_deref().map(serde_json::from_str) {
                self.last = Some(identity(&said));
            }
            let message = content.filter(|_| is_told).and_then(|content| entries::to_wire(entry, &content));
            let Some(message) = message else { continue };
            if left.phase == Phase::Calling && Some(at) == answer {
                self.turn_message = Some(message.clone());
            } else if left.phase == Phase::Calling && Some(at) > answer && matches!(entry.kind, Kind::ToolResult { .. })
            {
                self.turn_results.push(message.clone());
            }
            self.added.push(message);
        }
        let failed = contents.next().flatten().filter(|_| left.failed.is_some());
        if let Some(Ok(Message::Assistant(said))) = failed.as_deref().map(serde_json::from_str) {
            self.error = said.error_message.unwrap_or_default();
        }
        self.turn = match left.phase {
            Phase::Calling => Turn::Answered,
            Phase::Opening | Phase::Thinking { .. } => Turn::Empty,
            Phase::Between | Phase::Backoff { .. } | Phase::Ended(_) => Turn::Closed,
        };
        match left.phase {
            // The next attempt begins by itself.
            Phase::Backoff { .. } => self.is_waiting = true,
            Phase::Between => frames.push(Event::AgentStart),
            Phase::Opening | Phase::Thinking { .. } | Phase::Calling | Phase::Ended(_) => {
                frames.extend([Event::AgentStart, Event::TurnStart]);
            }
        }
        for (call, content, phase) in left.calls {
            self.calls.insert(call, shown(&content));
            if matches!(phase, call::Phase::Started { .. } | call::Phase::InDoubt(_)) {
                self.started(call, frames);
            }
        }
    }
}
