//! Gates as rows, the same for the command line whether a gateway runs or only its record is there.

use std::fmt;

use countersign_core::{
    call::{self, Pins},
    digest::canonical,
    engine::Engine,
    folder_of,
    gate::{Content, Gate, Kind},
    policy::Covers,
    session::Session,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Protocol, time::iso};

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
    /// What the session is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The tool, or the question.
    pub title: String,
    /// What rules were matched against, and what would run.
    pub subject: String,
    /// The exact arguments.
    pub arguments: Map<String, Value>,
    /// Those of them that `subject` does not show, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Why a person is asked.
    pub reason: String,
    /// What the asker says it wants with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// The folder of this machine in which it would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What it would run from disk, a line each, and what of that is not pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// What is offered as an answer, where a choice or words are one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Whether several of them count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Rules that may be allowed for longer in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<String>,
    /// Who has to allow, where that is more than any one person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// When it was opened: ISO 8601, UTC.
    pub opened_at: String,
    /// When it expires: ISO 8601, UTC.
    pub deadline: Option<String>,
    /// Whether what follows from an answer waits until its session's host is back, which brings its rules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_host: bool,
}

/// Who has to allow, and who has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    /// How many people have to.
    pub need: u32,
    /// Those who have: people, or identities that belong to none.
    pub have: Vec<String>,
    /// Who may; none means whoever may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub from: Option<Vec<String>>,
    /// The step of the escalation, from 1.
    pub step: u32,
    /// How many steps there are.
    pub steps: usize,
}

impl Approvals {
    /// Of a gate whose rule names them.
    pub fn of(gate: &Gate) -> Option<Self> {
        let step = gate.step()?;
        let (at, steps) = gate.step_of();
        let votes = gate.votes().iter();
        Some(Self {
            need: step.approvals,
            have: votes.map(|vote| vote.person.clone().unwrap_or_else(|| vote.by.to_string())).collect(),
            from: step.from.as_ref().map(|from| from.iter().cloned().collect()),
            step: at,
            steps,
        })
    }
}

/// In one line, for people.
impl fmt::Display for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.have.len(), self.need)?;
        if !self.have.is_empty() {
            write!(f, " ({})", self.have.join(", "))?;
        }
        if let Some(from) = &self.from {
            write!(f, ", from {}", from.join(", "))?;
        }
        if self.steps > 1 { write!(f, "; step {} of {}", self.step, self.steps) } else { Ok(()) }
    }
}

/// The arguments that a signature does not show, by name and in order: a person has to see them beside it. Without `call` nobody knows
/// which of them the signature is made of.
pub fn beside<'a>(
    (tool, signature): (&str, &str),
    arguments: &'a Map<String, Value>,
    call: Option<&call::Content>,
) -> Vec<&'a str> {
    // What the tool's own name happens to hold is not shown by it.
    let shown = signature.strip_prefix(tool).unwrap_or(signature);
    let undeclared = call.and_then(|call| call.request.as_ref()).map(|request| &request.undeclared);
    let is_shown = |name: &str, value: &Value| {
        let is_named = call.is_some_and(|call| call.named.is_empty() || call.named.iter().any(|named| named == name));
        let is_undeclared = undeclared.is_some_and(|undeclared| undeclared.iter().any(|one| one == name));
        let text = plain(value);
        is_named && !is_undeclared && !text.is_empty() && shown.contains(&text)
    };
    let mut names: Vec<&str> =
        arguments.iter().filter(|(name, value)| !is_shown(name, value)).map(|(name, _)| &**name).collect();
    names.sort_unstable();
    names
}

/// A value as it is shown, and as it stands in a signature if it is a text.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => canonical(value),
    }
}

