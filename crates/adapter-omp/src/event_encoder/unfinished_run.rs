//! A run that another process began, for a host that was not connected: it begins, and ends with all that it added.

use countersign_core::{
    call,
    engine::Engine,
    gate::Gate,
    id::{CallId, Lsn, SessionId},
    message::StoredMessage,
    run::{Run, RunPhase},
    session::{Session, SessionEntry, SessionEntryKind},
    time::Millis,
};

use super::{EventEncoder, OmpEvent, TurnState, message_identity, shown_call::shown_call};
use crate::entries;

/// A wait for the next attempt of a run.
struct RetryWait {
    attempt: u32,
    max_attempts: u32,
    until: Millis,
    /// True if an approver is asked about it.
    has_question: bool,
    /// Position of the message of the failure after which it waits.
    failed: Option<Lsn>,
}

impl RetryWait {
    fn for_run(engine: &Engine, session: &Session, run: &Run) -> Option<Self> {
        let RunPhase::Backoff { until } = *run.phase() else { return None };
        let gate = run.wait_question().and_then(|gate| engine.state().gate(gate));
        Some(Self {
            attempt: run.attempt(),
            max_attempts: session.settings().retry.max,
            until,
            has_question: gate.is_some_and(Gate::is_pending),
            failed: run.last_answer().and_then(|failed| session.entry(failed)).map(|entry| entry.content),
        })
    }
}

/// State of a running run in the log.
pub struct UnfinishedRun {
    phase: RunPhase,
    /// Entries that it added so far, oldest first.
    added: Vec<SessionEntry>,
    /// Its wait for the next attempt, if it is in one.
    wait: Option<RetryWait>,
    /// Its calls that have not ended, and where they stand.
    calls: Vec<(CallId, call::CallDetails, call::CallPhase)>,
}

impl UnfinishedRun {
    /// Returns the run that works in a session.
    pub fn from_engine(engine: &Engine, id: &SessionId) -> Option<Self> {
        let session = engine.state().session(id)?;
        let run = engine.state().run(session.run()?)?;
        let mut added: Vec<SessionEntry> = session.path_entries().into_iter().cloned().collect();
        let began = session.run_began().and_then(|began| added.iter().position(|entry| entry.id == *began));
        // If its first message is not there any more, its last one still is.
        let from = began.or_else(|| added.iter().rposition(is_answer)).unwrap_or(added.len());
        added.drain(..from);
        let wait = RetryWait::for_run(engine, session, run);
        let calls = run.calls().iter().filter_map(|call| engine.state().call(*call)).filter(|call| !call.is_over());
        let calls = calls.filter_map(|call| {
            let content = engine.admitted().call_content(call.id())?;
            Some((call.id(), (**content).clone(), call.phase().clone()))
        });
        let calls = calls.collect();
        Some(Self { phase: run.phase().clone(), added, wait, calls })
    }

    /// Returns the positions of the contents that it added, and that of the failure after which it waits.
    pub fn content_lsns(&self) -> Vec<Lsn> {
        let failed = self.wait.as_ref().and_then(|wait| wait.failed);
        self.added.iter().map(|entry| entry.content).chain(failed).collect()
    }

    /// Returns the time at which it continues, if it waits for its next attempt without a question to an approver.
    pub fn next_attempt(&self) -> Option<Millis> {
        self.wait.as_ref().filter(|wait| !wait.has_question).map(|wait| wait.until)
    }
}

/// End of a conversation without an answer of the model, although no run works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenEnd {
    /// The result of a call.
    Result,
    /// A message.
    Message,
}

/// Returns the end of a conversation whose last message, or the result of its last call, has no answer. None while a run works.
pub(crate) fn open_end(engine: &Engine, id: &SessionId) -> Option<OpenEnd> {
    let session = engine.state().session(id).filter(|session| session.run().is_none())?;
    let entries = session.path_entries();
    let last = entries.iter().rev().find(|entry| {
        // No answer belongs to these.
        !matches!(
            entry.kind,
            SessionEntryKind::Custom
                | SessionEntryKind::ModelChange
                | SessionEntryKind::ThinkingChange
                | SessionEntryKind::Other
        )
    })?;
    match last.kind {
        SessionEntryKind::ToolResult { .. } => Some(OpenEnd::Result),
        SessionEntryKind::User | SessionEntryKind::Developer => Some(OpenEnd::Message),
        _ => None,
    }
}

