//! Gates as rows, the same for the command line whether a gateway runs or only its record is there.

use countersign_core::{
    engine::Engine,
    gate::{Content, Gate, Kind},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::session_file::time::iso;

/// One gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// What it decides.
    pub kind: String,
    /// The door that it came through.
    pub door: String,
    /// The session or agent that waits.
    pub session: Option<String>,
    /// The tool, or the question.
    pub title: String,
    /// What rules were matched against, and what would run.
    pub subject: String,
    /// The exact arguments.
    pub arguments: Map<String, Value>,
    /// Why a person is asked.
    pub reason: String,
    /// When it was opened: ISO 8601, UTC.
    pub opened_at: String,
    /// When it expires: ISO 8601, UTC.
    pub deadline: Option<String>,
}

/// Every gate that waits, oldest first.
pub fn pending(engine: &Engine) -> Vec<Row> {
    engine.state().pending_gates().filter_map(|gate| row(engine, gate)).collect()
}

/// One gate, if its content is at hand.
pub fn row(engine: &Engine, gate: &Gate) -> Option<Row> {
    let (title, subject, arguments, reason) = match &**engine.admitted().gate(gate.id())? {
        Content::Approval { tool, arguments, signature, why, .. } => {
            (tool.to_string(), signature.clone(), arguments.clone(), why.clone())
        }
        Content::Question { question, .. } => (question.clone(), question.clone(), Map::new(), String::new()),
    };
    let session = gate.session().map(ToString::to_string);
    let is_agents = session.as_deref().is_some_and(|session| session.starts_with("agent:"));
    Some(Row {
        id: gate.id().to_string(),
        kind: match gate.kind() {
            Kind::Approval => "approval",
            Kind::Question => "question",
            Kind::Execution => "execution",
            Kind::Pairing => "pairing",
            Kind::Budget => "budget",
        }
        .to_owned(),
        door: if is_agents { crate::agent_gate::DOOR } else { "omp" }.to_owned(),
        session,
        title,
        subject,
        arguments,
        reason,
        opened_at: iso(gate.opened_at()),
        deadline: gate.deadline().map(iso),
    })
}
