//! Gates as rows, the same for the command line whether a gateway runs or only its record is there.

use countersign_core::{
    engine::Engine,
    gate::{Gate, Kind},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    GateSummary,
    gate_request::RequestKind,
    gate_summary::{Approvals, proposal_patterns, unshown_arguments},
    time::format_iso,
};

/// One gate as a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateRow {
    /// Its id.
    pub id: String,
    /// Kind of the question.
    pub kind: String,
    /// The door that it came through.
    pub door: String,
    /// The session or agent that waits.
    pub session: Option<String>,
    /// Name of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The principal that makes the call, if it is not the session itself, for example a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
    /// The tool, or the question.
    pub title: String,
    /// Signature that rules were matched against, and the content of the call.
    pub subject: String,
    /// The exact arguments.
    pub arguments: Map<String, Value>,
    /// Arguments that `subject` does not show, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Reason that a person is asked.
    pub reason: String,
    /// Purpose of the call, as the asker gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// The folder of this machine in which it would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Files that it would run from disk, a line each, with those that are not pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Offered choices, if a choice or words are an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// True if several of them count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// True if only its choices are an answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
    /// Rules that may be allowed for longer in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<String>,
    /// Required approvals, if more than one of any person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// Time of opening: ISO 8601, UTC.
    pub opened_at: String,
    /// Deadline: ISO 8601, UTC.
    pub deadline: Option<String>,
    /// True if the effect of an answer waits until its session's host is back, which brings its rules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_host: bool,
}

/// Returns every gate that waits, oldest first.
pub fn pending_rows(engine: &Engine) -> Vec<GateRow> {
    let gates = engine.state().pending_gates();
    gates.filter_map(|gate| Some(GateRow::new(engine, &GateSummary::at_hand(engine, gate)?))).collect()
}

fn kind_of(gate: &Gate) -> &'static str {
    match gate.kind() {
        Kind::Approval => "approval",
        Kind::Question => "question",
        Kind::Plan => "plan",
        Kind::Execution => "execution",
        Kind::Pairing => "pairing",
        Kind::Budget => "budget",
    }
}

impl GateRow {
    /// Creates the row of a gate.
    pub fn new(engine: &Engine, summary: &GateSummary) -> Self {
        let (gate, request) = (&summary.gate, summary.request.kind());
        let (title, subject, arguments, reason) = match request {
            RequestKind::Call(call) => {
                let title = call.server_title().unwrap_or_else(|| call.tool.to_owned());
                (title, call.signature.to_owned(), call.arguments.clone(), call.reason.to_owned())
            }
            RequestKind::GoOn(go_on) => {
                let reason = go_on.reason.unwrap_or_default().to_owned();
                (go_on.text.to_owned(), go_on.text.to_owned(), Map::new(), reason)
            }
            RequestKind::Question(question) if gate.kind() == Kind::Question => {
                (question.text.to_owned(), question.text.to_owned(), Map::new(), String::new())
            }
            RequestKind::Question(question) => {
                let title = summary.request.headline().to_owned();
                let arguments = Map::from_iter([(kind_of(gate).to_owned(), Value::from(question.text))]);
                (title.clone(), title, arguments, String::new())
            }
        };
        let (call, question) = (summary.request.call(), summary.request.question());
        let beside = call.map(|call| {
            let admitted = gate.call().and_then(|id| engine.admitted().call_content(id));
            let names =
                unshown_arguments((call.tool, call.signature), call.arguments, admitted.map(|admitted| &**admitted));
            names.into_iter().map(str::to_owned).collect()
        });
        let session = gate.session().and_then(|id| engine.state().session(id));
        Self {
            id: gate.id().to_string(),
            kind: kind_of(gate).to_owned(),
            door: summary.door.clone(),
            session: gate.session().map(ToString::to_string),
            named: summary.session_name.clone(),
            requester: summary.requester.as_ref().map(ToString::to_string),
            title,
            subject,
            arguments,
            beside: beside.unwrap_or_default(),
            reason,
            intent: call.and_then(|call| call.intent).map(str::to_owned),
            folder: summary.folder.clone(),
            runs: call.map(|call| call.run_lines()).unwrap_or_default(),
            choices: question.map(|question| question.choice_labels()).unwrap_or_default(),
            several: question.is_some_and(|question| question.is_multi),
            closed: question.is_some_and(|question| !question.takes_own_words),
            proposals: proposal_patterns(engine, gate),
            approvals: summary.approvals(),
            opened_at: format_iso(gate.opened_at()),
            deadline: gate.deadline().map(format_iso),
            waits_for_host: session.is_some_and(|session| engine.waits_for_host(session)),
        }
    }
}