/// The folder in which what a gate decides would run, if that is on this machine.
pub fn folder(engine: &Engine, gate: &Gate, content: &Content) -> Option<String> {
    if let Content::Approval { pins: Some(pins), .. } = content {
        return Some(pins.folder.path.clone());
    }
    let session = engine.state().session(gate.session()?)?;
    let call = engine.admitted().call(gate.call()?).filter(|call| call.request.is_none())?;
    // What a node does begins in a folder there, which is not known here.
    let peer = engine.state().call(gate.call()?)?.peer();
    let is_here = peer.and_then(crate::protocol::node_of).is_none();
    Some(folder_of(session, call)).filter(|folder| is_here && !folder.is_empty())
}

/// Every gate that waits, oldest first.
pub fn pending(engine: &Engine) -> Vec<Row> {
    engine.state().pending_gates().filter_map(|gate| row(engine, gate)).collect()
}

/// One gate, if its content is at hand.
pub fn row(engine: &Engine, gate: &Gate) -> Option<Row> {
    engine.admitted().gate(gate.id()).map(|content| row_of(engine, gate, content))
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

/// One gate that shows `content`.
pub fn row_of(engine: &Engine, gate: &Gate, content: &Content) -> Row {
    let (title, subject, arguments, reason) = match content {
        Content::Approval { tool, arguments, signature, why, .. } => {
            (tool.to_string(), signature.clone(), arguments.clone(), why.clone())
        }
        Content::GoOn { question, why, .. } => {
            (question.clone(), question.clone(), Map::new(), why.clone().unwrap_or_default())
        }
        Content::Question { question, .. } if gate.kind() == Kind::Question => {
            (question.clone(), question.clone(), Map::new(), String::new())
        }
        Content::Question { question, .. } => {
            let title = content.headline().to_owned();
            let arguments = Map::from_iter([(kind_of(gate).to_owned(), Value::from(question.as_str()))]);
            (title.clone(), title, arguments, String::new())
        }
    };
    let (choices, several) = match content {
        Content::Question { choices, multi, .. } => {
            (choices.iter().map(|choice| choice.label.clone()).collect(), *multi)
        }
        Content::Approval { .. } | Content::GoOn { .. } => (Vec::new(), false),
    };
    let runs = match content {
        Content::Approval { pins, .. } => pins.as_deref().map(Pins::told).unwrap_or_default(),
        Content::Question { .. } | Content::GoOn { .. } => Vec::new(),
    };
    let session = gate.session().map(ToString::to_string);
    let of_session = gate.session().and_then(|id| engine.state().session(id));
    // Records of earlier versions do not name the door.
    let door = of_session.and_then(Session::door).unwrap_or_else(|| Protocol::presumed(gate).name()).to_owned();
    let beside = match content {
        Content::Approval { tool, .. } => {
            let call = gate.call().and_then(|call| engine.admitted().call(call));
            beside((tool, &subject), &arguments, call.map(|call| &**call))
        }
        Content::GoOn { .. } | Content::Question { .. } => Vec::new(),
    };
    let beside = beside.into_iter().map(str::to_owned).collect();
    Row {
        beside,
        id: gate.id().to_string(),
        kind: kind_of(gate).to_owned(),
        door,
        session,
        title,
        subject,
        arguments,
        reason,
        intent: match content {
            Content::Approval { intent, .. } => intent.as_deref().map(str::to_owned),
            Content::Question { .. } | Content::GoOn { .. } => None,
        },
        folder: folder(engine, gate, content),
        named: of_session.and_then(|session| session.name()).map(str::to_owned),
        runs,
        choices,
        several,
        proposals: engine
            .proposals(gate)
            .into_iter()
            .filter_map(|proposal| match proposal.covers {
                Covers::Pattern(pattern) => Some(pattern),
                Covers::Exact(_) => None,
            })
            .collect(),
        approvals: Approvals::of(gate),
        opened_at: iso(gate.opened_at()),
        deadline: gate.deadline().map(iso),
        waits_for_host: of_session.is_some_and(|session| engine.waits_for_host(session)),
    }
}
