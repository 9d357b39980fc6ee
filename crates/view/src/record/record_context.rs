//! Subject of each record: its call and tool, the decision and its maker.
//!
//! Most records name a call or a gate and nothing else; only those before describe it. It must not know texts for people.

use std::{collections::BTreeMap, sync::Arc};

use countersign_core::{
    call::{self, CallEnd},
    engine::Event,
    gate::{self, GateResolution},
    id::{CallId, EntryId, GateId},
    message::{StoredMessage, text_of},
    policy, session,
};
use countersign_runtime::store::StoredRecord;
use schemars::JsonSchema;
use serde::Serialize;

use crate::gate_request::{GateRequest, GoOnRequest, QuestionRequest, RequestKind};

/// Most calls and gates that are remembered; the oldest are dropped.
const REMEMBERED: usize = 65_536;

/// Outcome of a decision or of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Outcome")]
pub enum RecordOutcome {
    /// Allowed by a rule or an approver.
    Allowed,
    /// Approval requested.
    #[serde(rename = "asked")]
    Gated,
    /// Denied by a rule or an approver.
    Denied,
    /// Allowed by a grant.
    Granted,
    /// No decision before the deadline.
    Expired,
    /// Decision no longer needed.
    Withdrawn,
    /// Question answered.
    Answered,
    /// Question declined.
    Declined,
    /// Executed without an error.
    Done,
    /// Executed and reported an error.
    Error,
    /// Could not be executed.
    Failed,
    /// Refused: too many pending calls.
    Limited,
    /// Skipped because of a later message.
    Skipped,
    /// Cancelled before the start.
    Cancelled,
    /// Outcome unknown.
    Unknown,
}

impl RecordOutcome {
    /// All of them, with what they mean.
    pub const ALL: [(Self, &'static str); 15] = [
        (Self::Allowed, "Allowed by a rule or an approver"),
        (Self::Gated, "Approval requested"),
        (Self::Denied, "Denied by a rule or an approver"),
        (Self::Granted, "Allowed by a standing approval"),
        (Self::Expired, "No decision before the deadline"),
        (Self::Withdrawn, "Decision no longer needed"),
        (Self::Answered, "Question answered"),
        (Self::Declined, "Question declined"),
        (Self::Done, "Executed without an error"),
        (Self::Error, "Executed and reported an error"),
        (Self::Failed, "Could not be executed"),
        (Self::Limited, "Refused: too many pending calls"),
        (Self::Skipped, "Skipped because of a later message"),
        (Self::Cancelled, "Cancelled before the start"),
        (Self::Unknown, "Outcome unknown"),
    ];

    /// Returns the outcome of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().map(|(outcome, _)| outcome).find(|outcome| outcome.as_str() == word)
    }

    /// Returns the word of the command line, of JSON and of CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Gated => "asked",
            Self::Denied => "denied",
            Self::Granted => "granted",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Answered => "answered",
            Self::Declined => "declined",
            Self::Done => "done",
            Self::Error => "error",
            Self::Failed => "failed",
            Self::Limited => "limited",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    const fn of_end(end: CallEnd) -> Self {
        match end {
            CallEnd::Done { error: false } => Self::Done,
            CallEnd::Done { error: true } => Self::Error,
            CallEnd::Failed => Self::Failed,
            CallEnd::Denied | CallEnd::Refused => Self::Denied,
            CallEnd::Expired => Self::Expired,
            CallEnd::Limited => Self::Limited,
            CallEnd::Skipped => Self::Skipped,
            CallEnd::Cancelled => Self::Cancelled,
            CallEnd::Unknown => Self::Unknown,
        }
    }

    const fn of_resolution(resolution: &GateResolution) -> Self {
        match resolution {
            GateResolution::Allowed { .. } => Self::Allowed,
            GateResolution::Denied => Self::Denied,
            GateResolution::Answered => Self::Answered,
            GateResolution::Declined => Self::Declined,
            GateResolution::Granted => Self::Granted,
            GateResolution::Expired => Self::Expired,
            GateResolution::Withdrawn => Self::Withdrawn,
        }
    }
}

