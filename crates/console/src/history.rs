//! History of calls and their outcomes: read from the log once, and then from where that ended.
//!
//! It keeps the newest calls completely, so that a rule can be tried on them, and counts all of them.

mod tally;

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    CallOrigin,
    call::{self, CallEnd},
    engine::Event,
    gate::{self, GateResolution},
    id::{CallId, GateId, Lsn, PrincipalId, SessionId},
    policy::PolicySubject,
    session, subject_at,
    time::Millis,
};
use countersign_runtime::{
    OwnerHandle,
    store::{Log as _, LogReadError, Partition, StoredRecord},
};
use tokio::sync::{Mutex, MutexGuard};

pub(super) use tally::{CallStatistics, SimilarCalls, VerdictCounts, WAITS};

/// Most calls that are kept.
const MOST: usize = 5000;
/// Most bytes of their arguments together.
const MOST_BYTES: usize = 16 << 20;
/// Largest arguments that are kept, in bytes; larger ones are counted.
const LARGEST: usize = 64 << 10;
/// Longest part of a signature without arguments, and of the name of a tool, in characters.
const SHOWN: (usize, usize) = (500, 200);
/// Most records that are read at once.
const PAGE: usize = 512;
/// Most contents that are read at once; fewer if they are long.
const CONTENTS: usize = 64;
/// Most bytes of contents in one step.
const TOGETHER: usize = 1 << 20;

/// History, read at the first request.
#[derive(Default)]
pub(super) struct CallHistory(Mutex<HistoryState>);

/// Verdict on a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CallVerdict {
    /// Pending.
    #[default]
    Open,
    /// A rule allowed it.
    Rule,
    /// An approver allowed it.
    Person,
    /// A grant allowed it while it waited.
    Grant,
    /// A rule denied it.
    RefusedByRule,
    /// An approver denied it.
    RefusedByPerson,
    /// No decision was made.
    Undecided,
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct PastCall {
    pub(super) id: CallId,
    pub(super) session: SessionId,
    pub(super) at: Millis,
    /// Agent, or the adapter of the session.
    pub(super) asker: Arc<str>,
    pub(super) tool: Arc<str>,
    pub(super) signature: Arc<str>,
    /// Subject of policy; absent if it was too long to be kept.
    pub(super) subject: Option<Arc<PolicySubject>>,
    pub(super) gate: Option<GateId>,
    pub(super) asked_at: Option<Millis>,
    pub(super) why: Arc<str>,
    pub(super) verdict: CallVerdict,
    pub(super) by: Option<PrincipalId>,
    pub(super) end: Option<CallEnd>,
    bytes: usize,
}

/// Folders of a session's tools.
#[derive(Clone, Debug, Default)]
struct SessionFolders {
    door: Option<String>,
    cwd: String,
    folder: String,
}

/// History up to a record.
#[derive(Default)]
pub(super) struct HistoryState {
    upto: Lsn,
    locations: BTreeMap<SessionId, SessionFolders>,
    /// Calls by id, which is the order of their requests.
    calls: BTreeMap<CallId, PastCall>,
    gates: BTreeMap<GateId, CallId>,
    bytes: usize,
    pub(super) tally: CallStatistics,
    /// Time of each session's last request.
    seen: BTreeMap<SessionId, Millis>,
}

impl CallHistory {
    /// Reads the history up to the last durable record.
    ///
    /// # Errors
    /// An error of the log.
    pub(super) async fn upto_now(&self, handle: &OwnerHandle) -> Result<MutexGuard<'_, HistoryState>, LogReadError> {
        let mut past = self.0.lock().await;
        let mut at_once = CONTENTS;
        loop {
            let page = handle.log().read_records(Partition::ZERO, past.upto, PAGE).await?;
            let is_last = page.len() < PAGE;
            let wants = |stored: &&StoredRecord| stored.kind == "call" && stored.facts.starts_with("{\"wanted\"");
            let lsns: Vec<Lsn> = page.iter().filter(wants).map(|stored| stored.lsn).collect();
            let mut records = page.into_iter().peekable();
            let mut remaining = lsns.as_slice();
            while records.peek().is_some() {
                let (now, later) = remaining.split_at(at_once.min(remaining.len()));
                remaining = later;
                let texts = handle.contents().get(now).await?;
                let bytes: usize = texts.iter().flatten().map(|text| text.len()).sum();
                at_once = if bytes > TOGETHER { (at_once / 4).max(1) } else { (at_once * 2).min(CONTENTS) };
                let mut texts = now.iter().zip(texts).peekable();
                // Up to the first whose content is not here yet.
                while let Some(stored) = records.next_if(|stored| later.first().is_none_or(|next| stored.lsn < *next)) {
                    let text = texts.next_if(|(lsn, _)| **lsn == stored.lsn).and_then(|(_, text)| text);
                    past.apply_record(&stored, text.as_deref());
                }
            }
            if is_last {
                return Ok(past);
            }
        }
    }
}