fn is_answer(entry: &SessionEntry) -> bool {
    matches!(entry.kind, SessionEntryKind::Assistant { .. })
}

impl EventEncoder {
    /// Takes up a run that another process began. `contents` are those of `UnfinishedRun::content_lsns`, as far as they can be had.
    pub fn resume_run(
        &mut self,
        left: UnfinishedRun,
        contents: impl IntoIterator<Item = Option<std::sync::Arc<str>>>,
        now: Millis,
        frames: &mut Vec<OmpEvent>,
    ) {
        self.is_running = true;
        let answer = left.added.iter().rposition(is_answer);
        let mut contents = contents.into_iter();
        for (at, (entry, content)) in left.added.iter().zip(contents.by_ref()).enumerate() {
            let is_shown = matches!(
                entry.kind,
                SessionEntryKind::User
                    | SessionEntryKind::Developer
                    | SessionEntryKind::Custom
                    | SessionEntryKind::Assistant { .. }
                    | SessionEntryKind::ToolResult { .. }
            );
            if let Some(Ok(StoredMessage::Assistant(assistant))) = content.as_deref().map(serde_json::from_str) {
                self.last = Some(message_identity(&assistant));
            }
            let message = content.filter(|_| is_shown).and_then(|content| entries::to_wire(entry, &content));
            let Some(message) = message else { continue };
            if left.phase == RunPhase::Calling && Some(at) == answer {
                self.turn_message = Some(message.clone());
            } else if left.phase == RunPhase::Calling
                && Some(at) > answer
                && matches!(entry.kind, SessionEntryKind::ToolResult { .. })
            {
                self.turn_results.push(message.clone());
            }
            self.added.push(message);
        }
        self.turn = match left.phase {
            RunPhase::Calling => TurnState::Answered,
            RunPhase::Opening | RunPhase::Thinking { .. } => TurnState::Empty,
            RunPhase::Between | RunPhase::Backoff { .. } | RunPhase::Ended(_) => TurnState::Closed,
        };
        match left.phase {
            RunPhase::Backoff { .. } | RunPhase::Between => frames.push(OmpEvent::AgentStart),
            RunPhase::Opening | RunPhase::Thinking { .. } | RunPhase::Calling | RunPhase::Ended(_) => {
                frames.extend([OmpEvent::AgentStart, OmpEvent::TurnStart]);
            }
        }
        for (call, content, phase) in left.calls {
            self.calls.insert(call, shown_call(&content));
            if matches!(phase, call::CallPhase::Started { .. } | call::CallPhase::InDoubt(_)) {
                self.start_call(call, frames);
            }
        }
        if let Some(wait) = left.wait {
            self.resume_wait(wait, contents.next().flatten().as_deref(), now, frames);
        }
    }

    /// Pauses the run that was just taken up, as it was paused when its wait began. `failed` is the content of the failure.
    fn resume_wait(&mut self, wait: RetryWait, failed: Option<&str>, now: Millis, frames: &mut Vec<OmpEvent>) {
        if let Some(Ok(StoredMessage::Assistant(assistant))) = failed.map(serde_json::from_str) {
            self.error = assistant.error_message.unwrap_or_default();
        }
        self.is_waiting = true;
        self.attempt = wait.attempt;
        frames.push(OmpEvent::AgentEnd { messages: std::mem::take(&mut self.added) });
        frames.push(OmpEvent::AutoRetryStart {
            attempt: wait.attempt,
            max_attempts: wait.max_attempts,
            delay_ms: u64::try_from(wait.until.since(now).as_millis()).unwrap_or(u64::MAX),
            error_message: self.error.clone(),
        });
    }
}