/// Subject of one record, as far as the records before tell it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordSubject {
    /// The call.
    pub call: Option<CallId>,
    /// The gate.
    pub gate: Option<GateId>,
    /// The tool of the call.
    pub tool: Option<Arc<str>>,
    /// Signature that rules were matched against, or the question.
    pub subject: Option<Arc<str>>,
    /// Outcome of the decision or call, if the record has one.
    pub outcome: Option<RecordOutcome>,
    /// The person who decided.
    pub by: Option<Arc<str>>,
    /// Decider, such as a rule with its line.
    pub why: Option<Arc<str>>,
    /// True if the first record of the call or gate is this one, or came before: no earlier record says more about it.
    pub is_begun: bool,
}

/// Calls and gates that are remembered while records are followed.
#[derive(Debug, Default)]
pub(super) struct RecordContext {
    calls: BTreeMap<CallId, RecordSubject>,
    gates: BTreeMap<GateId, RecordSubject>,
    /// The last result that a run received: the call that it belongs to ends in the next record.
    result: Option<(EntryId, String)>,
}

impl RecordContext {
    /// Returns the subject of the next record.
    pub(super) fn follow_event(&mut self, event: &Event, content: Option<&str>) -> RecordSubject {
        match event {
            Event::Call(event) => self.follow_call(event, content),
            Event::Gate(event) => self.follow_gate(event, content),
            Event::Session(session::Event::Entry {
                id, kind: session::SessionEntryKind::ToolResult { .. }, ..
            }) => {
                let message = content.and_then(|content| serde_json::from_str::<StoredMessage>(content).ok());
                self.result = message.and_then(|message| match message {
                    StoredMessage::ToolResult(result) => Some((id.clone(), text_of(&result.content))),
                    _ => None,
                });
                RecordSubject::default()
            }
            Event::Policy(policy::Event::Edited { by, .. } | policy::Event::ServerApproval { by, .. }) => {
                RecordSubject { by: Some(by.as_str().into()), ..RecordSubject::default() }
            }
            Event::Settings(event) => {
                RecordSubject { by: Some(event.by().as_str().into()), ..RecordSubject::default() }
            }
            Event::Booted
            | Event::Session(_)
            | Event::Run(_)
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => RecordSubject::default(),
        }
    }

    fn follow_call(&mut self, event: &call::Event, content: Option<&str>) -> RecordSubject {
        let id = event.call();
        let mut known = self.calls.get(&id).cloned().unwrap_or_default();
        known.call = Some(id);
        let mut outcome = None;
        match event {
            call::Event::Requested { .. } => known.is_begun = true,
            call::Event::Proposed { .. } => {
                known.is_begun = true;
                if let Some(details) = content.and_then(|text| serde_json::from_str::<call::CallDetails>(text).ok()) {
                    known.tool = Some(details.tool);
                    known.subject = Some(details.signature.into());
                }
            }
            call::Event::Allowed { why, by, .. } => {
                outcome = Some(RecordOutcome::Allowed);
                known.why = Some(plain_reason(why).into());
                known.by = by.as_ref().map(|by| by.as_str().into());
            }
            call::Event::Gated { why, .. } => {
                outcome = Some(RecordOutcome::Gated);
                known.why = Some(why.as_str().into());
                known.by = None;
            }
            call::Event::Ended { end, entry, .. } => {
                outcome = Some(RecordOutcome::of_end(*end));
                if matches!(end, CallEnd::Denied | CallEnd::Refused) {
                    let of_run = self.result.take().filter(|(id, _)| Some(id) == entry.as_ref());
                    let denial = content.or_else(|| of_run.as_ref().map(|(_, text)| text.as_str()));
                    known.why = denial.map(|denial| plain_reason(denial).into());
                }
            }
            call::Event::Received { .. }
            | call::Event::Waits { .. }
            | call::Event::Started { .. }
            | call::Event::Aborting { .. }
            | call::Event::InDoubt { .. }
            | call::Event::AskedAgain { .. }
            | call::Event::LeftBehind { .. }
            | call::Event::Again { .. }
            | call::Event::ResultDropped { .. } => {}
        }
        self.calls.insert(id, known.clone());
        if self.calls.len() > REMEMBERED {
            self.calls.pop_first();
        }
        RecordSubject { outcome, ..known }
    }