fn truncate_text(text: &str, most: usize) -> Arc<str> {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

impl HistoryState {
    /// Returns the kept calls, oldest first.
    pub(super) fn calls(&self) -> impl DoubleEndedIterator<Item = &PastCall> {
        self.calls.values()
    }

    /// Returns the time of a session's last request.
    pub(super) fn last_request(&self, session: &SessionId) -> Option<Millis> {
        self.seen.get(session).copied()
    }

    fn apply_record(&mut self, stored: &StoredRecord, text: Option<&str>) {
        self.upto = stored.lsn;
        let Ok(event) = Event::decode(&stored.kind, stored.version, &stored.facts) else { return };
        match (event, &stored.session) {
            (Event::Session(event), Some(session)) => self.apply_session(session, event),
            (Event::Call(event), Some(session)) => self.apply_call(session, &event, stored.at, text),
            (Event::Gate(event), _) => self.apply_gate(&event, stored.at),
            _ => {}
        }
    }

    fn apply_session(&mut self, session: &SessionId, event: session::Event) {
        match event {
            session::Event::Opened { cwd, door, .. } => {
                self.locations.insert(session.clone(), SessionFolders { door, folder: cwd.clone(), cwd });
            }
            session::Event::Relocated { cwd } => {
                let location = self.locations.entry(session.clone()).or_default();
                (location.cwd, location.folder) = (cwd.clone(), cwd);
            }
            session::Event::Folder { path } => self.locations.entry(session.clone()).or_default().folder = path,
            _ => {}
        }
    }

    fn apply_call(&mut self, session: &SessionId, event: &call::Event, at: Millis, text: Option<&str>) {
        if let call::Event::Proposed { call, effect, .. } = event {
            self.seen.insert(session.clone(), at);
            let content = text.and_then(|text| serde_json::from_str::<call::CallDetails>(text).ok());
            let Some(content) = content.filter(|content| content.problem.is_none()) else { return };
            let location = self.locations.get(session).cloned().unwrap_or_default();
            let place = CallOrigin {
                session,
                door: location.door.as_deref(),
                cwd: &location.cwd,
                folder: &location.folder,
                is_shell_used: true,
            };
            let bytes = text.map_or(0, str::len);
            let subject = (bytes <= LARGEST).then(|| Arc::new(subject_at(place, &content, *effect)));
            let (signature, tool) = match &subject {
                Some(_) => (content.signature.as_str().into(), Arc::clone(&content.tool)),
                None => (truncate_text(&content.signature, SHOWN.0), truncate_text(&content.tool, SHOWN.1)),
            };
            // A subject holds the arguments and texts made of them.
            let bytes = if subject.is_some() { bytes * 2 } else { signature.len() + tool.len() };
            let asker = session.as_str().strip_prefix("agent:").or(location.door.as_deref()).unwrap_or("a run");
            let made = PastCall {
                id: *call,
                session: session.clone(),
                at,
                asker: asker.into(),
                tool,
                signature,
                subject,
                gate: None,
                asked_at: None,
                why: "".into(),
                verdict: CallVerdict::Open,
                by: None,
                end: None,
                bytes,
            };
            self.bytes += made.bytes;
            self.calls.insert(*call, made);
            while self.calls.len() > MOST || self.bytes > MOST_BYTES {
                // A pending call is still to be decided about.
                let waits = |made: &PastCall| made.gate.is_some() && made.verdict == CallVerdict::Open;
                let over = self.calls.iter().find(|(_, made)| !waits(made)).map(|(id, _)| *id);
                let oldest = match over {
                    Some(id) => self.calls.remove(&id),
                    None => self.calls.pop_first().map(|(_, oldest)| oldest),
                };
                let Some(oldest) = oldest else { break };
                self.bytes -= oldest.bytes;
                if let Some(gate) = oldest.gate {
                    self.gates.remove(&gate);
                }
            }
            return;
        }
        let Some(made) = self.calls.get_mut(&event.call()) else { return };
        match event {
            call::Event::Allowed { why, by, .. } => {
                if made.verdict == CallVerdict::Open && by.is_none() {
                    made.verdict = CallVerdict::Rule;
                    self.tally.record_decision(made, at);
                }
                if made.gate.is_none() {
                    made.why = why.as_str().into();
                }
            }
            call::Event::Gated { why, .. } => made.why = why.as_str().into(),
            call::Event::Ended { end, .. } => {
                made.end = Some(*end);
                if made.verdict == CallVerdict::Open {
                    made.verdict =
                        if *end == CallEnd::Denied { CallVerdict::RefusedByRule } else { CallVerdict::Undecided };
                    self.tally.record_decision(made, at);
                }
            }
            _ => {}
        }
    }

    fn apply_gate(&mut self, event: &gate::Event, at: Millis) {
        match event {
            gate::Event::Opened { gate, call: Some(call), kind: gate::Kind::Approval, .. } => {
                if let Some(made) = self.calls.get_mut(call) {
                    (made.gate, made.asked_at) = (Some(*gate), Some(at));
                    self.gates.insert(*gate, *call);
                }
            }
            gate::Event::Resolved { gate, resolution, by, .. } => {
                let made = self.gates.remove(gate).and_then(|call| self.calls.get_mut(&call));
                let Some(made) = made.filter(|made| made.verdict == CallVerdict::Open) else { return };
                made.verdict = match resolution {
                    GateResolution::Allowed { .. } => CallVerdict::Person,
                    GateResolution::Granted => CallVerdict::Grant,
                    GateResolution::Denied => CallVerdict::RefusedByPerson,
                    GateResolution::Answered
                    | GateResolution::Declined
                    | GateResolution::Expired
                    | GateResolution::Withdrawn => CallVerdict::Undecided,
                };
                made.by.clone_from(by);
                self.tally.record_decision(made, at);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        call::{self, Executor},
        digest::Digest,
        id::{CallId, SessionId},
        time::Millis,
        tool::{CallConcurrency, RepeatMode, ToolEffect},
    };
    use uuid::Uuid;

    use super::{HistoryState, LARGEST, MOST_BYTES, SHOWN};

    fn request_call(past: &mut HistoryState, at: u128, argument: &str) {
        let content = call::CallDetails {
            pins: None,
            leads_to: None,
            tool: "pay".into(),
            tool_call_id: "".into(),
            arguments: [("to".to_owned(), argument.into())].into_iter().collect(),
            intent: None,
            signature: format!("pay({argument})"),
            named: Vec::new(),
            class: None,
            shell: None,
            problem: None,
            request: None,
        };
        let event = call::Event::Proposed {
            call: CallId::new(Uuid::from_u128(at)),
            run: None,
            executor: Executor::Service,
            concurrency: CallConcurrency::Shared,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            arguments: Digest::hash_bytes(b""),
            pins: None,
        };
        let text = serde_json::to_string(&content).unwrap();
        past.apply_call(&SessionId::new("agent:a"), &event, Millis(1), Some(&text));
    }

    #[test]
    fn what_is_kept_of_calls_is_bounded_however_long_they_are() {
        let mut past = HistoryState::default();
        for at in 0..200 {
            request_call(&mut past, at, &"x".repeat(900_000));
        }
        let longest = past.calls().map(|made| made.signature.len()).max();
        assert!(longest.is_some_and(|longest| longest <= SHOWN.0 + '…'.len_utf8()), "{longest:?}");
        assert!(past.calls().all(|made| made.subject.is_none()));
        for at in 200..800 {
            request_call(&mut past, at, &"x".repeat(LARGEST - 400));
        }
        let held: usize = past.calls().map(|made| made.signature.len()).sum();
        assert!(past.bytes <= MOST_BYTES && held <= MOST_BYTES, "{} {held}", past.bytes);
    }
}