    fn follow_gate(&mut self, event: &gate::Event, content: Option<&str>) -> RecordSubject {
        let id = event.gate();
        let mut known = self.gates.get(&id).cloned().unwrap_or_default();
        known.gate = Some(id);
        let mut outcome = None;
        match event {
            gate::Event::Opened { call, .. } => {
                known.call = *call;
                known.is_begun = call.is_none_or(|call| self.calls.get(&call).is_some_and(|call| call.is_begun));
                known.tool = call.and_then(|call| self.calls.get(&call)).and_then(|call| call.tool.clone());
                let request = content.and_then(GateRequest::from_record);
                match request.as_ref().map(GateRequest::kind) {
                    Some(RequestKind::Call(call)) => {
                        known.subject = Some(call.signature.into());
                        known.why = Some(call.reason.into());
                    }
                    Some(
                        RequestKind::Question(QuestionRequest { text, .. })
                        | RequestKind::GoOn(GoOnRequest { text, .. }),
                    ) => {
                        known.subject = Some(text.into());
                    }
                    None => {}
                }
            }
            gate::Event::Resolved { resolution, by, .. } => {
                outcome = Some(RecordOutcome::of_resolution(resolution));
                known.by = by.as_ref().map(|by| by.as_str().into());
                if let Some(call) = known.call.and_then(|call| self.calls.get_mut(&call)) {
                    call.by.clone_from(&known.by);
                }
            }
            // The decider is the one who gave the last of several votes.
            gate::Event::Voted { .. }
            | gate::Event::Escalated { .. }
            | gate::Event::Reminded { .. }
            | gate::Event::Extended { .. }
            | gate::Event::Shown { .. }
            | gate::Event::Updated { .. } => {}
        }
        self.gates.insert(id, known.clone());
        if self.gates.len() > REMEMBERED {
            self.gates.pop_first();
        }
        RecordSubject { outcome, ..known }
    }
}

/// Returns a reason without the words for its direction, and without the advice to a model.
pub(super) fn plain_reason(text: &str) -> &str {
    let text = ["Denied by policy: ", "Denied ", "denied ", "allowed "]
        .iter()
        .find_map(|word| text.strip_prefix(word))
        .unwrap_or(text);
    // The last is what earlier versions wrote.
    let advice = [". A person refused this", "\nA person refused this", ". The same action"];
    advice.iter().find_map(|advice| text.split_once(advice)).map_or(text, |(text, _)| text)
}

/// Returns the name of a record's event within its kind.
pub fn event_name(stored: &StoredRecord) -> &str {
    // Facts are `{"name":{…}}` or `"name"`.
    stored.facts.split('"').nth(1).unwrap_or(&stored.kind)
}

#[cfg(test)]
mod tests {
    use countersign_core::{call, engine::Event, id::CallId};
    use serde_json::json;

    use super::{RecordContext, RecordOutcome};

    #[test]
    fn a_call_is_begun_once_its_first_record_was_followed() {
        let [known, unknown] = ["1", "2"].map(|number| CallId::parse(&number.repeat(32)).unwrap());
        let requested = call::Event::Requested { call: known, wire: "1".into(), key: None, generation: 1, asks: None };
        let received = |call| call::Event::Received { call };
        let mut trail = RecordContext::default();
        for (event, want) in
            [(received(known), false), (requested, true), (received(known), true), (received(unknown), false)]
        {
            let about = trail.follow_event(&Event::Call(event.clone()), None);
            assert_eq!((about.is_begun, about.tool), (want, None), "{event:?}");
        }
    }

    #[test]
    fn an_outcome_is_written_as_its_word() {
        for (outcome, _) in RecordOutcome::ALL {
            assert_eq!(json!(outcome), json!(outcome.as_str()));
        }
    }
}
